"""A machine booted by a real systemd: systemd-nspawn on an overlay of this one, with changes in memory.

All mounts are in their own namespace, so that nothing remains afterwards.
"""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.systemd.cgroups import machine_groups

LIMIT = 60.0
"""A timeout for any step, long enough for a busy build server."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of a root login on Debian."""

# Without the enabled services and any cpcmon of this machine.
_BOOT = """
set -eu
for group in $MACHINE_GROUPS; do echo $$ > "$group/cgroup.procs"; done
mount -t tmpfs -o mode=0755 cpcmon-machine "$MOUNT_POINT"
cd "$MOUNT_POINT"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$MOUNT_POINT/upper,workdir=$MOUNT_POINT/work" root
rm -rf root/etc/systemd/system/* root/etc/cpcmon root/opt/cpcmon root/usr/local/bin/cpcmon root/var/lib/cpcmon \
  root/var/lib/private root/var/log/journal root/etc/fstab
echo "$MACHINE_ID" > root/etc/machine-id
# Control groups v2 as in Debian 12, whatever this machine uses.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
# On SIGTERM nspawn stops the machine; killed, it would leave it running.
code=133
# nspawn exits with 133 when the machine reboots.
while [ $code = 133 ]; do
  code=0
  setpriv --pdeathsig TERM systemd-nspawn --directory=root --machine="$NAME" --boot --register=no --keep-unit \
    --private-network --link-journal=no --console=pipe "$@" systemd.unit=multi-user.target || code=$?
done
exit $code
"""


class CannotBoot(Exception):
    """No machine can be booted here; the text names what is missing."""


class Machine:
    """A running machine, to run commands as root."""

    def __init__(self, shell: subprocess.Popen[bytes], log: Path) -> None:
        self._shell = shell
        """The parent of nspawn."""
        self._log = log

    @property
    def leader(self) -> int | None:
        """The init process of the machine; None while there is none."""
        nspawn = _child(self._shell.pid)
        first = None if nspawn is None else _child(nspawn)
        # While nspawn prepares a boot, its child still has the namespaces of this computer.
        return first if first is not None and _pids(first)[1:] == ["1"] else None

    def run(self, script: str, *, seconds: float = 3 * LIMIT) -> subprocess.CompletedProcess[str]:
        """Run a shell script on the machine, up to the first failure."""
        leader = self.leader
        assert leader is not None, "expected a running machine, found none"
        enter = ["nsenter", "--target", str(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"]
        return subprocess.run(
            [*enter, *clean, "bash", "-euo", "pipefail", "-c", f"cd\n{script}"],
            check=False, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def check_output(self, script: str) -> str:
        """Run a script that must succeed; return its output."""
        ran = self.run(script)
        assert ran.returncode == 0, f"exit code {ran.returncode} of:\n{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout.strip()

    def path(self, name: str) -> Path:
        """Return the path of a file of the machine on this computer."""
        return Path(f"/proc/{self.leader}/root{name}")

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file atomically."""
        new = self.path(f"{name}.tmp")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.chmod(mode)
        new.rename(self.path(name))

    def wait_until_up(self) -> None:
        """Wait until the boot is complete."""
        deadline = time.monotonic() + LIMIT
        while True:
            if self._shell.poll() is not None or time.monotonic() > deadline:
                log = " ".join(self._log.read_text(errors="replace").split()) or "nothing"
                raise CannotBoot(f"expected root with all rights, tmpfs and overlay file systems; found {log}")
            # Some units fail in a container.
            if self.leader is not None and self.run("systemctl is-system-running").stdout.strip() in {
                "running",
                "degraded",
            }:
                return
            time.sleep(0.1)

    def reboot(self) -> None:
        """Reboot with the same disk."""
        before = self.leader
        self.run("systemctl reboot")
        wait_until(lambda: self.leader not in {None, before}, lambda: f"did not boot again: {self._log.read_text()}")
        self.wait_until_up()


def wait_until(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait for a condition; fail with the text of `otherwise`."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.25)


@contextmanager
def boot(folder: Path, software: Path | None = None) -> Iterator[Machine]:
    """Boot a machine; raises CannotBoot.

    `software` is mounted read-only at /opt/cpcmon.
    """
    _check_requirements()
    name = f"cpcmon-{secrets.token_hex(4)}"
    mount_point, log_path = folder / name, folder / f"{name}.log"
    mount_point.mkdir(parents=True)
    with ExitStack() as stack:
        try:
            groups = stack.enter_context(machine_groups(name))
        except OSError as error:
            raise CannotBoot(f"expected control groups that root may divide, found {error}") from error
        environment = {
            "PATH": PATH,
            "NAME": name,
            "MOUNT_POINT": str(mount_point),
            "MACHINE_ID": secrets.token_hex(16),
            "MACHINE_GROUPS": " ".join(map(str, groups)),
        }
        boot = ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "sh", "-c", _BOOT, "boot"]
        if software is not None:
            boot.append(f"--bind-ro={software}:/opt/cpcmon")
        with log_path.open("wb") as log:
            # In its own session: Ctrl-C must reach pytest only.
            shell = subprocess.Popen(
                boot, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        stack.enter_context(shell)
        machine = Machine(shell, log_path)
        stack.callback(_end, shell, machine)
        machine.wait_until_up()
        yield machine


def _end(shell: subprocess.Popen[bytes], machine: Machine) -> None:
    # All processes of the machine die with init; then nspawn and the shell exit.
    if (leader := machine.leader) is not None:
        os.kill(leader, signal.SIGKILL)
    try:
        shell.wait(LIMIT)
    except subprocess.TimeoutExpired:
        shell.kill()


def _child(process: int) -> int | None:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _pids(process: int) -> list[str]:
    """Return the ids of a process: here, then on the machine."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return []
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def _check_requirements() -> None:
    if os.geteuid() != 0:
        raise CannotBoot("expected to be root, found another user")
    programs = {"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "setpriv": "util-linux", "curl": "curl"}
    for program, package in programs.items():
        # Some run here, and some on the machine.
        if shutil.which(program) is None or shutil.which(program, path=PATH) is None:
            raise CannotBoot(f"expected {program}, found none: apt-get install {package}")
