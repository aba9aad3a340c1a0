"""From a row of logits to a token. See README.md."""
