"""Minimal privileges: the systemd unit, and a read-only file system with an unknown user."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from monitor.demo.example_data import write_example
from tests.conftest import ROOT
from tests.servers import cannot, needs_root, real_server

UNIT = ROOT / "deploy" / "systemd" / "cpcmon.service"
UNKNOWN_USER = 54321
"""A user id without an entry in /etc/passwd."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with an existing program, for systemd-analyze."""
    real_server("systemd-analyze")
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/cpcmon", "/bin/true"), encoding="utf-8")
    return file


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words], check=False, capture_output=True, text=True, timeout=60
    )


def test_d17_systemd_accepts_every_setting_of_the_unit(unit: Path) -> None:
    """Unknown values are reported only on standard error."""
    ran = analyze("verify", "--man=no", str(unit))
    assert (ran.returncode, ran.stderr) == (0, "")
    unit.write_text(unit.read_text(encoding="utf-8").replace("Type=notify", "Type=notifies"), encoding="utf-8")
    assert analyze("verify", "--man=no", str(unit)).stderr != ""


def test_d17_the_unit_is_hardened(unit: Path) -> None:
    """An exposure of at most 1.5 of 10; node_exporter as packaged by Debian has 9.2."""
    ran = analyze("security", "--offline=true", str(unit))
    found = re.search(r"Overall exposure level for cpcmon.service: (\d+\.\d)", ran.stdout)
    assert found, ran.stderr
    assert float(found.group(1)) <= 1.5


def test_d17_the_unit_has_the_required_settings() -> None:
    """Readiness, watchdog, a checked reload, no restart after a configuration error, no memory on disk, one port."""
    lines = UNIT.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    settings = [line for line in lines if line and not line.startswith(("#", "["))]
    for wanted in (
        *("Type=notify", "WatchdogSec=30s", "Restart=on-failure", "RestartPreventExitStatus=2"),
        *("DynamicUser=yes", "StateDirectory=cpcmon", "UMask=0077", "LimitCORE=0"),
        *("MemorySwapMax=0", "SocketBindDeny=any", "SocketBindAllow=tcp:9877"),
    ):
        assert wanted in settings
    check, reload = [line.partition("=")[2] for line in settings if line.startswith("ExecReload=")]
    assert check.endswith(" /usr/local/bin/cpcmon check-config /etc/cpcmon/config.yaml")
    assert reload == "/bin/kill -HUP $MAINPID"
    # It would hide /proc/stat, which the process metrics need.
    assert not any(line.startswith("ProcSubset") for line in settings)


@pytest.fixture
def place(calibrated: Path) -> Iterator[Path]:
    """A world-readable folder with the package and an example, and a private state folder."""
    folder = Path(tempfile.mkdtemp(prefix="cpcmon-confined-"))
    folder.chmod(0o755)
    try:
        shutil.copytree(ROOT / "monitor", folder / "app" / "monitor", ignore=shutil.ignore_patterns("__pycache__"))
        for empty in ("python", "site", "state"):
            (folder / empty).mkdir()
        write_example(folder / "example")
        shutil.copy(calibrated / "density.ref", folder / "density.ref")
        for one in folder.rglob("*"):
            one.chmod(0o755 if one.is_dir() else 0o644)
        (folder / "state").chmod(0o700)
        yield folder
    finally:
        shutil.rmtree(folder)


# A private mount namespace: every mount is read-only except for the state. Then another user without capabilities.
_CONFINE = """
set -eu
mount --make-rprivate /
mount --bind "$PYTHON_FOLDER" python
mount --bind "$SITE_FOLDER" site
mount --bind state state
here=$(pwd)
cut -d' ' -f5 /proc/self/mountinfo | sort -ur | while read -r point; do
  case "$point" in "$here/state" | /proc | /proc/*) continue ;; esac
  mount -o remount,bind,ro "$point" 2>/dev/null || true
done
cd /
exec setpriv --reuid "$UNKNOWN_USER" --regid "$UNKNOWN_USER" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
  env -i PATH=/usr/bin:/bin LANG=C.UTF-8 PYTHONPATH="$here/app:$here/site" PYTHONHOME="$here/python" \
  LD_LIBRARY_PATH="$here/python/lib" \
  sh -euc 'cd "$1"; shift; "$@"' confined "$here" "$@"
"""


def confined(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as an unknown user, with a read-only file system except for the state."""
    needs_root("mount everything read-only")
    for program in ("unshare", "setpriv", "mount"):
        real_server(program)
    if (refused := subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)).returncode != 0:
        cannot(f"THIS MACHINE PERMITS NO MOUNT NAMESPACES: {refused.stderr.decode().strip()}")
    os.chown(place / "state", UNKNOWN_USER, UNKNOWN_USER)
    folders = {"PYTHON_FOLDER": sys.base_prefix, "SITE_FOLDER": sysconfig.get_path("purelib")}
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", _CONFINE, "sh", *words],
        cwd=place,
        env={"PATH": os.environ["PATH"], "UNKNOWN_USER": str(UNKNOWN_USER), **folders},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_d18_the_command_has_no_capabilities_and_can_write_only_the_state(place: Path) -> None:
    elsewhere = "/tmp /var/tmp /dev/shm /run . app example"  # noqa: S108 - checks that they cannot be written
    script = f"for at in {elsewhere}; do ! touch $at/x 2>/dev/null || echo wrote $at; done; touch state/x; id -u"
    ran = confined(place, "sh", "-euc", f"{script}; grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status")
    assert ran.returncode == 0, ran.stderr
    none = "0000000000000000"
    assert ran.stdout.split() == [
        str(UNKNOWN_USER), "CapPrm:", none, "CapEff:", none, "CapBnd:", none, "NoNewPrivs:", "1",
    ]  # fmt: skip


@pytest.mark.slow
def test_d18_cpcmon_runs_confined(place: Path) -> None:
    """It prints its version, reads an example, stores its state and resumes."""
    python = f"python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    assert np.__file__.startswith(sysconfig.get_path("purelib"))
    ran = confined(place, python, "-m", "monitor", "--version")
    assert (ran.returncode, ran.stdout[:7], ran.stderr) == (0, "cpcmon ", "")
    watch = [python, "-m", "monitor", "watch", "example/inbox", "--reference", "density.ref", "--state", "state"]
    answers = [confined(place, *watch, "--once", "--segment-by", "site") for _ in range(2)]
    for ran in answers:
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"density all: [\d,]{3,} records, estimated accuracy 0\.\d+", ran.stdout)
    without_times = [re.sub(r"^\S+", "", ran.stdout, flags=re.MULTILINE) for ran in answers]
    assert without_times[0] == without_times[1]
    assert (place / "state" / "state.db").stat().st_uid == UNKNOWN_USER
