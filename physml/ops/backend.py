"""Which backend computes a recurrence: by what is asked for, device, dtype and size; and which ones ran.

- `reference`: the plain loop as it is printed, differentiable as often as wanted;
- `torch`: a backward written by hand in torch, on any device;
- `native`: C on a CPU, compiled at first use;
- `triton`: kernels for a GPU.

A layer's keyword `backend` is a demand: what can't be done is an InputError. The run-wide choice, the config
key `runtime.backend`, is a wish: what can't be done is done by another backend, and said once. `auto` takes
the fastest that can. All compute the same map, so identities know nothing of this.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import Generic, TypeVar

from torch import Tensor

from physml.check import one_of
from physml.errors import InputError
from physml.ops.sequence import steady

log = logging.getLogger("physml")

R = TypeVar("R")  # what a recurrence returns: most the outputs (B, T, H) and the last states (B, H)

BACKENDS = ("reference", "torch", "native", "triton")
CHOICES = ("auto", *BACKENDS)
LATE = ("native", "triton")  # modules of a recurrence that are imported when first wanted
FASTEST = {"cpu": "native", "cuda": "triton"}


class _Run:
    """What one run wishes, has used and has been told."""

    def __init__(self, wish: str = "auto") -> None:
        self.wish = wish
        self.used: set[str] = set()
        self.said: set[tuple[str, str]] = set()


_run = _Run()
_lock = Lock()


@contextmanager
def running(wish: str) -> Iterator[None]:
    """Inside, layers with backend="auto" use `wish` where they can, and `ran` tells of this time alone."""
    global _run
    one_of("runtime.backend", wish, CHOICES)
    before, _run = _run, _Run(wish)
    try:
        yield
    finally:
        _run = before


def asked(backend: str) -> str:
    """What a layer's keyword comes to: itself, or for "auto" what the run wishes, be it "auto" again."""
    return _run.wish if backend == "auto" else backend


def ran() -> tuple[str, ...]:
    """The backends that were used in this process since the run began, or since `reset`."""
    return tuple(sorted(_run.used))


def reset(used: Iterable[str] = ()) -> None:
    """Forget what ran, but for `used`: what the earlier part of an interrupted run has told."""
    _run.used = set(used)


class Op(Generic[R]):
    """A map, most often a recurrence, and the functions that compute it, all with the name of its package.

    package: `physml.ops.lem`, where native.py and triton.py lie. at_hand: functions that need no late import.
    """

    def __init__(self, package: str, **at_hand: Callable[..., R]) -> None:
        self.package, self.name = package, package.rpartition(".")[2]
        self.at_hand = at_hand
        self._modules: dict[str, ModuleType | str] = {}

    def __call__(self, *tensors: Tensor, backend: str, plain: str | None = None, **constants: object) -> R:
        """`tensors`: the input (B, T, ...) or (T, B, ...), a state (B, H), the rest in the reference's order.

        plain: why nothing but the reference can compute this very case, if so.
        """
        one_of("backend", backend, CHOICES)
        with steady(tensors[0]):
            chosen = self._chosen(backend, tensors, plain)
            result = self._function(chosen)(*tensors, **constants)
        _run.used.add(chosen)
        return result

    def has(self, backend: str) -> bool:
        """Whether there is such a backend for this recurrence, here or elsewhere; nothing is imported."""
        return backend in self.at_hand or self._lacking(backend) is None

    def _chosen(self, asked: str, tensors: tuple[Tensor, ...], plain: str | None) -> str:
        if asked != "auto":
            if reason := self.refusal(asked, tensors, plain):
                raise InputError(
                    f"{self.name} with backend={asked!r}: {reason}. Use backend='auto', the fastest that can."
                )
            return asked
        wish = _run.wish
        if wish != "auto":
            reason = self.refusal(wish, tensors, plain)
            if reason is None:
                return wish
            return self._instead(self._fastest(tensors, plain, but=wish), f"runtime.backend={wish}: {reason}")
        return self._fastest(tensors, plain)

    def _fastest(self, tensors: tuple[Tensor, ...], plain: str | None, but: str = "") -> str:
        safe = "torch" if "torch" in self.at_hand and plain is None else "reference"
        fast = FASTEST.get(tensors[0].device.type)
        if fast is None or fast == but or plain is not None or not self.has(fast):
            return safe
        reason = self.refusal(fast, tensors)
        if reason is not None:
            return self._instead(safe, reason)
        return fast if self._pays(fast, tensors) else safe

    def refusal(self, backend: str, tensors: tuple[Tensor, ...], plain: str | None = None) -> str | None:
        """Why this backend can't compute this; None if it can."""
        if plain is not None and backend != "reference":
            return plain
        if backend in self.at_hand:
            return None
        module = self._module(backend)
        reason: str | None = module if isinstance(module, str) else module.refusal(*tensors)
        return reason.rstrip(".") if reason else None

    def _pays(self, backend: str, tensors: tuple[Tensor, ...]) -> bool:
        """Whether it is worth its fixed costs at this size; a module that does not say always is.

        It is asked with the first two axes of the input, as they stand, and with H.
        """
        pays = getattr(self._module(backend), "pays", None)
        return pays is None or bool(pays(*tensors[0].shape[:2], tensors[1].shape[1]))

    def _function(self, backend: str) -> Callable[..., R]:
        if backend in self.at_hand:
            return self.at_hand[backend]
        function: Callable[..., R] = getattr(self._module(backend), self.name)
        return function

    def _lacking(self, backend: str) -> str | None:
        """Why there is no module for a backend; None if there is one."""
        name = f"{self.package}.{backend}"
        if backend in LATE and importlib.util.find_spec(name):
            return None
        return f"there is no backend {backend} for {self.name}"

    def _module(self, backend: str) -> ModuleType | str:
        """The module of a backend, imported at its first use, or why it can't be."""
        with _lock:
            if backend not in self._modules:
                self._modules[backend] = self._lacking(backend) or self._imported(backend)
            return self._modules[backend]

    def _imported(self, backend: str) -> ModuleType | str:
        try:
            return importlib.import_module(f"{self.package}.{backend}")
        except ImportError as error:
            if str(error.name).startswith("physml"):
                raise  # our own mistake
            return f"backend {backend} can't be imported: {error}"

    def _instead(self, backend: str, reason: str) -> str:
        """`backend`, after its use in place of a better one has been told; each reason once in a run."""
        with _lock:
            said = (self.name, reason) in _run.said
            _run.said.add((self.name, reason))
        if not said:
            log.warning("%s: %s. Backend %s computes it.", self.name, reason, backend)
        return backend
