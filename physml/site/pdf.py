"""A page as PDF, by a browser that is installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from physml.base.errors import ConfigError, RunFailed

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
LIMIT_S = 120


def write_pdf(html: Path, out: Path) -> None:
    """Print a page to a file, whole or not at all.

    Raises:
        ConfigError: There is no browser of the kind of Chromium.
        RunFailed: The browser made no file.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ConfigError(
            f"--pdf needs a browser, {', '.join(BROWSERS[:3])} or the like; else print what --html writes."
        )
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        made = Path(folder) / "page.pdf"
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/user",
        ]
        command += ["--no-sandbox"] if os.getuid() == 0 else []
        done = subprocess.run(
            [*command, f"--print-to-pdf={made}", html.resolve().as_uri()],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if not made.exists():
            raise RunFailed(f"{browser} made no PDF: {done.stderr.strip()[-300:] or done.returncode}")
        made.replace(out)
