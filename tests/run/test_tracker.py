"""The copy of a run in W&B: made with the real client, offline, and read back from its file."""

import json
import logging
import netrc
import os
import signal
import struct
import sys
import time
from pathlib import Path

import pytest
import run_harness as h
import wandb
from wandb.proto import wandb_internal_pb2 as pb

from physml.config.conf_files import without_places
from physml.records import record
from physml.report.figure import pictures
from physml.run.trackers import wandb as tracker
from physml.run.trackers.tracker import TrackedRun

OFFLINE = ("tracker.kind=wandb", "tracker.mode=offline")
BLOCK, HEADER = 2**15, 7  # of the LevelDB log format that .wandb files have


def records(path):
    """The records of a .wandb file: fragments of blocks, put together and parsed with W&B's own protocol."""
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    at, whole = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + HEADER])
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # a whole record, or its last fragment
            yield pb.Record.FromString(whole)
            whole = b""


def values(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


class Copy:
    """What the client wrote of one run."""

    def __init__(self, spec):
        wandb.teardown()  # as at the end of a process: the file is whole then
        files = sorted(spec.work_folder.glob("wandb/offline-run-*/run-*.wandb"))
        assert files, "no offline run was written"
        self.files, entries = files, list(records(files[-1]))
        (self.run,) = [r.run for r in entries if r.WhichOneof("record_type") == "run"]
        self.config = {k: v for k, v in values(self.run.config.update).items() if k != "_wandb"}
        self.history = [values(r.history.item) for r in entries if r.WhichOneof("record_type") == "history"]
        self.summary = {}
        for r in entries:
            self.summary |= values(r.summary.update)
        self.ended = [r.exit.exit_code for r in entries if r.WhichOneof("record_type") == "exit"]
        self.folder = files[-1].parent


def test_a_run_is_copied_whole(monkeypatch):
    spec = h.spec_of(h.odd(*OFFLINE, "tracker.tags=[own]", "trainer.test_every=2", "runtime.save_model=true"))
    recorded = h.make(spec, tables=["lem-4", "lem-9"])
    copy = Copy(spec)
    assert copy.run.project == "physml" and copy.run.job_type == "smoke"
    assert copy.run.run_group == f"adhoc/odd-lstm@{spec.place.identity}"
    assert list(copy.run.tags) == ["lem-4", "lem-9", "model-lstm", "own"]
    about = copy.config.pop("about")
    assert about["identity"] == spec.place.identity and about["commit"] and about["model"] == "lstm"
    assert about["cells"] == [] and about["sweep"] is None
    assert copy.run.run_id == recorded["wandb"] and spec.place.stem in copy.run.run_id
    assert copy.config == json.loads(json.dumps(without_places(spec.config)))
    rows = [json.loads(line) for line in (spec.work_folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert len(copy.history) == 3 and copy.history == [c | r for c, r in zip(copy.history, rows, strict=True)]
    assert copy.summary["status"] == "finished" and copy.summary["n_parameters"] == recorded["n_parameters"]
    assert copy.summary["best/test/mse"] == recorded["metrics"]["best"]["test"]["mse"]
    assert copy.history[-1]["curves/_type"] == "image-file"
    picture = copy.folder / "files" / copy.history[-1]["curves/path"]
    assert picture.read_bytes() == (spec.work_folder / "curves.png").read_bytes()
    for path in (spec.record_path, spec.work_folder / "model.safetensors"):
        assert (copy.folder / "files" / path.name).read_bytes() == path.read_bytes()
    assert copy.ended == [0]


def test_a_stopped_run_goes_on_under_the_same_name(monkeypatch, tmp_path):
    spec = h.spec_of(h.odd(*OFFLINE, step_s=0.1))
    process = h.start(spec)
    h.until(lambda: h.begun(spec) and (spec.work_folder / "metrics.jsonl").stat().st_size > 0)
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C on a terminal reaches the client's own process too
    assert process.wait() == 75
    first = Copy(spec)
    assert first.ended == [75] and first.summary["status"] == "preempted"
    assert h.start(spec).wait() == 0
    second = Copy(spec)
    assert len(second.files) == 2 and second.run.run_id == first.run.run_id
    epochs = [row["epoch"] for c in (first, second) for row in c.history if "epoch" in row]
    assert epochs == [1, 2, 3] and second.summary["status"] == "finished"


@pytest.mark.parametrize("moment", ["init", "log", "finish", "plot"])
def test_a_fault_of_the_tracker_hurts_nothing(moment, monkeypatch, caplog):
    want = h.make(h.spec_of(h.odd()))
    monkeypatch.setenv("PHYSML_RESULTS", str(Path(want["path"]).parents[3] / "tracked"))

    class Faulty:
        id, summary = "some-id", {}

        def log(self, *_, **__):
            if moment == "log":
                raise RuntimeError("no more of this")

        def save(self, *_, **__):
            pass

        def finish(self, **_):
            if moment == "finish":
                raise BrokenPipeError("the service is gone")

    def init(**_):
        if moment == "init":
            raise wandb.errors.CommError("no service")
        return Faulty()

    def full_disk(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(wandb, "init", init)
    if moment == "plot":
        monkeypatch.setattr(pictures, "plot_rows", full_disk)
    caplog.set_level(logging.WARNING)
    tracked = h.make(h.spec_of(h.odd(*OFFLINE)))
    assert h.numbers(tracked) == h.numbers(want)
    on_disk = record.read(Path(tracked["path"]))
    assert on_disk["status"] == "finished" and on_disk["wandb"] == (None if moment == "init" else "some-id")
    warned = [r.message for r in caplog.records if r.name == "physml.run.trackers.tracker"]
    assert len(warned) == (2 if moment == "log" else 1)  # not once per row: once, and for the plot
    assert all(text.endswith("The run goes on.") for text in warned)


def test_a_missing_client_hurts_nothing(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    recorded = h.make(h.spec_of(h.odd(*OFFLINE)))
    assert recorded["status"] == "finished" and recorded["wandb"] is None
    assert "W&B init failed: ModuleNotFoundError" in caplog.text


def test_nobody_reachable_means_offline(monkeypatch, caplog):
    """With a key, but W&B cannot be reached: one attempt, then offline. Nobody is asked anything."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(tracker, "INIT_S", 2.0)
    wandb.teardown()  # so that it reads the environment anew
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked something"))
    spec = h.spec_of(h.odd("tracker.kind=wandb"))
    began = time.monotonic()
    assert h.make(spec)["status"] == "finished"
    assert time.monotonic() - began < 30.0
    assert "W&B init failed" in caplog.text and Copy(spec).ended == [0]


def test_without_a_login_the_copy_is_made_later_and_without_a_tracker_never(nobody, monkeypatch):
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("an offline run that nobody chose"))
    spec = h.spec_of(h.odd("tracker.kind=wandb"))
    assert h.make(spec)["wandb"] is None
    assert not (spec.work_folder / "wandb").exists() and not (spec.work_folder / "curves.png").exists()
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("not asked for"))
    assert h.make(h.spec_of(h.odd("seed=1")))["wandb"] is None


@pytest.mark.parametrize(
    ("mode", "variable", "value"),
    [
        ("offline", "OTHER", ""),
        ("online", "OTHER", ""),
        ("auto", "WANDB_MODE", "offline"),
        ("auto", "WANDB_API_KEY", "0" * 40),
        ("auto", "WANDB_SWEEP_ID", "abc"),
    ],
)
def test_a_copy_is_made_at_once_if_mode_key_or_sweep_says_so(mode, variable, value, nobody, monkeypatch):
    assert tracker.made_later("auto")
    monkeypatch.setenv(variable, value)
    assert not tracker.made_later(mode)


# ---------------------------------------------------------------------------- online or offline


def test_without_a_key_everything_is_offline_and_with_one_in_netrc_too_online(nobody, caplog, monkeypatch):
    assert [tracker.mode_of(m) for m in ("auto", "offline")] == ["offline", "offline"] and not caplog.text
    assert tracker.mode_of("online") == "offline"
    assert "not logged in, so this run stays offline" in caplog.text
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert [tracker.mode_of(m) for m in ("auto", "online", "offline")] == ["online", "online", "offline"]
    monkeypatch.delenv("WANDB_API_KEY")
    for host in ("api.wandb.ai", "api.forge.coreweave.com"):
        nobody.write_text(f"machine {host}\n login user\n password {'0' * 40}\n")
        assert tracker.mode_of("auto") == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert tracker.mode_of("auto") == "offline"
    nobody.write_text("machine\n")
    with pytest.raises(netrc.NetrcParseError):
        netrc.netrc(str(nobody))
    assert tracker.mode_of("auto") == "offline"


WISHES = {"offline": "offline", "dryrun": "offline", "disabled": "disabled", "online": "offline"}


@pytest.mark.parametrize(("wish", "mode"), WISHES.items())
def test_the_environment_decides_first(wish, mode, nobody, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", wish)
    assert tracker.mode_of("auto") == mode


def test_a_copy_says_to_which_cells_its_run_belongs():
    spec = h.spec_of(["experiment=lem/fitzhugh_nagumo-lem", "tracker.tags=[own]"])
    run = TrackedRun.of_spec(spec, ["lem-4", "sweep-1234abcd"])
    assert run.tags == ["lem-4", "sweep-1234abcd", "paper-lem", "task-fitzhugh_nagumo", "model-lem", "own"]
    assert {"table": "lem-4", "row": "LEM", "column": "official"} in run.about["cells"]
    other = TrackedRun.of_spec(spec, ["lem-fig-4", "a-table-at-a-path"])
    assert other.about["cells"] == [] and other.about["sweep"] is None, "a figure's runs have copies too"
    assert run.about["sweep"] == "sweep-1234abcd" and run.about["experiment"] == "lem/fitzhugh_nagumo-lem"
    kept = {"path": "x.json", "experiment": spec.config["experiment"], "identity": spec.place.identity}
    kept |= {"split": 0, "seed": 0, "config": spec.config, "choices": spec.choices, "code": {"commit": "abc"}}
    again = TrackedRun.of_record(kept, run.keys, ["lem-4"])
    assert again.about["cells"] == run.about["cells"] and again.about["commit"] == "abc"
