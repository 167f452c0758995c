"""The examples of docstrings run and give what they say."""

import doctest
import importlib
import pkgutil

import physml

SKIPPED = ("__main__", "triton")  # run as programs, or need a GPU's compiler


def test_every_example_of_a_docstring_holds() -> None:
    attempted, failed = 0, []
    for module in pkgutil.walk_packages(physml.__path__, "physml."):
        if not module.name.rpartition(".")[2].startswith(SKIPPED) and ".triton." not in module.name:
            counts = doctest.testmod(importlib.import_module(module.name))
            attempted += counts.attempted
            failed += [module.name] * counts.failed
    assert not failed and attempted > 60
