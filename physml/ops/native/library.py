"""C sources as loaded libraries: compiled at first use, kept in the cache, loaded with ctypes.

A library's file name holds two hashes of all that it depends on: of source, headers, flags and the CPU that
`-march=native` looks at; and of the compiler. Where no compiler is, as on many compute nodes, one with the
first hash is loaded, whatever compiler made it. Beside it stands its SHA-256, and nothing is loaded that
differs.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock

import torch

from physml.base import opened
from physml.base.errors import InputError
from physml.base.files import locked
from physml.base.paths import cache_root, display_path
from physml.ops import backend

HEADERS = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared", "-pthread")
REAL = {torch.float32: "float", torch.float64: "double"}
PATIENCE_S = 300  # for one compilation

Key = tuple[Path | str, torch.dtype, tuple[str, ...], str | None, str, str | None]

_made: dict[Key, "ctypes.CDLL | Unavailable"] = {}
_lock = Lock()


class Unavailable(Exception):
    """There is no library here; the message is the reason, in one line."""


def load(source: Path, dtype: torch.dtype, bf16: bool = False, **macros: int) -> ctypes.CDLL:
    """The library made from the file `source`, its `real` being `dtype`.

    `bf16`: its products with weights round their operands to bfloat16 (bf16.h).
    `macros`: numbers that the compiler is to know, such as TWICE_P=4; each choice is a library of its own.

    Headers lie in this folder or beside the source. What was found once, a library or a reason, holds for the
    process.
    Environment: CC, the compiler; PHYSML_NATIVE_FLAGS, flags that are added; PHYSML_CACHE.
    Errors: Unavailable.
    """
    if bf16 and dtype is not torch.float32:
        raise Unavailable(f"products of bfloat16 are summed in float32; got {dtype}")
    defined = [f"-D{macro}={value}" for macro, value in macros.items()]
    return _found(source, source.stem, dtype, (*defined, *["-DBF16_PRODUCTS"] * bf16))


def of_this_run(source: Path, dtype: torch.dtype) -> ctypes.CDLL:
    """Same as `load`, its products with weights in the precision of this run: float32, or bfloat16."""
    loaded = load(source, dtype, backend.bf16_products())
    if backend.bf16_products():
        backend.note_bf16_products(bool(loaded.bf16_instructions()))
    return loaded


def load_text(name: str, text: str, dtype: torch.dtype) -> ctypes.CDLL:
    """The library made from C that was generated; `name` begins the name of its file. Else as `load`."""
    return _found(text, name, dtype)


def _found(source: Path | str, name: str, dtype: torch.dtype, defined: tuple[str, ...] = ()) -> ctypes.CDLL:
    if dtype not in REAL:
        raise Unavailable(f"native code computes in float32 or float64; got {dtype}")
    more_flags = os.environ.get("PHYSML_NATIVE_FLAGS", "")
    key = (source, dtype, defined, os.environ.get("CC"), more_flags, os.environ.get("PHYSML_CACHE"))
    if (loaded := _made.get(key)) is None:
        with _lock:
            if (loaded := _made.get(key)) is None:
                try:
                    loaded = _loaded(source, name, dtype, defined, more_flags)
                except Unavailable as reason:
                    loaded = reason
                _made[key] = loaded
    if isinstance(loaded, Unavailable):
        raise Unavailable(*loaded.args)
    return loaded


def _loaded(
    source: Path | str, name: str, dtype: torch.dtype, defined: tuple[str, ...], more_flags: str
) -> ctypes.CDLL:
    flags = [*FLAGS, f"-DREAL={REAL[dtype]}", *defined, *_words("PHYSML_NATIVE_FLAGS", more_flags)]
    try:
        folder = cache_root() / "native"
    except InputError as error:
        raise Unavailable(str(error)) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if why := opened.of_others(folder):
            raise Unavailable(f"the folder for compiled code, {folder}, is not used: {why}")
        path = _made_or_cached(folder / f"{name}-{REAL[dtype]}", source, flags)
    except OSError as error:
        raise Unavailable(
            f"the folder for compiled code, {display_path(folder)}, can't be used ({error.strerror}); "
            "free space, or set PHYSML_CACHE to another folder"
        ) from error
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(
            f"compiled code can't be loaded ({error}); if files in {display_path(folder)} may not be "
            "executed, "
            "set PHYSML_CACHE to another folder"
        ) from error


def _made_or_cached(begin: Path, source: Path | str, flags: list[str]) -> Path:
    """The library of this compiler; without a compiler, the newest that one made of the same.

    begin: of the file's path, before the hashes.
    """
    try:
        compiler = _compiler(os.environ.get("CC"))
        made_by = _hash(shlex.join(compiler), _version(tuple(compiler)))
    except Unavailable as reason:
        candidates = begin.parent.glob(f"{begin.name}-{_hash(*_parts(source, flags))}-*.so")
        for path in sorted(candidates, key=lambda file: file.stat().st_mtime, reverse=True):
            if _sound(path):
                return path
        raise Unavailable(
            f"{reason}, and {display_path(begin.parent)} has no library made elsewhere for the same source "
            "and processor; without, recurrences take 5 to 30 times as long"
        ) from reason
    path = begin.with_name(f"{begin.name}-{_hash(*_parts(source, flags))}-{made_by}.so")
    if not _sound(path):
        with locked(path.with_suffix(".lock")):
            if not _sound(path):  # another process may have made it meanwhile
                _compile([*compiler, *flags, f"-I{HEADERS}"], source, path)
    return path


def _words(variable: str, text: str) -> list[str]:
    """A variable's value, split as a shell does it."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{variable} must be words as a shell reads them; got {text!r}: {error}.") from error


def _compiler(cc: str | None) -> list[str]:
    """The command of CC, or the first compiler on the PATH."""
    if cc:
        command = _words("CC", cc)
        if not command or shutil.which(command[0]) is None:
            raise Unavailable(f"no C compiler: CC={cc} is not there")
        return command
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise Unavailable("no C compiler: " + ", ".join(COMPILERS) + " are not on the PATH")


def _parts(source: Path | str, flags: list[str]) -> list[str | bytes]:
    """All that a library depends on, but for the compiler."""
    headers = [path.read_bytes() for path in sorted(HEADERS.glob("*.h"))]
    if isinstance(source, str):
        return [" ".join(flags), _cpu(), *headers, source]
    own = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    return [" ".join(flags), _cpu(), *headers, *own]


def _hash(*parts: str | bytes) -> str:
    made_of = [part.encode() if isinstance(part, str) else part for part in parts]
    lengths = " ".join(str(len(part)) for part in made_of).encode()  # where one part ends and the next begins
    return hashlib.sha256(lengths + b"".join(made_of)).hexdigest()[:20]


@cache
def _version(compiler: tuple[str, ...]) -> str:
    return _output([*compiler, "--version"])


@cache
def _cpu() -> str:
    """The lines about the CPU that `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model name", "cpu family", "model", "stepping", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in telling}))


def _output(command: list[str], *, again: bool = True) -> str:
    """The output of a compiler; Unavailable with the first line of its message if it fails.

    again: whether one that was killed is tried once more: without it, the run would have other last bits.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C"},  # one language to look for the word "error" in
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the C compiler {command[0]} can't be run: {error}") from error
    if again and (done.returncode < 0 or "signal terminated" in done.stderr):
        return _output(command, again=False)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        message = next(
            (line for line in lines if "error" in line.lower()), lines[0] if lines else "no message"
        )
        raise Unavailable(f"the C compiler {command[0]} failed ({done.returncode}): {message}")
    return done.stdout


def _digest_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _sound(path: Path) -> bool:
    """True if the file exists, is ours and complete: its digest is the one stored beside it."""
    try:
        if not opened.is_ours(path.stat()):
            return False
        digest = opened.read_bytes(_digest_path(path)).decode("ascii", errors="replace").strip()
        return hashlib.sha256(opened.read_bytes(path)).hexdigest() == digest
    except FileNotFoundError:
        return False


def _compile(command: list[str], source: Path | str, path: Path) -> None:
    """Under another name first: a process that is killed here leaves nothing that looks finished."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        library, digest = Path(folder) / "made.so", Path(folder) / "made.sha256"
        if isinstance(source, str):
            text, source = source, Path(folder) / "generated.c"
            source.write_text(text, encoding="ascii")
        _output([*command, str(source), "-o", str(library), "-lm"])
        digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest(), encoding="ascii")
        library.replace(path)
        digest.replace(_digest_path(path))
