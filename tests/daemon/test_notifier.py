"""Notifications to systemd over real sockets."""

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
    """The value of $NOTIFY_SOCKET, and its socket."""
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    # A socket path must be short, unlike tmp_path.
    name = f"/proc/self/fd/{folder}/notify" if request.param == "path" else f"@cpcmon-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(10)
        yield name, listening
    os.close(folder)


def test_each_message_is_one_datagram(manager: tuple[str, socket.socket]) -> None:
    name, listening = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.status("3 models, 2 alerts firing")
    notifier.watchdog()
    notifier.stopping()
    received = [listening.recv(4096) for _ in range(4)]
    assert received == [b"READY=1", b"STATUS=3 models, 2 alerts firing", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_reload_has_its_start_time(manager: tuple[str, socket.socket]) -> None:
    """In microseconds of the monotonic clock, as `Type=notify-reload` requires."""
    name, listening = manager
    before = time.monotonic_ns() // 1000
    Notifier.from_environment({"NOTIFY_SOCKET": name}).reloading()
    first, _, second = listening.recv(4096).decode().partition("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_a_status_cannot_contain_another_message(manager: tuple[str, socket.socket]) -> None:
    """Control characters and undecodable bytes are replaced; long texts are cut."""
    name, listening = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.status("a\nSTOPPING=1\r\n\x00b\udcff")
    notifier.status("x" * 10_000)
    assert listening.recv(4096) == b"STATUS=a STOPPING=1 b"
    assert len(listening.recv(4096)) < 600


@pytest.mark.parametrize("name", [None, "", "relative/path", "vsock:2:1234", "/nowhere/at/all", "@without-listener"])
def test_without_a_manager_nothing_is_sent(name: str | None) -> None:
    notifier = Notifier.from_environment({} if name is None else {"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.watchdog()
    assert (notifier.address is None) == (name is None or name[:1] not in {"/", "@"})


def test_a_full_queue_of_the_manager_does_not_block(manager: tuple[str, socket.socket]) -> None:
    name, _ = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": name})
    for _ in range(10_000):
        notifier.watchdog()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        pytest.param({}, None, id="not watched"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, 30.0, id="watched"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0, id="for this process"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None, id="for another process"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="disabled"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="invalid"),
    ],
)
def test_the_watchdog_interval(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier.from_environment(environment).watchdog_seconds == seconds
