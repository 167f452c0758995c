"""What a cluster's runs are compared with."""

import os
import signal

import pytest
from pilots_harness import LONG, physml, records

# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """The records of the same runs, made by one command on this machine."""
    folder = tmp_path_factory.mktemp("local")
    environment = os.environ | {"PHYSML_RESULTS": str(folder), "WANDB_MODE": "disabled"}
    done = physml(environment, *LONG, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return records(environment)
