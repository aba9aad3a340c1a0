"""The wire: what clients may send and what they are sent, field by field."""
