"""The samplers and pruners that a shared search may have, by Optuna's names for them."""

from typing import Literal, get_args

Sampler = Literal["random", "tpe", "gp", "cmaes"]  # gp: a Gaussian process
Pruner = Literal["none", "median", "hyperband"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)
PRUNERS: tuple[str, ...] = get_args(Pruner)
