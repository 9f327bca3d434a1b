"""A machine booted by a real systemd: systemd-nspawn over a view of this one, whose changes go into memory.

All mounts are made in a namespace of its own, so that nothing of it is left when it ends, however it ends.
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

from tests.systemd.cgroups import own_groups

LIMIT = 60.0
"""Seconds that anything may take on a build server that is busy with other tests."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where root looks for programs after it has logged in on Debian."""

# Enabled services of this machine, and a cpcmon that may be installed on it, are not those of the new one.
_BOOT = """
set -eu
for group in $GROUPS_OF_ITS_OWN; do echo $$ > "$group/cgroup.procs"; done
mount -t tmpfs -o mode=0755 cpcmon-machine "$PLACE"
cd "$PLACE"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PLACE/upper,workdir=$PLACE/work" root
rm -rf root/etc/systemd/system/* root/etc/cpcmon root/opt/cpcmon root/usr/local/bin/cpcmon root/var/lib/cpcmon \
  root/var/lib/private root/var/log/journal root/etc/fstab
echo "$MACHINE_ID" > root/etc/machine-id
# Only the systemd that Debian 12 boots with: control groups v2, whatever this machine has.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
# Asked to end, nspawn ends the machine; killed, it would leave it running.
code=133
# 133 is how nspawn says that the machine wants to boot again.
while [ $code = 133 ]; do
  code=0
  setpriv --pdeathsig TERM systemd-nspawn --directory=root --machine="$NAME" --boot --register=no --keep-unit \
    --private-network --link-journal=no --console=pipe "$@" systemd.unit=multi-user.target || code=$?
done
exit $code
"""


class CannotBoot(Exception):
    """This computer permits no machine; the text says what is missing."""


class Machine:
    """A machine on which commands are run as root."""

    def __init__(self, shell: subprocess.Popen[bytes], said: Path) -> None:
        self._shell = shell
        """It starts nspawn, which starts the machine."""
        self._said = said

    @property
    def leader(self) -> int | None:
        """The process that is number 1 on the machine; None while there is none."""
        nspawn = _child(self._shell.pid)
        first = None if nspawn is None else _child(nspawn)
        # While nspawn prepares a boot its child is a process of this computer, on which no command may be run.
        return first if first is not None and _numbers(first)[1:] == ["1"] else None

    def run(self, script: str, *, seconds: float = 3 * LIMIT) -> subprocess.CompletedProcess[str]:
        """Run commands in a shell on the machine, the first failure ends them; return what they did."""
        leader = self.leader
        assert leader is not None, "expected a machine that runs, found none"
        enter = ["nsenter", "--target", str(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"]
        return subprocess.run(
            [*enter, *clean, "bash", "-euo", "pipefail", "-c", f"cd\n{script}"],
            check=False, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def done(self, script: str) -> str:
        """Run commands that must succeed; return what they printed."""
        ran = self.run(script)
        assert ran.returncode == 0, f"exit code {ran.returncode} of:\n{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout.strip()

    def path(self, name: str) -> Path:
        """Return where a file of the machine is seen from here."""
        return Path(f"/proc/{self.leader}/root{name}")

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file, as a whole or not at all."""
        new = self.path(f"{name}.tmp")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.chmod(mode)
        new.rename(self.path(name))

    def wait_until_up(self) -> None:
        """Wait until everything that starts at boot has started."""
        deadline = time.monotonic() + LIMIT
        while True:
            if self._shell.poll() is not None or time.monotonic() > deadline:
                said = " ".join(self._said.read_text(errors="replace").split()) or "nothing"
                raise CannotBoot(f"expected root with all rights, tmpfs and overlay file systems; it said {said}")
            # Some units of a whole computer fail in a container: that is no concern of ours.
            if self.leader is not None and self.run("systemctl is-system-running").stdout.strip() in {
                "running",
                "degraded",
            }:
                return
            time.sleep(0.1)

    def reboot(self) -> None:
        """Shut down and boot again, with the same disk."""
        before = self.leader
        self.run("systemctl reboot")
        wait_until(lambda: self.leader not in {None, before}, lambda: f"did not boot again: {self._said.read_text()}")
        self.wait_until_up()


def wait_until(reached: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait for an outcome; fail with what is said otherwise."""
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.25)


@contextmanager
def booted(folder: Path, software: Path | None = None) -> Iterator[Machine]:
    """Boot a machine, and leave nothing of it behind; raises CannotBoot with what is missing.

    Software is what it has in /opt/cpcmon from the beginning, and cannot change.
    """
    _check_rights()
    name = f"cpcmon-{secrets.token_hex(4)}"
    place, said = folder / name, folder / f"{name}.log"
    place.mkdir(parents=True)
    with ExitStack() as stack:
        try:
            groups = stack.enter_context(own_groups(name))
        except OSError as error:
            raise CannotBoot(f"expected control groups that root may divide, found {error}") from error
        environment = {
            "PATH": PATH,
            "NAME": name,
            "PLACE": str(place),
            "MACHINE_ID": secrets.token_hex(16),
            "GROUPS_OF_ITS_OWN": " ".join(map(str, groups)),
        }
        boot = ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "sh", "-c", _BOOT, "boot"]
        if software is not None:
            boot.append(f"--bind-ro={software}:/opt/cpcmon")
        with said.open("wb") as log:
            # A session of its own: Ctrl-C and time limits are for pytest, whose end it notices.
            shell = subprocess.Popen(
                boot, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        stack.enter_context(shell)
        machine = Machine(shell, said)
        stack.callback(_end, shell, machine)
        machine.wait_until_up()
        yield machine


def _end(shell: subprocess.Popen[bytes], machine: Machine) -> None:
    # Everything on the machine ends with its first process, then nspawn does, then the shell.
    if (leader := machine.leader) is not None:
        os.kill(leader, signal.SIGKILL)
    try:
        shell.wait(LIMIT)
    except subprocess.TimeoutExpired:
        shell.kill()


def _child(process: int) -> int | None:
    try:
        numbers = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return int(numbers[0]) if numbers else None


def _numbers(process: int) -> list[str]:
    """Return the numbers of a process: the one here, then the one on the machine."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return []
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def _check_rights() -> None:
    if os.geteuid() != 0:
        raise CannotBoot("expected to be root, found another user")
    programs = {"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "setpriv": "util-linux", "curl": "curl"}
    for program, package in programs.items():
        # In both, since some are run here and some for the machine.
        if shutil.which(program) is None or shutil.which(program, path=PATH) is None:
            raise CannotBoot(f"expected {program}, found none: apt-get install {package}")
