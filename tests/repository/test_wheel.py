"""What is in the wheel; its use in another folder is tested by `make integration`."""

import zipfile
from pathlib import Path

import pytest
import wheels

from physml.base.paths import ROOT


@pytest.mark.slow
def test_it_holds_one_package_with_configs_tasks_and_sources_of_c(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels.build(tmp_path)) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        size = archive.getinfo("physml/_records.jsonl.xz").file_size
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"physml"}
    inside = {name.removeprefix("physml/") for name in names}
    for name in ("conf", "tasks"):
        files = [p for p in (ROOT / name).rglob("*") if p.suffix in (".yaml", ".py")]
        assert len(files) > 20
        assert {f"_{p.relative_to(ROOT).as_posix()}" for p in files} <= inside
    for suffix in ("*.c", "*.h", "*.npy", "SHA256SUMS", "py.typed", "*.pyi"):
        files = list((ROOT / "physml").rglob(suffix))
        assert files
        assert {p.relative_to(ROOT / "physml").as_posix() for p in files} <= inside
    assert "gone.py" not in inside
    assert "_weights/lem/adding-5000-lem-short.safetensors" in inside
    assert 300_000 < size < 1_200_000
    assert not any("results/" in name or name.endswith(".pyc") for name in inside)
    assert "Provides-Extra: graph" in metadata and "Classifier: Typing :: Typed" in metadata
