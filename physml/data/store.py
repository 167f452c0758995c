"""Store of data: downloaded files (maybe on a read-only disk) and a cache of generated arrays."""

from dataclasses import dataclass
from typing import Any

from physml.base.paths import cache_root, data_root
from physml.data.cache import Cache, Verify
from physml.data.datasets import Arrays, DataSet
from physml.data.verify import read


@dataclass(frozen=True)
class Store(Cache):
    """Source of a task's arrays: data sets of others, read from verified files, and arrays made here."""

    @classmethod
    def from_env(cls, verify: Verify = "bytes", fixtures: bool = False) -> "Store":
        """PHYSML_DATA (none by default) and PHYSML_CACHE (by default ~/.cache/physml)."""
        return cls(data_root(), cache_root(), verify, fixtures)

    def read(self, dataset: DataSet) -> Arrays:
        """The arrays of a data set, from verified files; from the cache where these were read before.

        Errors: DataError for files that are missing, damaged, foreign or have another content than published.
        """
        return read(dataset, self)


def store_of(config: dict[str, Any]) -> Store:
    """The store that a run of this config reads from: smoke runs see fixtures alone."""
    return Store.from_env(config["data"]["verify"], fixtures=config["profile"] == "smoke")
