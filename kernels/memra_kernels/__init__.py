"""Operators for language models: one folder an operator, each with its maths, a torch reference and native code.

The references are the definition: float32 arithmetic, every order of summation fixed and stated. This package knows
torch and nothing of the server that uses it.
"""
