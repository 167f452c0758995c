"""Flags for vectors narrower than the widest of this machine; quickly compiled, the width is what matters."""

import platform

OTHERS = ["-O1 -mno-avx512f", "-O1 -mno-avx"] if platform.machine() in ("x86_64", "AMD64") else []
WIDTHS = ["", *OTHERS]
