"""Root-mean-square normalisation over groups of a row."""
