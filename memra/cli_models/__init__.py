"""`memra models`: what a model is and whether it runs here, found out without loading it."""
