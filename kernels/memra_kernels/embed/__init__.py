"""Token embedding: rows of a table."""
