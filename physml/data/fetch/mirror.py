"""A data set from its Parquet mirror on the Hugging Face hub, when no address of its files answers.

The files are written again in their own form. Their bytes are others than published, so the content is
compared before they get their names, and runs read them under `--verify content`.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from physml.base.errors import DataError
from physml.data import verify
from physml.data.datasets import DataSet
from physml.data.fetch import hub
from physml.data.store import Store


def get(dataset: DataSet, store: Store) -> list[Path]:
    """Write the files of a data set into the cache; their paths. What is there already stays.

    Errors: DataError where the mirror cannot be read, or has another content than published.
    """
    about = dataset.upstream
    if about.mirror is None or dataset.rebuild is None or about.content.sha256 is None:
        raise DataError(f"data set {about.name} has no mirror.")
    source = about.mirror
    repository = hub.Repository(source.repository, source.config, source.revision)
    (used,) = hub.contents(repository, store).values()
    splits = hub.rows(repository, used["sha256"], store)
    written = []
    with tempfile.TemporaryDirectory(dir=store.cache) as folder:
        root = Path(folder)
        dataset.rebuild(root, splits)
        own = replace(store, data=root, cache=root / "cache", verify="off", used={})
        try:
            verify.compare_content(dataset, dataset.read(verify.FoundFiles(about, own)))
        except DataError as error:
            raise DataError(f"the mirror {source.repository} at {used['sha256'][:10]}: {error}") from error
        for file in about.files:
            target = store.cache / "files" / file.name
            if (root / file.name).is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                (root / file.name).replace(target)
                written.append(target)
    return written
