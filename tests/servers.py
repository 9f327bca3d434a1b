"""Programs that tests need: a missing one skips the test, and fails it in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def real_server(name: str) -> str:
    """Return the path of a program."""
    found = shutil.which(name)
    if found is None:
        cannot(f"{name.upper()} IS NOT INSTALLED")
    return found


def needs_root(what: str) -> None:
    """Skip the test unless it runs as root."""
    if os.geteuid() != 0:
        cannot(f"NOT ROOT, to {what}")


def cannot(why: str) -> NoReturn:
    """Skip the test; fail in CI."""
    message = f"{why}: the test cannot run"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
