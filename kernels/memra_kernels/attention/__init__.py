"""Causal attention over cached keys and values."""
