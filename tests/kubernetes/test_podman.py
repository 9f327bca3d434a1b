"""The podman fixture cleans up after a test that fails."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.kubernetes.podman import BASE, podman


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: no container is run")
def test_a_failed_test_leaves_no_container_and_no_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would stay until the machine reboots."""
    # Not pytest's folder: podman rejects paths of more than 50 characters.
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
