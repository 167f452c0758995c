"""Commands whose runs are made by pilots of a real cluster, and what they have left in the shared folder."""

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONG = ["run", "-m", "experiment=lem/fitzhugh_nagumo-lstm", "trainer.epochs=300", "seed=0,1,2,3"]


def physml(environment, *arguments, **options):
    command = [sys.executable, "-m", "physml", *arguments]
    options |= {"cwd": ROOT, "text": True, "capture_output": True, "timeout": 900, "check": False}
    return subprocess.run(command, env=environment, **options)


def records(environment):
    """Name of the record -> its content without times and machine."""
    contents = {}
    for path in sorted(Path(environment["PHYSML_RESULTS"]).rglob("*-seed*.json")):
        content = json.loads(path.read_text())
        assert content["status"] == "finished", (path, content["reason"])
        contents[path.name] = content["metrics"], content["selected"]
    return contents


def outputs(environment):
    """How often each run says that it has finished."""
    files = Path(environment["PHYSML_RESULTS"]).rglob("output.txt")
    return {str(file): file.read_text().splitlines().count("finished") for file in files}


def pilots(environment):
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "pilot" in words and f"PHYSML_RESULTS={environment['PHYSML_RESULTS']}" in variables:
            pids.append(int(folder.name))
    return pids


def until(condition, seconds=240.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.5)
