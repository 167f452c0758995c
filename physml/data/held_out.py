"""Training items that are held out for validation, by index files of `index`."""

import numpy as np

from physml.data import index
from physml.errors import DataError


def divide(name: str | None, n: int, published: int, fixture: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions of train and of valid among n items; valid is the index file `name`, null: nothing.

    The files are made for `published` items. Of a fixture, which has fewer, every tenth item is held out.

    Errors: DataError where n is not `published`, or the file does not fit.
    """
    if n != published and not fixture:
        raise DataError(
            f"the training part must have {published} items; got {n}. Get the published files again."
        )
    if name is None:
        return np.arange(n), np.arange(0)
    valid = np.arange(0, n, 10) if fixture else np.sort(index.load(name))
    if valid[-1] >= n:
        raise DataError(f"index {name} is for more than {n} items; take one for this data set.")
    return np.setdiff1d(np.arange(n), valid), valid
