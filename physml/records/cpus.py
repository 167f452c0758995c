"""The processor of this machine, as finely as speed needs it: one brand name covers several generations."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# (vendor, family) -> name of the models from ... to ...; the latest that fits counts.
GENERATIONS: dict[tuple[str, int], tuple[tuple[int, int, str], ...]] = {
    ("AuthenticAMD", 0x17): ((0x00, 0x2F, "Zen"), (0x30, 0xFF, "Zen 2")),
    ("AuthenticAMD", 0x19): ((0x00, 0x5F, "Zen 3"), (0x10, 0x1F, "Zen 4"), (0x60, 0xAF, "Zen 4")),
    ("AuthenticAMD", 0x1A): ((0x00, 0x4F, "Zen 5"), (0x60, 0x7F, "Zen 5")),
    ("GenuineIntel", 6): (
        (0x3C, 0x3C, "Haswell"),
        (0x3F, 0x3F, "Haswell"),
        (0x4F, 0x4F, "Broadwell"),
        (0x56, 0x56, "Broadwell"),
        (0x55, 0x55, "Skylake-SP"),
        (0x6A, 0x6C, "Ice Lake"),
        (0x8F, 0x8F, "Sapphire Rapids"),
        (0xCF, 0xCF, "Emerald Rapids"),
        (0xAD, 0xAE, "Granite Rapids"),
    ),
}
# Same family and model, told apart by the stepping: from which one on.
STEPPINGS = {"Skylake-SP": ((5, "Cascade Lake"), (10, "Cooper Lake"))}
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # the widest first


def facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Family, model, stepping, generation and width of vectors, as far as the system tells; else nothing."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = dict(re.findall(r"^([^\t:]+)\s*: (.*)$", text.partition("\n\n")[0], re.MULTILINE))
    keys = {"family": "cpu family", "model": "model", "stepping": "stepping"}
    ids: dict[str, Any] = {ours: int(first[key]) for ours, key in keys.items() if key in first}
    if len(ids) < len(keys):
        return {}
    flags = first.get("flags", "").split()
    vectors = next((name for flag, name in VECTORS.items() if flag in flags), None)
    return ids | {"microarchitecture": generation(first.get("vendor_id", ""), ids), "vectors": vectors}


def generation(vendor: str, ids: Mapping[str, int]) -> str:
    """The name of a generation of cores; of an unknown one its numbers.

    Example:
        >>> generation("AuthenticAMD", {"family": 26, "model": 2, "stepping": 1})
        'Zen 5'
        >>> generation("GenuineIntel", {"family": 6, "model": 85, "stepping": 7})
        'Cascade Lake'
        >>> generation("GenuineIntel", {"family": 19, "model": 1, "stepping": 0})
        'family 19 model 1'
    """
    name = f"family {ids['family']} model {ids['model']}"
    for low, high, known in GENERATIONS.get((vendor, ids["family"]), ()):
        if low <= ids["model"] <= high:
            name = known
    for since, other in STEPPINGS.get(name, ()):
        if ids["stepping"] >= since:
            name = other
    return name
