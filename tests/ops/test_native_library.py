"""C sources become libraries: what is kept, what is made anew, and what is said where it can't be done."""

import ctypes
import hashlib
import multiprocessing
import os
import shutil
import stat
import textwrap
from pathlib import Path

import pytest
import torch

from physml.base.errors import InputError
from physml.ops.native import library
from physml.ops.native.library import Unavailable, load

SOURCE = r"""
#include "vec.h"
int vector_length(void) { return VL; }
int answer(void) { return 42; }
void tanhs(real *x, int n) { for (int i = 0; i < n; i += VL) store(x + i, vec_tanh(load(x + i))); }
void sigmoids(real *x, int n) { for (int i = 0; i < n; i += VL) store(x + i, vec_sigmoid(load(x + i))); }
"""
FLAGS = {"widest": "", "AVX2": "-march=x86-64-v3", "SSE2": "-march=x86-64"}

pytestmark = pytest.mark.skipif(not any(map(shutil.which, library.COMPILERS)), reason="needs a C compiler")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(library, "_made", {})  # as in a new process
    path = tmp_path / "source.c"
    path.write_text(SOURCE)
    return path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_made", {})


def compiler_script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "compiler"
    path.write_text("#!/bin/sh\n" + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def counting(tmp_path: Path) -> tuple[str, Path]:
    """A compiler that leaves a line for each compilation; and where."""
    log = tmp_path / "compilations"
    log.write_text("")
    real = next(filter(None, map(shutil.which, library.COMPILERS)))
    body = f"""
        case "$*" in *--version*) ;; *) echo "$$" >> {log};; esac
        exec {real} "$@"
    """
    return compiler_script(tmp_path, body), log


def made(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "native").glob("*.so"))


def call(function: str, x: torch.Tensor, source: Path) -> torch.Tensor:
    x = x.clone()
    getattr(load(source, x.dtype), function)(ctypes.c_void_p(x.data_ptr()), x.numel())
    return x


def test_it_compiles_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, log = counting(tmp_path)
    monkeypatch.setenv("CC", compiler)
    assert load(source, torch.float32).answer() == 42
    assert load(source, torch.float32) is load(source, torch.float32)
    forget(monkeypatch)
    assert load(source, torch.float32).answer() == 42
    assert len(log.read_text().splitlines()) == 1
    (path,) = made(tmp_path)
    assert [p.name for p in path.parent.iterdir() if p.is_dir()] == []  # nothing half-made is left


def altered(change: str, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if change == "source":
        source.write_text(SOURCE.replace("42", "43"))
    elif change == "header":
        source.with_name("extra.h").write_text("/* new */")
    elif change == "flags":
        monkeypatch.setenv("PHYSML_NATIVE_FLAGS", "-DOTHER")
    elif change == "compiler":
        monkeypatch.setenv("CC", counting(source.parent)[0])
    elif change == "CPU":
        monkeypatch.setattr(library, "_cpu", lambda: "another")


@pytest.mark.parametrize("change", ["source", "header", "flags", "dtype", "compiler"])
def test_a_change_makes_another_library(change: str, source: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "extra.h").write_text("")
    load(source, torch.float32)
    forget(monkeypatch)
    altered(change, source, monkeypatch)
    dtype = torch.float64 if change == "dtype" else torch.float32
    assert load(source, dtype).answer() == (43 if change == "source" else 42)
    assert len(made(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["truncated", "foreign", "no digest", "gone"])
def test_a_damaged_library_is_made_anew(damage: str, source: Path, tmp_path: Path, monkeypatch) -> None:
    compiler, log = counting(tmp_path)
    monkeypatch.setenv("CC", compiler)
    load(source, torch.float32)
    forget(monkeypatch)
    (path,) = made(tmp_path)
    whole = path.read_bytes()
    if damage == "no digest":
        path.with_suffix(".sha256").unlink()
    else:
        path.unlink()  # not written over: a mapped file that shrinks kills whoever looks at it
    if damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "foreign":
        path.write_bytes(b"\x7fELF" + bytes(len(whole) - 4))
    assert load(source, torch.float32).answer() == 42
    assert len(log.read_text().splitlines()) == 2
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.with_suffix(".sha256").read_text()


def _answer(source: Path) -> int:
    return int(load(source, torch.float32).answer())


def test_processes_at_once_compile_once(source: Path, tmp_path: Path, monkeypatch) -> None:
    compiler, log = counting(tmp_path)
    monkeypatch.setenv("CC", compiler)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_answer, [source] * 2, chunksize=1) == [42] * 2
    assert len(log.read_text().splitlines()) == 1


def refused(source: Path, dtype: torch.dtype = torch.float32) -> str:
    with pytest.raises(Unavailable) as caught:
        load(source, dtype)
    (reason,) = caught.value.args
    assert "\n" not in reason
    with pytest.raises(Unavailable, match=r".") as again:  # remembered, and raised as a fresh exception
        load(source, dtype)
    assert again.value.args == caught.value.args and again.value is not caught.value
    return str(reason)


def test_no_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    assert refused(source).startswith("no C compiler: CC=/nonexistent is not there, and ")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "/nonexistent")
    reason = refused(source)
    assert reason.startswith("no C compiler: cc, gcc, clang are not on the PATH, and ")
    assert reason.endswith("without, recurrences take 5 to 30 times as long")


def test_without_a_compiler_the_cache_has_what_another_machine_made(source, tmp_path, monkeypatch) -> None:
    """Of two compilers, and read from a folder that can't be written, as on many compute nodes."""
    load(source, torch.float32)
    forget(monkeypatch)
    monkeypatch.setenv("CC", counting(tmp_path)[0])
    load(source, torch.float32)
    libraries = made(tmp_path)
    assert len(libraries) == 2
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "/nonexistent")
    libraries[0].parent.chmod(0o555)
    for damaged in (None, *libraries[:1]):
        forget(monkeypatch)
        if damaged:
            damaged.with_suffix(".sha256").write_text("0" * 64)
        assert load(source, torch.float32).answer() == 42
    libraries[0].parent.chmod(0o755)
    libraries[1].with_suffix(".sha256").unlink()
    forget(monkeypatch)
    assert "no library made elsewhere" in refused(source)


@pytest.mark.parametrize("change", ["source", "header", "flags", "dtype", "CPU"])
def test_without_a_compiler_a_library_of_other_things_is_not_taken(change: str, source, monkeypatch) -> None:
    load(source, torch.float32)
    forget(monkeypatch)
    monkeypatch.setenv("PATH", "/nonexistent")
    altered(change, source, monkeypatch)
    dtype = torch.float64 if change == "dtype" else torch.float32
    assert "no library made elsewhere" in refused(source, dtype)


def test_without_a_compiler_no_code_comes_from_a_folder_of_others(source, tmp_path, monkeypatch) -> None:
    load(source, torch.float32)
    forget(monkeypatch)
    monkeypatch.setenv("PATH", "/nonexistent")
    (tmp_path / "cache" / "native").chmod(0o777)
    assert "others may write it (mode 777)" in refused(source)


def test_a_compiler_that_fails(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        case "$*" in *--version*) echo 1.0; exit 0;; esac
        echo "In file included from here:" >&2
        echo "x.c:1: fatal error: disk on fire" >&2
        exit 3
    """
    monkeypatch.setenv("CC", compiler_script(tmp_path, body))
    assert refused(source).endswith("failed (3): x.c:1: fatal error: disk on fire")
    assert made(tmp_path) == []


@pytest.mark.parametrize("end", ["kill -9 $$", "echo 'Killed signal terminated program cc1' >&2; exit 1"])
def test_a_compiler_that_was_killed_is_tried_again(end: str, source: Path, tmp_path, monkeypatch) -> None:
    """Or a run that was killed and resumed would end on another backend, with other last bits."""
    body = f"""
        case "$*" in *--version*) echo 1.0; exit 0;; esac
        [ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; {end}; }}
        exec cc "$@"
    """
    monkeypatch.setenv("CC", compiler_script(tmp_path, body))
    assert load(source, torch.float32) is not None


def test_what_cannot_be_compiled_run_or_written(source: Path, tmp_path: Path, monkeypatch) -> None:
    source.write_text("int answer(void) { return nothing; }")
    assert "nothing" in refused(source)
    path = tmp_path / "compiler"
    path.write_bytes(b"\x7fELF, but not really")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    assert "can't be run" in refused(source)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PHYSML_CACHE", str(path))
    assert "set PHYSML_CACHE to another folder" in refused(source)
    assert refused(source, torch.bfloat16) == "native code computes in float32 or float64; got torch.bfloat16"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o555)
    assert "Permission denied" in refused(source)
    folder.chmod(0o755)


@pytest.mark.parametrize("folder", ["cache", "cache/native"])
def test_a_folder_that_others_may_write_gives_no_code(folder: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder).chmod(0o777)
    assert "others may write it (mode 777)" in refused(source)


@pytest.mark.skipif(os.getuid() != 0, reason="root alone may give a file away")
def test_a_library_that_another_user_has_left_is_compiled_anew(source: Path, tmp_path, monkeypatch) -> None:
    load(source, torch.float32)
    (library_file,) = (tmp_path / "cache" / "native").glob("*.so")
    os.chown(library_file, 65534, -1)
    forget(monkeypatch)
    assert load(source, torch.float32).answer() == 42
    assert library_file.stat().st_uid == 0


def test_what_cannot_be_loaded(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        case "$*" in *--version*) echo 1.0; exit 0;; esac
        while [ "$1" != -o ]; do shift; done
        echo "no library" > "$2"
    """
    monkeypatch.setenv("CC", compiler_script(tmp_path, body))
    assert "can't be loaded" in refused(source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("flags", FLAGS)
def test_vectors_of_every_width(flags: str, dtype: torch.dtype, source: Path, monkeypatch) -> None:
    """tanh and sigmoid everywhere, by whatever instructions there are."""
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", FLAGS[flags])
    bits = load(source, dtype).vector_length() * dtype.itemsize * 8
    if os.uname().machine == "x86_64" and flags != "widest":
        assert bits == {"AVX2": 256, "SSE2": 128}[flags]
    small, large = torch.logspace(-30, 0, 5000), torch.linspace(-20, 20, 5000)
    x = torch.cat([small, -small, large, torch.tensor([0.0, torch.inf, -torch.inf, 1e30])])
    x = torch.cat([x, x.new_zeros(-x.numel() % 16)]).to(dtype)
    bound = 3.5e-7 if dtype == torch.float32 else 1e-15
    exact = x.double()
    for name, function in (("tanhs", torch.tanh), ("sigmoids", torch.sigmoid)):
        got = call(name, x, source)
        assert got.abs().max() <= 1
        torch.testing.assert_close(got.double(), function(exact), rtol=bound, atol=1e-37)


def test_nan_stays_nan(source: Path) -> None:
    x = torch.zeros(32)
    x[5] = torch.nan
    for name in ("tanhs", "sigmoids"):
        assert call(name, x, source).isnan().nonzero().tolist() == [[5]]


@pytest.mark.parametrize("name", ["PHYSML_NATIVE_FLAGS", "CC"])
def test_words_with_an_open_quote_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "'")
    with pytest.raises(InputError, match=rf"{name} must be words as a shell reads them; got .*No closing"):
        library.load(Path("none.c"), torch.float32)
