"""`python -m physml` is `physml`."""

import os
import sys

# `python -m` puts the working folder first on the import path, where a file such as torch.py would be taken
# for the package. It stays only where physml itself comes from there.
if not sys.flags.safe_path and not __file__.startswith(f"{sys.path[0]}{os.sep}physml{os.sep}"):
    del sys.path[0]

from physml.cli.main import main

sys.exit(main())
