"""Tiled weight layouts of the native engine; see README.md."""
