"""Tests of ops share modules of this folder; pytest imports test modules by path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
