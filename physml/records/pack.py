"""Runs of a folder joined in runs.jsonl: a line per setting and per run, in order of identity, split, seed.

For results that are kept in git. Lines of two such files may be joined in any way: equal ones count once.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import RecordError
from physml.base.lock import is_held
from physml.base.paths import display_path
from physml.records import record


def pack(folder: Path, work: Path) -> int:
    """Join the runs of a folder in one file; how many went into it. One process at a time may do this.

    The joined file is whole before any other is removed, and a run's own file counts before its line, so no
    run is lost or counted twice after a kill at any moment: the next call goes on.

    Args:
        work: Folder with the work folders of these runs; a run that a process works on stays as it is.
    """
    paths = sorted(folder.glob(record.RUNS))
    own = {path: opened.read_bytes(path) for path in paths if not is_held(work / path.stem)}
    old = record.pack_of(folder)
    if not own and not old.runs:
        return 0
    runs = {stem: run if "check" in run else record.checked(run) for stem, run in old.runs.items()}
    settings = dict(old.settings)
    for path in own:
        setting, run = record.split(dict(record.read(path)))
        if record.stem_of(run) != path.stem:
            raise RecordError(
                f"{display_path(path)} is the record of {record.stem_of(run)}. Give it that name."
            )
        runs[path.stem] = record.checked(run)
        settings[_setting_of(run)] = setting
    if len(own) == len(paths):  # else one that stays may need any of the settings
        named = {_setting_of(run) for run in runs.values()}
        settings = {name: content for name, content in settings.items() if name in named}
    text, target = _text(settings.values(), runs.values()), folder / record.PACK
    if not target.exists() or opened.read_bytes(target, record.LARGEST) != text.encode():
        files.write_text(target, text)
    for path, content in own.items():
        if opened.read_bytes(path) == content:  # else the run has just been made anew
            path.unlink()
    for path in folder.glob(f"*{record.SETTING}"):
        if path.name in settings:
            path.unlink()
    return len(own)


def _setting_of(run: Mapping[str, Any]) -> str:
    return record.setting_path(Path(), run["identity"], run["setting"]).name


def _text(settings: Iterable[Mapping[str, Any]], runs: Iterable[Mapping[str, Any]]) -> str:
    """The lines of a pack: for each identity its settings, then its runs."""
    rows = [(setting["identity"], 0, 0, 0, _line(setting)) for setting in settings]
    rows += [(run["identity"], 1, run["split"], run["seed"], _line(run)) for run in runs]
    return "".join(f"{line}\n" for *_, line in sorted(rows))


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
