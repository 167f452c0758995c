"""What a cluster's runs are compared with."""

import os

import pytest
from pilots_harness import LONG, physml, records


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """The records of the same runs, made by one command on this machine."""
    folder = tmp_path_factory.mktemp("local")
    environment = os.environ | {"PHYSML_RESULTS": str(folder), "WANDB_MODE": "disabled"}
    done = physml(environment, *LONG, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return records(environment)
