"""Real servers for tests: found, or skipped loudly; in CI a missing one is a failure."""

import os
import shutil

import pytest


def real_server(name: str) -> str:
    """Return where a program is."""
    found = shutil.which(name)
    if found is None:
        message = f"{name.upper()} IS NOT INSTALLED: what it would show is not shown"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found
