"""Layer norm: rows centred and scaled."""
