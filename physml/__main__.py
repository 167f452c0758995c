"""`python -m physml` is `physml`."""

import sys

from physml.cli import main

sys.exit(main())
