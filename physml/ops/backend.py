"""The choice of the backend that computes an op, by preference, device, dtype and size; which ones ran.

- `reference`: the plain loop as it is printed, differentiable as often as wanted;
- `torch`: a backward written by hand in torch, on any device;
- `native`: C on a CPU, compiled at first use;
- `triton`: kernels for a GPU.

A layer's keyword `backend` is a requirement: a backend that cannot compute the case is an InputError. The
config key `runtime.backend` is a preference for the whole run: where that backend cannot be used, another one
is, and one warning says why. `auto` takes the fastest that can. All compute the same map, so they are no part
of an identity.

With `precision=bf16-products`, which is part of an identity, the products of recurrences are on numbers
rounded to bfloat16 and summed in float32. C alone has them: it computes every such op, or the op is refused.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from types import ModuleType
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.ops import derivatives
from physml.ops.derivatives import recorded
from physml.ops.sequence import no_autocast

log = logging.getLogger("physml")

R = TypeVar("R")  # result of an op: mostly the outputs (B, T, H) and the last states (B, H)

Backend = Literal["auto", "reference", "torch", "native", "triton"]
BACKENDS = ("reference", "torch", "native", "triton")
CHOICES = ("auto", *BACKENDS)
LATE = ("native", "triton")  # modules of an op that are imported at first use
FASTEST = {"cpu": "native", "cuda": "triton"}


class _Run:
    """Per-run state: preferred backend, backends used, warnings issued."""

    def __init__(self, preferred: str = "auto", precision: str = "fp32") -> None:
        self.preferred = preferred
        self.bf16_products = precision == "bf16-products"
        self.multiplied = False  # whether there were any such products
        self.used: set[str] = set()
        self.warned: set[tuple[str, str]] = set()


_run = _Run()
_lock = Lock()  # held while a backend is imported


@contextmanager
def running(preferred: str, precision: str = "fp32") -> Iterator[None]:
    """Prefer a backend for layers with backend="auto" in this context, and list in `ran` those used in it.

    `precision`: that of the run's config; here only `bf16-products` counts.
    """
    global _run
    one_of("runtime.backend", preferred, CHOICES)
    before, _run = _run, _Run(preferred, precision)
    try:
        yield
    finally:
        _run = before


def resolved(backend: str) -> str:
    """The layer's explicit backend, or the run's preference if it is "auto" (which may be "auto" too)."""
    return _run.preferred if backend == "auto" else backend


def of_nothing(backend: str, *tensors: Tensor) -> str:
    """The backend for a sum without terms: torch in place of C, which takes no empty tensors, unwarned."""
    in_c = backend == "auto" and _run.preferred in ("auto", "native")
    return "torch" if in_c and not derivatives.transformed(*tensors) else backend


def ran() -> tuple[str, ...]:
    """The backends used in this process since the run began, or since `reset`."""
    return tuple(sorted(_run.used))


def note(backend: str) -> None:
    """Count a backend as used by the run. Not in a graph, which would put the set back as it was before."""
    if not torch.compiler.is_dynamo_compiling():
        _run.used.add(backend)


def reset(used: Iterable[str] = ()) -> None:
    """Set the list of used backends to `used`, those of the part of the run before an interruption."""
    _run.used = set(used)


def bf16_products() -> bool:
    """True if the run is to multiply numbers rounded to bfloat16."""
    return _run.bf16_products


def note_bf16_products(fast: bool) -> None:
    """Count such products as computed in the run. `fast`: the processor has instructions for them."""
    _run.multiplied = True
    if not fast and ("", "bf16") not in _run.warned:
        _run.warned.add(("", "bf16"))
        log.warning(
            "precision=bf16-products: the processor, or the C compiler, has no AVX512-BF16. The same numbers "
            "are computed without, slower than with precision=fp32."
        )


def no_bf16_products() -> bool:
    """True if the run is to have such products, and none was computed so far."""
    return _run.bf16_products and not _run.multiplied


def bf16_refused(name: str, reason: str) -> InputError:
    """The error of an op that cannot compute its products so."""
    return InputError(
        f"{name} with precision=bf16-products: {reason}. Only C on a CPU has such products: "
        "use runtime.device=cpu and backend auto or native, or else precision=fp32."
    )


class Op(Generic[R]):
    """A map, most often a recurrence, and the functions that compute it, all with the name of its package.

    Args:
        package: such as `physml.ops.lem`, the package with native.py and triton.py.
        multiplies: whether it has products with weights, on which `precision=bf16-products` acts.
        at_hand: per backend, a function that needs no late import.
    """

    def __init__(self, package: str, *, multiplies: bool = False, **at_hand: Callable[..., R]) -> None:
        self.multiplies = multiplies
        self.package, self.name = package, package.rpartition(".")[2]
        self.at_hand = at_hand
        self.operator: Callable[..., R] | None = None  # that stands for the op in graphs, if it has one
        self._modules: dict[str, ModuleType | str] = {}

    def __call__(self, *tensors: Tensor, backend: str, plain: str | None = None, **constants: object) -> R:
        """The map of `tensors`, by the chosen backend.

        Args:
            tensors: the input (B, T, ...) or (T, B, ...), a state (B, H), the rest in the reference's order.
            backend: a layer's requirement, or "auto".
            plain: the reason why only the reference can compute this case, if so.
            constants: passed on by name.
        """
        if backend not in CHOICES:
            one_of("backend", backend, CHOICES)
        if self.multiplies and _run.bf16_products:
            if reason := self._not_in_bf16(backend, tensors, plain, constants):
                raise bf16_refused(self.name, reason)
            backend = "native"
        if (
            torch.compiler.is_compiling()
            and resolved(backend) != "reference"
            and not torch._C._are_functorch_transforms_active()
        ):
            name = backend if backend != "auto" else "torch" if resolved(backend) == "torch" else "auto"
            if self.operator is not None and plain is None and self._in_graph(name, tensors):
                kept = recorded(*tensors) and not torch.compiler.is_exporting()
                return self.operator(*tensors, backend=name, kept=kept, **constants)
            if not torch.compiler.is_exporting():
                from physml.ops.untraced import untraced

                return untraced(self, *tensors, backend=backend, plain=plain, **constants)
        if derivatives.transformed(*tensors, *constants.values()):
            plain = plain or derivatives.REASON
        with no_autocast(tensors[0]):
            chosen = self._chosen(backend, tensors, plain)
            result = self._function(chosen)(*tensors, **constants)
        note(chosen)
        return result

    def _not_in_bf16(
        self, backend: str, tensors: tuple[Tensor, ...], plain: str | None, constants: dict[str, object]
    ) -> str | None:
        """The reason why the products can't be on numbers rounded to bfloat16; None if they can."""
        if torch.compiler.is_compiling():
            return "they are not there in graphs of torch"
        if (requested := resolved(backend)) not in ("auto", "native"):
            return f"backend {requested} is asked for"
        if derivatives.transformed(*tensors, *constants.values()):
            return derivatives.REASON
        return self.refusal("native", tensors, plain)

    def has(self, backend: str) -> bool:
        """True if this op has such a backend, usable here or not; nothing is imported."""
        return backend in self.at_hand or backend in self._late

    @cached_property
    def _late(self) -> frozenset[str]:
        """The backends with a module of their own. Looked up once: the search reads the file system."""
        return frozenset(name for name in LATE if importlib.util.find_spec(f"{self.package}.{name}"))

    def _chosen(self, backend: str, tensors: tuple[Tensor, ...], plain: str | None) -> str:
        if backend != "auto":
            if reason := self.refusal(backend, tensors, plain):
                raise InputError(
                    f"{self.name} with backend={backend!r}: {reason}. "
                    "Use backend='auto', the fastest that can."
                )
            return backend
        preferred = _run.preferred
        if preferred == "auto":
            return self._fastest(tensors, plain)
        reason = self.refusal(preferred, tensors, plain)
        if reason is None:
            return preferred
        return self.warn(
            f"runtime.backend={preferred}: {reason}", self._fastest(tensors, plain, but=preferred)
        )

    def _fastest(self, tensors: tuple[Tensor, ...], plain: str | None, but: str = "") -> str:
        if plain is not None:
            return "reference"
        safe = "torch" if "torch" in self.at_hand else "reference"
        fast = FASTEST.get(tensors[0].device.type)
        if fast is None or fast == but or fast not in self._late:
            return safe
        reason = self.refusal(fast, tensors)
        if reason is not None:
            return self.warn(reason, safe)
        return fast if self._pays(fast, tensors) else "reference"

    @staticmethod
    def _in_graph(backend: str, tensors: tuple[Tensor, ...]) -> bool:
        """True if the operator can be used: kernels of a GPU stay outside of graphs."""
        return backend == "torch" or (backend != "triton" and tensors[0].device.type == "cpu")

    def refusal(self, backend: str, tensors: tuple[Tensor, ...], plain: str | None = None) -> str | None:
        """The reason why this backend can't compute this; None if it can."""
        if plain is not None and self.at_hand.get(backend) is not self.at_hand["reference"]:
            return plain
        if backend in self.at_hand:
            return None
        module = self.module(backend)
        reason: str | None = module if isinstance(module, str) else module.refusal(*tensors)
        return reason.rstrip(".") if reason else None

    def _pays(self, backend: str, tensors: tuple[Tensor, ...]) -> bool:
        """True if the backend is worth its fixed costs at this size, by the module's `pays`, if it has one.

        Called with the first two axes of the input, as they stand, with H, and whether a backward may follow.
        Where it is not, for a few steps, the plain loop is the fastest.
        """
        pays = getattr(self.module(backend), "pays", None)
        return pays is None or bool(pays(*tensors[0].shape[:2], tensors[1].shape[1], recorded(*tensors)))

    def _function(self, backend: str) -> Callable[..., R]:
        if backend in self.at_hand:
            return self.at_hand[backend]
        function: Callable[..., R] = getattr(self.module(backend), self.name)
        return function

    def module(self, backend: str) -> ModuleType | str:
        """The module of a backend, imported at its first use, or why it can't be."""
        if (known := self._modules.get(backend)) is None:
            with _lock:
                known = self._modules.get(backend) or self._modules.setdefault(
                    backend, self._imported(backend)
                )
        return known

    def _imported(self, backend: str) -> ModuleType | str:
        if backend == "torch" and "torch" in self.at_hand:
            return importlib.import_module(f"{self.package}.autograd")
        if backend not in self._late:
            return f"there is no backend {backend} for {self.name}"
        try:
            return importlib.import_module(f"{self.package}.{backend}")
        except ImportError as error:
            if str(error.name).startswith("physml"):
                raise  # our own mistake
            return f"backend {backend} can't be imported: {error}"

    def warn(self, reason: str, backend: str) -> str:
        """`backend`, with a warning that it stands in for a better one: once per reason and run."""
        if (self.name, reason) not in _run.warned:
            _run.warned.add((self.name, reason))
            log.warning("%s: %s. Backend %s computes it.", self.name, reason, backend)
        return backend
