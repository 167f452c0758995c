"""The operations of torch that a compiled step may use, and the trace of a step."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from physml.ops.cell.outline import Outline
from physml.ops.cell.reference import returned
from physml.ops.cell.rows import RANDOM, NotExpressible, Rows, Trace
from physml.ops.cell.units import UNITS, chosen

MOST_POWER = 64  # of whole powers that are products


def trace(
    step: Callable[..., Any], n_batch: int, like: Tensor, inputs: Sequence[int], states: Sequence[int]
) -> Trace:
    """The graph of `step(u, state) -> (output, state)`.

    Args:
        step: the function; u is a tensor if there is one input, else a tuple.
        n_batch: B.
        like: a tensor with the dtype and the device of all others.
        inputs: the width of each input.
        states: the width of each state.
    Errors: NotExpressible.
    """
    trace = Trace(n_batch, like, WORDS)
    u = tuple(trace.add(width, "input", k) for k, width in enumerate(inputs))
    state = tuple(trace.add(width, "state", k) for k, width in enumerate(states))
    called = _called_in_a_graph if torch.compiler.is_compiling() else _called
    output, new = returned(called(step, u[0] if len(u) == 1 else u, state, like), state, step)
    if not isinstance(output, Rows):
        raise NotExpressible("its output depends on neither input nor state")
    rows = [trace.row(x, width) for x, width in zip(new, states, strict=True)]
    trace.outputs = (output.index, *(x.index for x in rows))
    return trace


def _called(step: Callable[..., Any], u: Any, state: Any, like: Tensor) -> Any:
    before = torch.get_rng_state()
    try:
        with nullcontext() if like.device.type == "cpu" else NothingDrawn():
            result = step(u, state)
    except NotExpressible:
        raise
    except Exception as error:  # a mistake in the step is shown by the loop, at its place
        raise NotExpressible(f"it can't be traced: {type(error).__name__}: {error}") from error
    finally:
        drew = not torch.equal(before, torch.get_rng_state())
        if drew:
            torch.set_rng_state(before)
    if drew:
        raise NotExpressible(RANDOM)
    return result


def _called_in_a_graph(step: Callable[..., Any], u: Any, state: Any, like: Tensor) -> Any:
    """Call a step where torch traces too, when a random number would not be drawn yet."""
    if torch.compiler.is_dynamo_compiling():
        from physml.ops.cell import while_compiling

        with while_compiling.NothingDrawn():
            return step(u, state)
    with NothingDrawn():
        return step(u, state)


def outline(trace: Trace) -> Outline:
    """Outline of a trace, from which its program is made."""
    single = tuple(x.numel() == 1 for x in trace.leaves)
    return Outline(tuple(trace.nodes), tuple(trace.widths), trace.outputs, single)


class NothingDrawn(TorchDispatchMode):
    """Random numbers of any device are refused. On a CPU a look at its one generator is cheaper."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotExpressible(RANDOM)
        return func(*args, **(kwargs or {}))


def _first(args: Sequence[Any]) -> Rows:
    for x in args:
        if isinstance(x, Rows):
            return x
    raise NotExpressible("it has no row among its arguments")


def _width(args: Sequence[Any]) -> int:
    """The number of units of a result; rows of one unit are repeated."""
    width = max(x.width for x in args if isinstance(x, Rows))
    return (
        max([width, *(x.shape[-1] for x in args if isinstance(x, Tensor) and x.ndim)])
        if width == 1
        else width
    )


def _binary(name: str, a: Any, b: Any) -> Rows:
    trace, width = _first((a, b)).trace, _width((a, b))
    left, right = trace.row(a, width), trace.row(b, width)
    if name in ("mul", "div") and trace.nodes[right.index] == ("exactly", 1.0):
        return left
    if name == "mul" and trace.nodes[left.index] == ("exactly", 1.0):
        return right
    return trace.add(width, name, left.index, right.index)


def _unary(name: str) -> Callable[..., Rows]:
    def apply(x: Rows) -> Rows:
        return x.trace.add(x.width, name, x.index)

    return apply


def _add(a: Any, b: Any, *, alpha: float = 1) -> Rows:
    return _binary("add", a, _binary("mul", b, alpha) if alpha != 1 else b)


def _sub(a: Any, b: Any, *, alpha: float = 1) -> Rows:
    return _binary("sub", a, _binary("mul", b, alpha) if alpha != 1 else b)


def _neg(x: Rows) -> Rows:
    return _binary("sub", 0.0, x)


def _pow(x: Any, power: Any) -> Rows:
    if not isinstance(x, Rows) or not isinstance(power, int | float):
        raise NotExpressible("it has a power whose exponent is no number")
    if power == 0.5:
        return _unary("sqrt")(x)
    if power == int(power) and abs(power) <= MOST_POWER:
        result = _whole_power(x, abs(int(power)))
        return result if power >= 0 else _binary("div", 1.0, result)
    if power < 1:
        return _unary("exp")(_binary("mul", _unary("log")(x), float(power)))
    positive = _binary("greater", x, 0.0)  # at 0 the slope of x^p is 0, that of exp(p log x) is 0 / 0
    logs = (_unary("log")(part) for part in (_where(positive, x, 1.0), _unary("stop")(x)))
    return _where(positive, *(_unary("exp")(_binary("mul", log, float(power))) for log in logs))


def _whole_power(x: Rows, power: int) -> Rows:
    if power < 2:
        return x if power else x.trace.number(1.0, x.width)
    half = _whole_power(x, power // 2)
    square = _binary("mul", half, half)
    return _binary("mul", square, x) if power % 2 else square


def _product(x: Rows, weight: Any) -> Rows:
    """The product with a weight (n, x.width)."""
    if not isinstance(weight, Tensor):
        raise NotExpressible("it multiplies rows of the batch with each other")
    if weight.ndim != 2 or weight.shape[1] != x.width:
        raise NotExpressible(
            f"it multiplies rows of {x.width} units with a tensor of shape {tuple(weight.shape)}"
        )
    return x.trace.product(x, weight)


def _linear(x: Rows, weight: Tensor, bias: Tensor | None = None) -> Rows:
    if not isinstance(x, Rows):
        raise NotExpressible("it computes weights from rows of the batch")
    product = _product(x, weight)
    return product if bias is None else _add(product, bias)


def _matmul(x: Any, weight: Any) -> Rows:
    if torch.compiler.is_dynamo_compiling() and isinstance(x, Tensor):
        x, weight = weight, x  # dynamo names the operands of rows @ weight the wrong way round
    if not isinstance(x, Rows) or not isinstance(weight, Tensor) or weight.ndim != 2:
        raise NotExpressible("it has a product other than of rows with a matrix")
    trace = x.trace
    if weight.shape[0] != x.width:
        raise NotExpressible(
            f"it multiplies rows of {x.width} units with a matrix of shape {tuple(weight.shape)}"
        )
    return trace.product(x, _turned(trace, weight))


def _turned(trace: Trace, weight: Tensor) -> Tensor:
    """The transpose; of one tensor always the same, so that it is packed once."""
    if torch.compiler.is_dynamo_compiling():  # where tensors have no memory to compare
        return weight.t()
    base = weight if weight._base is None else weight._base
    for known in trace.leaves:
        same = known is base or (known._base is not None and known._base is base)
        turned = known.shape == weight.shape[::-1] and known.stride() == weight.stride()[::-1]
        if same and turned and known.storage_offset() == weight.storage_offset():
            return known
    return weight.t()


def _addmm(b: Any, x: Any, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Rows:
    product = _matmul(x, weight)
    return _add(product if alpha == 1 else _binary("mul", product, alpha), b, alpha=beta)


def _part(x: Rows, begin: int, end: int) -> Rows:
    if (begin, end) == (0, x.width):
        return x
    if not 0 <= begin < end <= x.width:
        raise NotExpressible(f"it takes the part {begin}:{end} of a row of {x.width} units")
    if x.trace.nodes[x.index][0] == "state":
        return chosen(x, range(begin, end))
    return x.trace.add(end - begin, "slice", x.index, begin, end)


def _last_axis(dim: int) -> None:
    if dim not in (1, -1):
        raise NotExpressible("it takes the batch apart")


def _narrow(x: Rows, dim: int, start: int, length: int) -> Rows:
    _last_axis(dim)
    return _part(x, start, start + length)


def _split(x: Rows, size: int | Sequence[int], dim: int = 0) -> tuple[Rows, ...]:
    _last_axis(dim)
    sizes = [size] * -(-x.width // size) if isinstance(size, int) else list(size)
    if not isinstance(size, int) and sum(sizes) != x.width:
        raise NotExpressible(f"it splits a row of {x.width} units into parts of {sizes}")
    ends = [min(sum(sizes[: k + 1]), x.width) for k in range(len(sizes))]
    return tuple(_part(x, a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True))


def _chunk(x: Rows, chunks: int, dim: int = 0) -> tuple[Rows, ...]:
    return _split(x, -(-x.width // chunks), dim)


def _cat(parts: Sequence[Any], dim: int = 0) -> Rows:
    _last_axis(dim)
    if not all(isinstance(x, Rows) for x in parts):
        raise NotExpressible("it joins rows with other tensors")
    trace = parts[0].trace
    nodes = [trace.nodes[x.index] for x in parts]
    if all(node[0] == "linear" and node[1] == nodes[0][1] for node in nodes):  # heads: one product
        operand = Rows(trace, nodes[0][1], trace.widths[nodes[0][1]])
        return trace.product(operand, torch.cat([trace.leaves[node[2]] for node in nodes]))
    return trace.add(sum(x.width for x in parts), "cat", *(x.index for x in parts))


def _where(condition: Any, a: Any, b: Any) -> Rows:
    trace, width = _first((condition, a, b)).trace, _width((condition, a, b))
    return trace.add(width, "select", *(trace.row(x, width).index for x in (condition, a, b)))


def _clamp(x: Rows, min: Any = None, max: Any = None) -> Rows:
    x = x if min is None else _bounded(x, "maximum", min, _binary("greater", x, min))
    return x if max is None else _bounded(x, "minimum", max, _binary("greater", max, x))


def _bounded(x: Rows, name: str, bound: Any, inside: Rows) -> Rows:
    """The greater or lesser of x and a bound. On a bound that is a number the slope is 0, as torch has it."""
    if not isinstance(bound, int | float):
        return _binary(name, x, bound)
    return _where(inside, x, _binary(name, _unary("stop")(x), bound))


def _lerp(a: Any, b: Any, weight: Any) -> Rows:
    return _add(a, _binary("mul", weight, _sub(b, a)))


def _addcmul(a: Any, b: Any, c: Any, *, value: float = 1) -> Rows:
    return _add(a, _binary("mul", b, c), alpha=value)


def _relu(x: Rows, inplace: bool = False) -> Rows:
    return x.trace.add(x.width, "relu", x.index)


def _leaky(x: Rows, negative_slope: float = 0.01, inplace: bool = False) -> Rows:
    return _where(_binary("greater", x, 0.0), x, _binary("mul", x, negative_slope))


def _elu(x: Rows, alpha: float = 1.0, inplace: bool = False) -> Rows:
    above = _binary("greater", x, 0.0)
    below = _sub(_unary("exp")(_where(above, 0.0, x)), 1.0)
    return _where(above, x, _binary("mul", below, alpha))


def _softplus(x: Rows, beta: float = 1, threshold: float = 20) -> Rows:
    if threshold != 20:
        raise NotExpressible(f"it uses softplus with threshold {threshold}; 20 is what the compiler knows")
    inner = _unary("softplus")(_binary("mul", x, beta))
    return _binary("div", inner, beta)


def _silu(x: Rows, inplace: bool = False) -> Rows:
    return _binary("mul", x, _unary("sigmoid")(x))


def _gelu(x: Rows, approximate: str = "none") -> Rows:
    if approximate != "none":
        inner = _binary("mul", _add(x, _binary("mul", _pow(x, 3), 0.044715)), 0.7978845608028654)
        bent = _unary("tanh")(inner)
    else:
        bent = _unary("erf")(_binary("mul", x, 0.7071067811865476))
    return _binary("mul", _binary("mul", x, 0.5), _add(bent, 1.0))


def _hardtanh(x: Rows, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Rows:
    return _clamp(x, min_val, max_val)


def _hardsigmoid(x: Rows, inplace: bool = False) -> Rows:
    return _clamp(_add(_binary("div", x, 6.0), 0.5), 0.0, 1.0)


def _dropout(x: Rows, p: float = 0.5, training: bool = True, inplace: bool = False) -> Rows:
    if training and p:
        raise NotExpressible(RANDOM)
    return x


def _constant(value: float) -> Callable[..., Rows]:
    return lambda x: x.trace.number(value, x.width)


def _size(x: Rows, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def _new_zeros(x: Rows, *shape: Any, **options: Any) -> Tensor:
    return x.trace.like.new_zeros(*shape, **options)


WORDS: dict[str, Callable[..., Any]] = {
    **{
        name: _unary(name)
        for name in ("tanh", "sigmoid", "exp", "log", "sqrt", "sin", "cos", "abs", "sign", "erf")
    },
    **dict.fromkeys(("add", "__add__", "__radd__"), _add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), _sub),
    **{name: lambda a, b, *, alpha=1: _sub(b, a, alpha=alpha) for name in ("rsub", "__rsub__")},
    **{name: lambda a, b: _binary("mul", a, b) for name in ("mul", "multiply", "__mul__", "__rmul__")},
    **{name: lambda a, b: _binary("div", a, b) for name in ("div", "true_divide", "divide", "__truediv__")},
    **{name: lambda a, b: _binary("div", b, a) for name in ("__rtruediv__", "__rdiv__")},
    "maximum": lambda a, b: _binary("maximum", a, b),
    "minimum": lambda a, b: _binary("minimum", a, b),
    "clamp_min": lambda x, min: _clamp(x, min),
    "clamp_max": lambda x, max: _clamp(x, None, max),
    **{name: lambda a, b: _binary("greater", a, b) for name in ("gt", "greater", "__gt__")},
    **{name: lambda a, b: _binary("greater", b, a) for name in ("lt", "less", "__lt__")},
    **{name: lambda a, b: _binary("greater_equal", a, b) for name in ("ge", "greater_equal", "__ge__")},
    **{name: lambda a, b: _binary("greater_equal", b, a) for name in ("le", "less_equal", "__le__")},
    **dict.fromkeys(("neg", "negative", "__neg__"), _neg),
    **dict.fromkeys(("pow", "__pow__"), _pow),
    **dict.fromkeys(("matmul", "mm", "__matmul__"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    **{name: lambda x, **_options: x for name in ("clone", "contiguous", "positive")},
    "leaky_relu": _leaky,
    "reciprocal": lambda x: _binary("div", 1.0, x),
    "square": lambda x: _binary("mul", x, x),
    "rsqrt": lambda x: _binary("div", 1.0, _unary("sqrt")(x)),
    "detach": _unary("stop"),
    "linear": _linear,
    "addmm": _addmm,
    "narrow": _narrow,
    "split": _split,
    "chunk": _chunk,
    "where": _where,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": lambda a, b, c, *, value=1: _add(a, _binary("div", b, c), alpha=value),
    "relu": _relu,
    "elu": _elu,
    "softplus": _softplus,
    "silu": _silu,
    "gelu": _gelu,
    "hardtanh": _hardtanh,
    "hardsigmoid": _hardsigmoid,
    "dropout": _dropout,
    "zeros_like": _constant(0.0),
    "ones_like": _constant(1.0),
    "size": _size,
    "dim": lambda x: 2,
    "new_zeros": _new_zeros,
    **UNITS,
}
