"""Helpers of tests/harness are imported by name, in child processes too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "harness"))
