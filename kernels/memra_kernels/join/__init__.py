"""Groups of two rows put side by side."""
