"""The results file of a class of machines, `results/bench/<class>.json`: read, updated, written."""

import json
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from physml.base.errors import RecordError
from physml.base.paths import display_path, results_root
from physml.records import provenance
from physml.records.provenance import code, cpu_model, now

SCHEMA = 1


def machine(device: str) -> dict[str, Any]:
    """The hardware that defines the class; no name of a host."""
    facts: dict[str, Any] = {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.system()}
    facts |= provenance.cpu_facts()
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def machine_name(facts: Mapping[str, Any]) -> str:
    """The machine in a title. Of results from before microarchitectures were recorded, the model alone."""
    if facts.get("gpu"):
        return str(facts["gpu"])
    finer = [str(facts[key]) for key in ("microarchitecture", "vectors") if facts.get(key)]
    model = f"{facts['cpu']} ({', '.join(finer)})" if finer else facts["cpu"]
    return f"{model}, {facts['cores']} cores"


def machine_class(facts: Mapping[str, Any]) -> str:
    """A file name for machines that measure alike.

    Example:
        >>> machine_class({"cpu": "AMD EPYC", "microarchitecture": "Zen 5", "vectors": "AVX-512", "cores": 2})
        'cpu-amd-epyc-zen-5-avx-512-2-cores'
    """
    name = f"{'gpu' if facts.get('gpu') else 'cpu'} {machine_name(facts)}"
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", name.lower())).strip("-")


def head(device: str) -> dict[str, Any]:
    """The keys with which a result on a device begins."""
    facts = machine(device)
    return {"schema": SCHEMA, "class": machine_class(facts), "machine": facts}


def moment(device: str, threads: int) -> dict[str, Any]:
    """When and with what something is measured; whoever measures adds `load_after`."""
    return {
        "date": now(),
        "code": code(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        **{name: _version(name) for name in ("jax", "onnxruntime")},
        "cuda": torch.version.cuda if device.startswith("cuda") else None,
        "tf32": torch.backends.cuda.matmul.allow_tf32 if device.startswith("cuda") else False,
        "threads": threads,
        "load_before": load(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load() -> float | None:
    """Processes that wanted a core in the last minute, ours included."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def path_of(name: str) -> Path:
    return results_root() / "bench" / f"{name}.json"


def read(path: Path) -> dict[str, Any]:
    """The stored result, or an empty one. RecordError if it is damaged or of another schema."""
    if not path.exists():
        return {"schema": SCHEMA, "workloads": {}}
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(
            f"{display_path(path)} is no JSON: {error}. Restore or delete it, and run again."
        ) from error
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise RecordError(
            f"{display_path(path)}: a result of schema {SCHEMA} was expected. Delete it, and run again."
        )
    return stored


def merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`new` replaces the parts it has, passes of a workload each on its own; all others stay."""
    workloads = dict(old.get("workloads", {}))
    for name, passes in new.get("workloads", {}).items():
        workloads[name] = {**workloads.get(name, {}), **passes}
    return {**old, **new, "workloads": workloads}
