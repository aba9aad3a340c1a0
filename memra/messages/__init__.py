"""What crosses a border between actors: frozen, slotted dataclasses of plain values, one module per border.

Never a tensor, never a lock, never an open file: a message may one day cross a process border. Commands are imperative
(`SubmitPrompt`), events are past tense (`TokensGenerated`).
"""
