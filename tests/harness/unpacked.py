"""Archives that tests have made, unpacked."""

import shutil
import tarfile
from pathlib import Path


def unpack(file: Path, folder: Path) -> None:
    """Unpack a zip or tar file; with the filter of tar files that Python has from 3.11.4 on."""
    filtered = "tar" in file.name and hasattr(tarfile, "data_filter")
    shutil.unpack_archive(file, folder, **({"filter": "data"} if filtered else {}))
