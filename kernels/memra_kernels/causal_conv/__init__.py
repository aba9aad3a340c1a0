"""Causal depthwise convolution with a state."""
