"""Matrix product of rows with a weight."""
