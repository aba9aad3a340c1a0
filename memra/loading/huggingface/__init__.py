"""Safetensors directories as transformers writes them, in GGUF's terms."""
