"""Pickles of others: opened only as far as they name what an allow-list has. No torch here.

Nothing in a pickle sets the state of an object of numpy, scipy or torch: a wrong state crashes the process.
Their names stand for functions and classes of this module, which check what they are given. The unpickler is
the one written in Python: that in C can be made to allocate any number of bytes.
"""

import contextlib
import functools
import io
import math
import pickle
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np

from physml.base.text import brief
from physml.data.files.limits import WrongFile

SPREAD = 4  # text that becomes bytes that become an array counts three times


class Refused(pickle.UnpicklingError):
    """A pickle names, or builds, something that no file of the data set does."""


def shown(value: Any) -> str:
    """A number, a text or a tuple of them; of all else the type: a list may hold another one 2^60 times."""
    items = value if isinstance(value, tuple) else (value,)
    return repr(value)[:40] if all(isinstance(v, int | str) for v in items) else f"a {type(value).__name__}"


class Budget:
    """The bytes that a pickle may unpack to: SPREAD for each of its own. A value used twice counts twice."""

    def __init__(self, content: bytes) -> None:
        self._left = SPREAD * len(content)

    def spend(self, n_bytes: int) -> None:
        self._left -= n_bytes
        if self._left < 0:
            raise Refused("it unpacks to many more bytes than it has")


Names = Mapping[tuple[str, str], Any]
Allowed = Callable[[Budget], Names]  # what the names in a pickle stand for


class Stateful:
    """An object that a pickle may give a state to."""

    def set_state(self, state: Any) -> None:
        raise NotImplementedError


# ---------------------------------------------------------------------------- arrays


SIMPLE = re.compile(r"[?bBhHiIlLqQefdgFD]|[biufc](1|2|4|8|16)|[SU]\d{0,6}|O8?")
LONGEST_TEXT = 1 << 20  # bytes of one string in an array
LONGEST_EMPTY = 1 << 16  # entries along one axis, where another one has none
NDARRAY = object()  # stands for the class, which must not be called


class Dtype(Stateful):
    """A dtype of numbers, of text or of objects, without fields, subarrays and metadata."""

    def __init__(self, name: str, *_: Any) -> None:
        if not isinstance(name, str) or not SIMPLE.fullmatch(name):
            raise Refused(f"it names a dtype that is none of plain numbers or text: {shown(name)}")
        self.real = np.dtype(name)

    def set_state(self, state: Any) -> None:
        plain = isinstance(state, tuple) and 8 <= len(state) <= 9 and state[2:5] == (None, None, None)
        if not plain or state[1] not in ("<", ">", "|", "=") or any(state[8:]):
            raise Refused("it has a dtype with fields, subarrays or metadata, expected plain numbers or text")
        size, kind = state[5], self.real.kind
        if kind in "SU":
            if not isinstance(size, int) or not 0 < size <= LONGEST_TEXT:
                raise Refused(f"it has strings of {shown(size)} bytes")
            self.real = np.dtype(f"{kind}{size // np.dtype(f'{kind}1').itemsize}")
        if state[1] in "<>":
            self.real = self.real.newbyteorder(state[1])


class Array(np.ndarray, Stateful):
    """An array that is empty until a pickle gives it its state."""

    budget: Budget

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise Refused("it has an array without shape, dtype and values")
        shape, dtype, is_fortran, values = state[-4:]
        self.__setstate__((1, *checked(self.budget, shape, dtype, values, is_fortran)))


def checked(budget: Budget, shape: Any, dtype: Any, values: Any, is_fortran: Any) -> tuple[Any, ...]:
    """Shape, dtype, order and values of an array, once they fit each other."""
    if not isinstance(dtype, Dtype) or not isinstance(shape, tuple):
        raise Refused("it has an array without shape and dtype")
    if dtype.real.itemsize == 0:  # of text whose length was never said: any shape would fit no bytes
        raise Refused("it has an array of strings without a length")
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise Refused(f"it has an array of shape {shown(shape)}")
    if isinstance(values, str):
        values = values.encode("latin1")
    expected = math.prod(shape) * (1 if dtype.real.hasobject else dtype.real.itemsize)
    if not isinstance(values, list if dtype.real.hasobject else bytes | bytearray) or len(values) != expected:
        raise Refused(f"the values of an array do not fit its shape {shown(shape)}")
    if max(shape, default=0) > max(len(values), LONGEST_EMPTY):
        raise Refused(f"it has an empty array of shape {shown(shape)}")
    budget.spend(len(values))
    return shape, dtype.real, bool(is_fortran), bytes(values) if isinstance(values, bytearray) else values


def arrays(budget: Budget) -> Names:
    """Arrays and their scalars. Objects inside an array are unpickled by the same list."""

    def reconstruct(kind: Any, shape: Any, code: Any) -> Array:
        if kind is not NDARRAY or shape != (0,):
            raise Refused("it has an array of a class of its own")
        array = np.empty(0, np.int8).view(Array)
        array.budget = budget
        return array

    def from_buffer(values: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
        array = reconstruct(NDARRAY, (0,), None)
        array.set_state((shape, dtype, order == "F", values))
        return array

    def scalar(dtype: Any, value: Any) -> Any:
        _, real, _, values = checked(budget, (), dtype, value, False)
        if real.hasobject:
            raise Refused("it has a scalar that is no number")
        return np.frombuffer(values, real)[0]

    names: dict[tuple[str, str], Any] = {("numpy", "ndarray"): NDARRAY, ("numpy", "dtype"): Dtype}
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = reconstruct
        names[f"{core}.multiarray", "scalar"] = scalar
        names[f"{core}.numeric", "_frombuffer"] = from_buffer
    return names


# ---------------------------------------------------------------------------- lists, sparse rows, tensors


def lists(budget: Budget) -> Names:
    """Lists of neighbours, by node."""
    listed = object()  # names what an absent node has; it is not called
    names: dict[tuple[str, str], Any] = dict.fromkeys([("__builtin__", "list"), ("builtins", "list")], listed)
    return {**names, ("collections", "defaultdict"): lambda factory=None: {}}


class SparseRows(Stateful):
    """The parts of a scipy matrix of compressed sparse rows."""

    parts: dict[str, Any] = {}  # noqa: RUF012  # replaced, never changed

    def set_state(self, state: Any) -> None:
        if not isinstance(state, dict) or not {"data", "indices", "indptr", "_shape"} <= set(state):
            raise Refused("it has a sparse matrix without its parts")
        self.parts = state

    def matrix(self) -> Any:
        """The parts as a csr_array. Errors: ValueError if they do not fit each other."""
        from scipy.sparse import csr_array

        parts = tuple(self.parts.get(name) for name in ("data", "indices", "indptr"))
        shape = self.parts.get("_shape")
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts) or not (
            isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)
        ):
            raise ValueError("its parts are no vectors")
        data, indices, indptr = (np.array(part) for part in parts)
        if data.dtype.kind not in "biuf" or indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
            raise ValueError("its parts are no numbers")
        if len(indptr) != shape[0] + 1:
            raise ValueError(f"{len(indptr)} ends for {shape[0]} rows")
        return csr_array((data, indices, indptr), shape=shape)


def sparse(budget: Budget) -> Names:
    """Arrays and scipy's compressed sparse rows, under the names of its old and new modules."""
    modules = ("scipy.sparse.csr", "scipy.sparse._csr")
    return {**arrays(budget), **{(module, "csr_matrix"): SparseRows for module in modules}}


def tensors(budget: Budget) -> Names:
    """Arrays, and tensors of torch, whose bytes torch itself reads as weights alone."""
    import torch
    from torch._utils import _rebuild_tensor

    def storage(content: Any) -> Any:
        if not isinstance(content, bytes) or content.startswith(b"PK"):
            raise Refused("it has a tensor whose values are packed")
        loaded = torch.load(io.BytesIO(content), weights_only=True)
        if not isinstance(loaded, torch.storage.TypedStorage):
            raise Refused("it has a tensor without values")
        budget.spend(loaded._untyped_storage.nbytes())
        return loaded

    def tensor(values: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Any:
        numbers = (offset, *size, *stride)
        if not isinstance(values, torch.storage.TypedStorage) or len(size) != len(stride):
            raise Refused("it has a tensor without values, sizes and strides")
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise Refused(f"it has a tensor of sizes {shown(size)} and strides {shown(stride)}")
        held = values._size()
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if (
            math.prod(size) > held
            or max(size, default=0) > max(held, 1)
            or (math.prod(size) and last >= held)
        ):
            raise Refused(f"it has a tensor of sizes {shown(size)} out of {held} values")
        return _rebuild_tensor(values, offset, tuple(size), tuple(stride))

    return {
        **arrays(budget),
        ("torch._utils", "_rebuild_tensor_v2"): tensor,
        ("torch.storage", "_load_from_bytes"): storage,
        ("collections", "OrderedDict"): lambda: {},  # the hooks of a tensor
    }


# ---------------------------------------------------------------------------- reading


# The names by which Python 3 writes bytes for Python 2.
EMPTY, ENCODED = (("__builtin__", "bytes"), ("builtins", "bytes")), ("_codecs", "encode")
_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)


@contextlib.contextmanager
def no_code() -> Iterator[None]:
    """Inside, other libraries open pickles by `unpickle`, and scipy looks at each index that it follows.

    A pickle that is opened in another way may name nothing. For one thread at a time.
    """
    from scipy.sparse import bsr_array, csr_array

    def load(file: Any, **_: Any) -> Any:
        value = unpickle(file.read(), _all, str(getattr(file, "name", "a pickle")))
        return value.matrix() if isinstance(value, SparseRows) else value

    def look(check: Callable[[Any], None]) -> Callable[..., None]:
        def check_format(self: Any, full_check: bool = True) -> None:
            check(self)  # which is full by default
            if (np.diff(self.indptr) < 0).any():
                raise ValueError("indptr must be a non-decreasing sequence")

        return check_format

    _guard()
    owners = {next(c for c in kind.__mro__ if "check_format" in vars(c)) for kind in (csr_array, bsr_array)}
    with contextlib.ExitStack() as stack:
        stack.callback(_GUARDED.reset, _GUARDED.set(True))
        for owner, name in [(pickle, "load"), *((cls, "check_format") for cls in owners)]:
            theirs = getattr(owner, name)
            stack.callback(setattr, owner, name, theirs)
            setattr(owner, name, load if owner is pickle else look(theirs))
        yield


def _all(budget: Budget) -> Names:
    return {**tensors(budget), **lists(budget), **sparse(budget)}


@functools.cache
def _guard() -> None:
    """Ask Python to announce each name in a pickle; such a hook stays until the process ends."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and _GUARDED.get():
            raise Refused(f"a pickle names {'.'.join(map(str, arguments))}, which no array does")

    sys.addaudithook(hook)


def unpickle(content: bytes, allowed: Allowed, where: str) -> Any:
    """The value in a pickle of Python 2 or 3; strings of Python 2 are read as Latin-1.

    A pickle can run any function that it names, so anything but the names of `allowed` is refused: arrays,
    lists, sparse or tensors.

    Errors: DataError for another name and for damage, which names `where`.
    """
    budget = Budget(content)

    def latin1(text: Any, encoding: Any) -> bytes:
        if encoding != "latin1" or not isinstance(text, str):
            raise Refused(f"it holds bytes in {shown(encoding)}, expected latin1")
        budget.spend(len(text))
        return text.encode("latin1")

    names = {**allowed(budget), **dict.fromkeys(EMPTY, lambda: b""), ENCODED: latin1}
    try:
        return _Unpickler(io.BytesIO(content), names).load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise WrongFile(f"{where} cannot be read: {brief(error) or 'it ends too early'}.") from error


_PICKLE: Any = pickle._Unpickler
# What an opcode hashes, of the stack since the last mark.
HASHED: dict[bytes, slice] = {
    pickle.DICT: slice(None, None, 2),
    pickle.SETITEMS: slice(None, None, 2),
    pickle.SETITEM: slice(-2, -1),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}


def _flat_keys(opcode: bytes, which: slice) -> Callable[[Any], None]:
    """Python hashes a tuple anew each time: sixty that hold the one before twice take 2^60 steps."""
    load: Callable[[Any], None] = _PICKLE.dispatch[opcode[0]]

    def checked_load(self: Any) -> None:
        for key in self.stack[which]:
            if isinstance(key, tuple) and any(isinstance(part, tuple) for part in key):
                raise Refused("it has a key of tuples inside a tuple")
        load(self)

    return checked_load


class _Unpickler(_PICKLE):
    def __init__(self, file: io.BytesIO, names: Names) -> None:
        super().__init__(file, encoding="latin1")
        self._names = names

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._names:
            raise Refused(f"it names {module}.{name}, which no file of this data set does")
        return self._names[module, name]

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Stateful):
            raise Refused("it gives a state to what has none")
        self.stack[-1].set_state(state)

    def load_bytearray8(self) -> None:  # pickle's own allocates as many bytes as are declared
        (n,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(min(n, sys.maxsize))))

    dispatch: ClassVar = {
        **_PICKLE.dispatch,
        **{opcode[0]: _flat_keys(opcode, which) for opcode, which in HASHED.items()},
        pickle.BUILD[0]: load_build,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }
