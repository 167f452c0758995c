"""Questions to git that leave the clone as it is."""

import subprocess
from pathlib import Path

ANSWER_S, END_S = 20.0, 5.0


def asked(folder: Path, *arguments: str) -> str | None:
    """The answer of git about a clone; None where there is none, as without git, or in a folder of others.

    git takes no lock that it can do without, and one that is too slow is asked to end before it is killed:
    killed at once, it would leave `.git/index.lock`, with which no other git works.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None
    with process:
        try:
            answer, _ = process.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return None
    return answer.strip() if process.returncode == 0 else None
