"""Accounting for memra as a plugin: what requests cost, who pays for them, and who may not have another one.

The plugin object stands in `plugin`; nothing here is imported before it is needed, so that `memra --help` stays quick.
Of memra it knows the public door (`memra.plugins`), the errors and the shared words, and nothing else.
"""
