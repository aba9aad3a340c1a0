"""Files to weights: GGUF, safetensors, hub and package sources. Nothing is run here."""
