"""An exported folder in a repository of the Hugging Face hub. Never tried against the real hub."""

import re
from collections.abc import Sequence
from pathlib import Path

from physml.base.errors import InputError, PhysmlError, needed_by

REPOSITORY = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


class PushFailed(PhysmlError):
    """The hub did not take the folder, which lies on this machine all the same."""

    exit_code = 1


def check_repository(name: str) -> None:
    """InputError unless a name can be a repository; said before anything is exported."""
    if not REPOSITORY.fullmatch(name):
        raise InputError(f"--push needs a repository OWNER/NAME; got {name!r}.")


def push(folder: Path, names: Sequence[str], repository: str, *, private: bool) -> str:
    """Upload these files of a folder; the address of the commit.

    The token is that of `hf auth login` or HF_TOKEN. A repository that is not there is made.
    Errors: MissingExtra without huggingface_hub; PushFailed with the hub's reason.
    """
    with needed_by("--push"):
        from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repository, repo_type="model", private=private, exist_ok=True)
        made = api.upload_folder(
            repo_id=repository,
            repo_type="model",
            folder_path=folder,
            allow_patterns=list(names),
            commit_message="Exported by physml",
        )
    except Exception as error:  # its own errors, and those of its HTTP client, which differ by version
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise PushFailed(
            f"the hub did not take {repository}: {reason}. The files are in {folder}; log in with "
            "`hf auth login`, then run the same command with --force."
        ) from error
    return str(getattr(made, "commit_url", made))
