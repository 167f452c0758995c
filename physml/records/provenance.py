"""Provenance of a number: code, packages, machine."""

import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from physml import __version__
from physml.base.paths import INSTALLED, ROOT

PACKAGES = ("torch", "numpy", "scipy", "hydra-core", "torch_geometric")
ANSWER_S, END_S = 20.0, 5.0  # seconds that git may take to answer, and then to end
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
PARTS = ("physml", "tasks", "conf", "pyproject.toml", ":(exclude)conf/study/*.searched.yaml")  # of the code
CPUINFO = Path("/proc/cpuinfo")
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # the widest first


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=1)
def code() -> dict[str, Any]:
    """Commit of the checkout; `dirty` looks at code and config alone, not at results. None: not known.

    Nor at what searches have written, `*.searched.yaml`: a record has its settings itself.
    An installed wheel has a version and no commit, even where it lies inside some other repository.
    """
    if INSTALLED:
        return {"commit": None, "dirty": None, "version": __version__}
    commit = asked(ROOT, "rev-parse", "HEAD")
    changed = asked(ROOT, "status", "--porcelain", "--", *PARTS)
    dirty = None if commit is None or changed is None else bool(changed)
    return {"commit": commit, "dirty": dirty, "version": __version__}


def packages() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def cpu_model() -> str:
    return _first_core(CPUINFO).get("model name", "").strip() or platform.processor() or "unknown"


def _first_core(cpuinfo: Path) -> dict[str, str]:
    """Facts of the first core, by the names that Linux has for them; empty elsewhere."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+)\s*: (.*)$", text.partition("\n\n")[0], re.MULTILINE))


def asked(folder: Path, *arguments: str) -> str | None:
    """The answer of git about a clone; None where there is none, as without git, or in a folder of others.

    git takes no lock that it can do without, and one that is too slow is asked to end before it is killed:
    killed at once, it would leave `.git/index.lock`, with which no other git works.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None
    with process:
        try:
            answer, _ = process.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return None
    return answer.strip() if process.returncode == 0 else None


def cpu_facts(cpuinfo: Path = CPUINFO) -> dict[str, Any]:
    """Family, model, stepping, generation and width of vectors, as far as the system tells; else nothing."""
    first = _first_core(cpuinfo)
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
