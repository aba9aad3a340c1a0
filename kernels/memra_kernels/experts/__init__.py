"""Mixture of experts: who computes a row, and how the results are mixed."""
