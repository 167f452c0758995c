"""Rows of data sets of the Hugging Face hub, or of folders of Parquet files, by the package `datasets`.

No code of a repository is run: `datasets` reads its data files alone.
"""

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.base import files
from physml.base.errors import DataError, needed_by, suggest
from physml.base.paths import expanded, unwritable
from physml.base.text import brief
from physml.data.cache import Cache
from physml.data.files import hash_cache
from physml.data.files.limits import open_regular

SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet")
PLAIN = re.compile(r"[^*?\[\]:]+")  # the package `datasets` takes other paths for patterns and addresses
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A data set of the hub, such as stanfordnlp/imdb, or a folder.

    config: of its configurations, where it has several. revision: a commit, null: the first one used here.
    """

    name: str
    config: str | None = None
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        path = expanded(self.name)
        return path.absolute() if path.is_dir() else None


def contents(repository: Repository, store: Cache) -> dict[str, dict[str, str]]:
    """The files of a repository, or its commit: {name: {"sha256", "verified"}}, as `verify.verify` says it.

    A commit that the user names is checked by the hub's client; else the first one seen is pinned, and so are
    the files of a folder.
    """
    folder = repository.folder
    if folder is not None:
        hashes = {
            name: hash_cache.known(folder / name, "sha256", store.cache)
            for names in _parquet(folder, repository.config).values()
            for name in names
        }
        text = "".join(f"{sha256}  {name}\n" for name, sha256 in hashes.items())
        _pin(repository, hashlib.sha256(text.encode()).hexdigest(), store)
        return {name: {"sha256": sha256, "verified": "first seen"} for name, sha256 in hashes.items()}
    if repository.revision is not None and COMMIT.fullmatch(repository.revision):
        return {repository.name: {"sha256": repository.revision, "verified": "bytes"}}
    pinned = _pin_path(repository, store)
    if pinned.is_file():
        commit = pinned.read_text(encoding="utf-8", errors="replace").strip()
        if not COMMIT.fullmatch(commit):
            raise DataError(f"{pinned} is damaged: it holds no commit. Delete it.")
    else:
        commit = _commit(repository)
        _pin(repository, commit, store)
    return {repository.name: {"sha256": commit, "verified": "first seen"}}


def rows(repository: Repository, commit: str | None, store: Cache) -> Mapping[str, Any]:
    """The splits by name, each a `datasets.Dataset`. commit: of the hub, as `contents` gave it."""
    with warnings.catch_warnings(), needed_by(f"reading {repository.name}"):
        warnings.simplefilter("ignore")  # of packages that it imports
        import datasets

    source = repository.folder or repository.name
    datasets.disable_progress_bars()
    cache = str(store.cache / "hub")
    try:
        if folder := repository.folder:  # the files that were hashed, whatever else lies there
            splits = _parquet(folder, repository.config).items()
            chosen = {split: [str(folder / name) for name in names] for split, names in splits}
            return datasets.load_dataset("parquet", data_files=chosen, cache_dir=cache)
        return datasets.load_dataset(repository.name, repository.config, revision=commit, cache_dir=cache)
    except DataError:
        raise
    except Exception as error:  # of the network, of the hub, of Parquet
        raise DataError(f"{source} cannot be read by `datasets`: {_said(error)}") from error


def _parquet(folder: Path, config: str | None) -> dict[str, list[str]]:
    """The Parquet files of a folder by their split, which the name of each tells; train where it does not.

    config: of its configurations, a folder below.
    """
    if config and not re.fullmatch(r"\w[\w.-]*", config):
        raise DataError(f"{folder}: a configuration is the name of a folder in it; got {config!r}.")
    inside = folder / config if config else folder
    splits: dict[str, list[str]] = {split: [] for split in SPLITS.values()}
    for path in sorted(inside.rglob("*.parquet")):
        name = path.relative_to(folder).as_posix()
        if not PLAIN.fullmatch(str(path)):
            raise DataError(f"{str(path)!r}: a path to Parquet files has no `*?[]:`. Rename it.")
        with open_regular(path) as file:  # a look, before all of it is hashed
            ends = {file.read(4), file.read(4) if file.seek(max(0, file.seek(0, 2) - 4)) else b""}
        if ends != {b"PAR1"}:
            raise DataError(f"{path} is no Parquet file. Put the right file there, or move it away.")
        words = re.split(r"[\W\d_]+", path.relative_to(inside).as_posix().lower())
        shard = SHARD.fullmatch(path.name)
        split = shard[1] if shard else next((SPLITS[word] for word in words if word in SPLITS), "train")
        splits.setdefault(split, []).append(name)
    if not any(splits.values()):
        raise DataError(f"{inside} has no Parquet files. Name a folder that has, or a repository.")
    return {split: names for split, names in splits.items() if names}


def column(split: Any, name: str, where: str) -> Any:
    if name not in split.column_names:
        raise DataError(f"{where} has no column {name}. {suggest(name, split.column_names)}")
    return split[name]


def _commit(repository: Repository) -> str:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repository.name) or repository.name.startswith("."):
        raise DataError(
            f"there is no folder {repository.name}. Name a folder of Parquet files, or a data set of the "
            "hub: task.name=USER/SET."
        )
    with needed_by(f"reading {repository.name}"):
        import datasets  # noqa: F401 - which brings the hub's client
        from huggingface_hub import HfApi
    try:
        return str(HfApi().dataset_info(repository.name, revision=repository.revision).sha)
    except Exception as error:
        raise DataError(
            f"there is no folder {repository.name}, and the Hugging Face hub gives no such data set: "
            f"{_said(error)}. Check the name and the network, or name a folder of Parquet files."
        ) from error


def _said(error: Exception) -> str:
    """The first line of an error, and of the one that it was raised for, which `datasets` leaves out."""
    causes = filter(None, (error, error.__cause__))
    return ": ".join(brief(str(e).strip().partition("\n")[0]) or type(e).__name__ for e in causes)


def _pin_path(repository: Repository, store: Cache) -> Path:
    folder = repository.folder and repository.folder / (repository.config or "")  # a commit has all of them
    key = f"{folder or repository.name} {repository.revision}"
    name = re.sub(r"\W+", "-", Path(repository.name).name)
    return store.cache / "pins" / "hub" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _pin(repository: Repository, value: str, store: Cache) -> None:
    path = _pin_path(repository, store)
    if not path.is_file():
        try:
            files.write_text(path, f"{value}\n")
        except OSError as error:
            raise unwritable(path.parent, error, "PHYSML_CACHE") from error
    elif path.read_text(encoding="utf-8", errors="replace").strip() != value:
        raise DataError(
            f"{repository.name} is not what was first seen here. Put that back, or delete {path}."
        )
