"""The elementwise operations of a step, and their derivatives, as both C and Triton read them.

`{0}`, `{1}`: the arguments; `{zero}`, `{one}`, `{half}`: numbers as the language writes them. `pick` and
`vec_tanh` and its like are functions of cell.h and of `physml.ops.triton.cell_functions`.
"""

# Results that are kept for the backward pass, others are computed again.
KEPT = ("tanh", "sigmoid", "relu", "exp", "log", "sqrt", "sin", "cos", "erf", "softplus", "div")

FORWARD: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "pick({1} == {1}, pick({0} < {1}, {1}, {0}), {1})",  # NaN in either gives NaN
    "minimum": "pick({1} == {1}, pick({0} > {1}, {1}, {0}), {1})",
    "greater": "pick({0} > {1}, {one}, {zero})",
    "greater_equal": "pick({0} >= {1}, {one}, {zero})",
    "select": "pick({0} != 0, {1}, {2})",
    "relu": "pick({0} < 0, {zero}, {0})",
    "sign": "pick({0} > 0, {one}, pick({0} < 0, -{one}, {zero}))",
    "stop": "{0}",
    **{name: f"vec_{name}({{0}})" for name in ("tanh", "sigmoid", "exp", "log", "sqrt", "sin", "cos", "abs")},
    **{name: f"vec_{name}({{0}})" for name in ("erf", "softplus")},
}

# Of a result d, what reaches each argument; {v}: the result, {0}, {1}: arguments. None: nothing.
BACKWARD: dict[str, tuple[str | None, ...]] = {
    "add": ("{d}", "{d}"),
    "sub": ("{d}", "-{d}"),
    "mul": ("{d} * {1}", "{d} * {0}"),
    "div": ("{d} / {1}", "-({d} * {v}) / {1}"),
    "maximum": (
        "pick({0} > {1}, {d}, pick({0} == {1}, {d} * {half}, {zero}))",
        "pick({1} > {0}, {d}, pick({0} == {1}, {d} * {half}, {zero}))",
    ),
    "minimum": (
        "pick({0} < {1}, {d}, pick({0} == {1}, {d} * {half}, {zero}))",
        "pick({1} < {0}, {d}, pick({0} == {1}, {d} * {half}, {zero}))",
    ),
    "greater": (None, None),
    "greater_equal": (None, None),
    "select": (None, "pick({0} != 0, {d}, {zero})", "pick({0} != 0, {zero}, {d})"),
    "relu": ("pick({v} > 0, {d}, {zero})",),
    "sign": (None,),
    "stop": (None,),
    "tanh": ("{d} * (1 - {v} * {v})",),
    "sigmoid": ("{d} * ({v} * (1 - {v}))",),
    "exp": ("{d} * {v}",),
    "log": ("{d} / {0}",),
    "sqrt": ("{d} / ({v} * 2)",),
    "sin": ("{d} * vec_cos({0})",),
    "cos": ("-{d} * vec_sin({0})",),
    "abs": ("pick({0} > 0, {d}, pick({0} < 0, -{d}, {zero}))",),
    "erf": ("{d} * vec_erf_slope({0})",),
    "softplus": ("{d} * vec_sigmoid({0})",),
}
