"""Logits from the last hidden row."""
