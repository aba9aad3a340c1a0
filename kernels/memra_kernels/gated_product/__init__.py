"""Gated product of a feed-forward block."""
