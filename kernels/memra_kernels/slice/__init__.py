"""Columns taken out of groups of a row."""
