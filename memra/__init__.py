"""memra: one endpoint, several models, one worker that interleaves their steps.

Importing this package is cheap: it never imports torch. `memra.cli` starts a server, `memra.app` shows how it is put
together.
"""

__version__ = "0.1.0"
