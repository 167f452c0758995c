"""What is kept beside edges has a name of its own in each function that makes it."""

import re
from collections import Counter

from physml.base.paths import ROOT


def test_no_two_functions_keep_different_things_under_one_name() -> None:
    """Two layers on the same edges would get each other's sums."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "physml").rglob("*.py"))
    names = Counter(re.findall(r'cached\("([^"]+)"', code))
    assert len(names) > 5 and [name for name, n in names.items() if n > 1] == []
