"""Reading the daemon's status, and the supervisor."""

import socket
import subprocess
import sys
import threading

import pytest

from monitor.demo.play import read_segments
from tests.demo.process import LIMIT


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", b"no HTTP\r\n\r\n", b"HTTP/1.1 503 -\r\n\r\n"],
    ids=["nothing", "cut off", "no HTTP", "not ready"],
)
def test_an_incomplete_answer_is_ignored(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answers() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        daemon = threading.Thread(target=answers, daemon=True)
        daemon.start()
        assert read_segments(f"http://127.0.0.1:{server.getsockname()[1]}/") is None
        daemon.join(60.0)


_IGNORES_SIGTERM = """
import signal, time
from monitor.demo import supervisor
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True))
supervisor.PATIENCE_SECONDS = 0.2
supervisor.stop_at_end_of_input()
deadline = time.monotonic() + 60.0
while time.monotonic() < deadline:
    time.sleep(0.1)
"""


def test_the_supervisor_ends_a_daemon_that_ignores_sigterm() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _IGNORES_SIGTERM],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ran.stdout, ran.returncode) == (b"SIGTERM\n", 1), ran.stderr
