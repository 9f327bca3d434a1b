"""What systemd is told, over real sockets."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.daemon.watchdog import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """What $NOTIFY_SOCKET says, and the socket behind it."""
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    # Paths of sockets must be short, and those of tests are not.
    name = f"/proc/self/fd/{folder}/notify" if request.param == "path" else f"@cpcmon-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(10)
        yield name, listening
    os.close(folder)


def test_each_message_is_one_datagram_of_the_protocol(manager: tuple[str, socket.socket]) -> None:
    """READY, STATUS, WATCHDOG, RELOADING with its time, STOPPING."""
    name, listening = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.status("3 models, 2 alerts firing")
    notifier.watchdog()
    notifier.stopping()
    heard = [listening.recv(4096) for _ in range(4)]
    assert heard == [b"READY=1", b"STATUS=3 models, 2 alerts firing", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_reload_says_when_it_began(manager: tuple[str, socket.socket]) -> None:
    """In microseconds of the monotonic clock, as `Type=notify-reload` wants it."""
    name, listening = manager
    before = time.monotonic_ns() // 1000
    Notifier.from_environment({"NOTIFY_SOCKET": name}).reloading()
    first, _, second = listening.recv(4096).decode().partition("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_a_status_cannot_hold_another_message(manager: tuple[str, socket.socket]) -> None:
    """Newlines, other controls and undecodable bytes are harmless; long texts are cut."""
    name, listening = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.status("a\nSTOPPING=1\r\n\x00b\udcff")
    notifier.status("x" * 10_000)
    assert listening.recv(4096) == b"STATUS=a STOPPING=1 b"
    assert len(listening.recv(4096)) < 600


@pytest.mark.parametrize("name", [None, "", "relative/path", "vsock:2:1234", "/nowhere/at/all", "@nobody-listens"])
def test_without_a_manager_nothing_happens(name: str | None) -> None:
    """On a laptop, in a container, and when the manager is gone."""
    notifier = Notifier.from_environment({} if name is None else {"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.watchdog()
    assert (notifier.address is None) == (name is None or name[:1] not in {"/", "@"})


def test_a_manager_that_does_not_read_is_not_waited_for(manager: tuple[str, socket.socket]) -> None:
    """Its queue is full: the signs are lost, and we go on."""
    name, _ = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    for _ in range(10_000):
        notifier.watchdog()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        pytest.param({}, None, id="not watched"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, 30.0, id="watched"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0, id="it is about us"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None, id="inherited from a parent"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="switched off"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="no number"),
    ],
)
def test_how_often_a_sign_of_progress_is_wanted(environment: dict[str, str], seconds: float | None) -> None:
    """None where nobody wants one."""
    assert Notifier.from_environment(environment).watchdog_seconds == seconds
