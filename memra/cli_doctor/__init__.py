"""`memra doctor`: what this machine offers and what memra makes of it, on one screen."""
