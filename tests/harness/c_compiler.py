"""What tests of code in C share."""

import os
import shutil

import pytest

from physml.ops.native.library import COMPILERS


def needs_compiler() -> None:
    """Skip where there is no C compiler. Code that does not compile is no reason to skip."""
    if not any(map(shutil.which, [os.environ["CC"]] if os.environ.get("CC") else COMPILERS)):
        pytest.skip("there is no C compiler here")
