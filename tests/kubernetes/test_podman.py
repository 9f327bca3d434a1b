"""The tests' own podman: it leaves nothing behind, whatever becomes of a test."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.kubernetes.podman import BASE, podman


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: no container is run")
def test_a_test_that_fails_leaves_no_container_and_no_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be there for as long as the machine runs."""
    # Not pytest's folder: podman takes no path that is longer than 50 characters.
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with pytest.raises(RuntimeError, match="the test failed"), podman() as engine:  # noqa: PT012 - it must fail within
            engine.start(arguments=["python3", "-c", "import time; time.sleep(60)"], image=BASE)
            assert folder in _mounts()
            raise RuntimeError("the test failed")
        assert folder not in _mounts()
        assert not list(Path(folder).iterdir())


def _mounts() -> str:
    return Path("/proc/self/mounts").read_text(encoding="utf-8")
