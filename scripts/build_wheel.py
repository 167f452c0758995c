"""How setuptools packs a wheel: conf/, tasks/, versions, recorded runs and weights go inside the package.

A wheel so leaves nothing but `physml` in site-packages. An editable install reads them where they lie.
"""

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

INSIDE = {
    "conf": "_conf",
    "tasks": "_tasks",
    "constraints.txt": "_constraints.txt",
    "results/weights": "_weights",
}
PACKED = (".yaml", ".py", ".safetensors", ".json")
RUNS = Path("results/runs")  # what is packed there is shipped, without runs that belong to no table
COSTS = Path("results/costs.jsonl")
SEARCHES = Path("results/search")
SHIPPED = "_records.jsonl.xz"
# Keys of a run that no table reads, or that name files which a wheel does not have.
LEFT_OUT = {
    *("curve", "arrays", "profile", "weights", "wandb"),
    *("calibration", "started", "check"),
}


class EggInfo(egg_info):
    """egg_info, with the addresses of the project."""

    def run(self) -> None:
        self.distribution.metadata.project_urls |= addresses(Path("pyproject.toml"))
        super().run()


def addresses(pyproject: Path) -> dict[str, str]:
    """Homepage, Source and Issues, from `address` of [tool.physml]; none while that is empty."""
    address = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["physml"]["address"].rstrip("/")
    if not address:
        return {}
    return {"Homepage": address, "Source": address, "Issues": f"{address}/issues"}


class BuildPy(build_py):
    """build_py, and a copy of the folders above."""

    def run(self) -> None:
        package = Path(self.build_lib) / "physml"
        if not self.editable_mode:
            shutil.rmtree(package, ignore_errors=True)  # files of an earlier build that are gone by now
        super().run()
        if self.editable_mode:
            return
        for source, target in self._pairs():
            (package / target).parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(source), str(package / target))
        self._ship(package / SHIPPED)

    def _ship(self, path: Path) -> None:
        """Write the runs of tables to one file, compressed to less than a twentieth."""
        try:
            import lzma
        except ImportError:
            self.warn("this Python was built without lzma: the wheel has no recorded runs")
            return
        text = "\n".join(_shipped_lines())
        if text:
            path.write_bytes(lzma.compress(text.encode()))

    def get_source_files(self) -> list[str]:
        """Files of a source distribution, which must hold this file too."""
        return [
            *super().get_source_files(),
            "scripts/build_wheel.py",
            *(str(s) for s, _ in self._pairs()),
            *map(str, [*_packs(), *_searches(), *([COSTS] if COSTS.exists() else [])]),
        ]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        package = Path(self.build_lib) / "physml"
        targets = [target for _, target in self._pairs()] + ([Path(SHIPPED)] if _packs() else [])
        ours = [] if self.editable_mode else [str(package / target) for target in targets]
        return [*super().get_outputs(include_bytecode), *ours]

    @staticmethod
    def _pairs() -> list[tuple[Path, Path]]:
        """(file of the checkout, path inside the package)."""
        pairs = []
        for name, inside in INSIDE.items():
            root = Path(name)
            files = [root] if root.is_file() else [p for p in root.rglob("*") if p.suffix in PACKED]
            pairs += [(path, Path(inside, path.relative_to(root))) for path in sorted(files)]
        return pairs


def _packs() -> list[Path]:
    return sorted(path for path in RUNS.rglob("runs.jsonl") if RUNS / "adhoc" not in path.parents)


def _searches() -> list[Path]:
    """Results of searches, without those that go on."""
    return [path for path in sorted(SEARCHES.glob("*.json")) if not path.stem.endswith(".unfinished")]


def _shipped_lines() -> Iterator[str]:
    """Each place below results/, then its lines, as physml/records/shipped.py reads them."""
    if COSTS.exists():
        yield COSTS.name
        yield from COSTS.read_text(encoding="utf-8").splitlines()
    for path in _searches():
        yield path.relative_to(SEARCHES.parent).as_posix()
        yield json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False)
    for path in _packs():
        yield path.parent.relative_to(RUNS.parent).as_posix()
        for line in path.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            yield json.dumps(_shortened(content), ensure_ascii=False) if "setting" in content else line


def _shortened(run: dict[str, Any]) -> dict[str, Any]:
    """A run without the scores of its last weights and the keys above."""
    kept = {key: value for key, value in run.items() if key not in LEFT_OUT}
    kept["metrics"] = {"best": run["metrics"]["best"], "last": None}
    return kept
