"""The chat template of a model that brings none: plain ChatML, as Jinja source.

Trade: one constant. It knows turns and nothing else: no tools, no thinking. Used for GGUF files without a
`tokenizer.chat_template`; a checkpoint directory without a template never gets here.
"""

CHATML_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
"""
"""A turn is `<|im_start|>role`, a line break, the content, `<|im_end|>` and a line break (OpenAI's ChatML)."""
