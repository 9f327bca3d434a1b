"""Real servers for tests: found, or skipped loudly; in CI a missing one is a failure."""

import os
import shutil
from typing import NoReturn

import pytest


def real_server(name: str) -> str:
    """Return where a program is."""
    found = shutil.which(name)
    if found is None:
        cannot(f"{name.upper()} IS NOT INSTALLED")
    return found


def needs_root(what: str) -> None:
    """Go on as root only."""
    if os.geteuid() != 0:
        cannot(f"NOT ROOT, to {what}")


def cannot(why: str) -> NoReturn:
    """Skip loudly what this machine cannot show; in CI, where nothing may be missing, fail."""
    message = f"{why}: what it would show is not shown"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
