"""Records of an older schema, brought to that of today where they lie."""

from pathlib import Path

from physml.records import curves, record
from physml.records.schema import SCHEMA


def convert(path: Path) -> bool:
    """Write one record anew, and its curve, if its schema is an older one; whether it was.

    The curve comes first, and the run's file last and whole: after a kill the same call goes on.
    """
    if record.schema_of(path) == SCHEMA:
        return False
    made = record.read(path)
    if (name := made.get("curve")) and (curve := path.parent / Path(name).name).exists():
        curves.thin_file(curve, selected["step"] if (selected := made.get("selected")) else None)
    record.write(path, made)
    return True
