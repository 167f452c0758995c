"""Copies of records in an own results folder, to time lists of tables over many.

`python -m scripts.bench.many_records FOLDER --count 100000`, then `PHYSML_RESULTS=FOLDER physml table --all`;
also after `PHYSML_RESULTS=FOLDER physml records pack`.
"""

import argparse
import functools
import itertools
import json
from pathlib import Path
from typing import Any

from physml.base.paths import OWN_RESULTS
from physml.records import record


def fill(results: Path, count: int) -> int:
    """Write `count` records, in turn of each experiment that has one, with seeds that go on; returns it.

    Each has the numbers of a record of that experiment, and its setting.
    """
    every = [record.run_paths(folder) for folder in (OWN_RESULTS / "runs").glob("*/*")]
    chosen = [paths for paths in every if paths]
    for number, paths in enumerate(itertools.islice(itertools.cycle(chosen), count)):
        turn = number // len(chosen)
        source = paths[turn % len(paths)]
        setting, content = _parts(source)
        seed = content["seed"] + turn // len(paths) * 1000
        folder = results / source.parent.relative_to(OWN_RESULTS)
        folder.mkdir(parents=True, exist_ok=True)
        copied = {**content, "seed": seed}
        files = {record.setting_path(folder, content["identity"], content["setting"]): setting}
        files[folder / f"{record.stem_of(copied)}.json"] = copied
        for path, value in files.items():
            path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return count


@functools.cache
def _parts(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return record.split(dict(record.read(source)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m scripts.bench.many_records")
    parser.add_argument("results", type=Path, help="a new folder")
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{fill(options.results, options.count)} records in {options.results}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
