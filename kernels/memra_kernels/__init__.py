"""Operators for language models: one folder an operator, each with its maths, a reference and native code.

The references are the definition: every order of summation is fixed and stated. This package knows torch (in the
references alone) and nothing of the server that uses it.
"""
