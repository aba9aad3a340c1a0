"""`memra plugins`, and the sub-commands that plugins bring."""
