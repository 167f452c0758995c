"""How setuptools packs a wheel: conf/, tasks/ and the tested versions go inside the package.

A wheel so leaves nothing but `physml` in site-packages. An editable install reads them where they lie.
"""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

INSIDE = {"conf": "_conf", "tasks": "_tasks", "constraints.txt": "_constraints.txt"}


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

    def get_source_files(self) -> list[str]:
        """Files of a source distribution, which must hold this file too."""
        return [*super().get_source_files(), "scripts/build_wheel.py", *(str(s) for s, _ in self._pairs())]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        package = Path(self.build_lib) / "physml"
        ours = [] if self.editable_mode else [str(package / target) for _, target in self._pairs()]
        return [*super().get_outputs(include_bytecode), *ours]

    @staticmethod
    def _pairs() -> list[tuple[Path, Path]]:
        """(file of the checkout, path inside the package)."""
        pairs = []
        for name, inside in INSIDE.items():
            root = Path(name)
            files = [root] if root.is_file() else [p for p in root.rglob("*") if p.suffix in (".yaml", ".py")]
            pairs += [(path, Path(inside, path.relative_to(root))) for path in sorted(files)]
        return pairs
