"""`python -m memra` is the command `memra`."""

import sys

from memra.cli import main

sys.exit(main())
