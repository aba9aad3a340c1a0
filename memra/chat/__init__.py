"""Words to tokens and back: templates, tokenizers, the incremental detokenizer, stop strings. Never a tensor."""
