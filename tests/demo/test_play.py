"""Reading the daemon's status, and the supervisor."""

import socket
import subprocess
import sys
import threading

import pytest

from monitor.demo.play import Narration, read_segments, read_series
from monitor.demo.story import LABELS
from tests.demo.process import LIMIT


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", b"no HTTP\r\n\r\n", b"HTTP/1.1 503 -\r\n\r\n"],
    ids=["nothing", "cut off", "no HTTP", "not ready"],
)
def test_an_incomplete_answer_is_ignored(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answers() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        daemon = threading.Thread(target=answers, daemon=True)
        daemon.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert read_segments(url) is None
        assert read_series(url) == {}
        daemon.join(60.0)


def test_labels_are_narrated_once_all_of_a_block_came() -> None:
    """What the audit and the estimate say of the same exams, and the biased choice of all labelled cases."""
    said: list[str] = []
    narration, judged = Narration(said.append, 0.88), "cpcmon_track_record_latest_"
    series = {
        f"{judged}timestamp_seconds": 1_790_000_100.0,
        f"{judged}realised_ratio": 0.71,
        f"{judged}estimated_ratio": 0.73,
        "cpcmon_labelled_records": 431.0,
        "cpcmon_realised_accuracy_ratio": 0.5512,
    }
    for came_until in (1_790_000_099.0, 1_790_000_100.0, 1_790_000_200.0):
        narration.labels(130.0, series, came_until)
    narration.labels(150.0, {}, 1_790_000_200.0)
    first, second = said
    assert first == f"  2:10  {LABELS}"
    assert second == (
        "  2:10  N2 at Northlake: labels of the audit say 0.710, the estimate said 0.730; of all 431 labelled cases 0.551,"
        " a biased choice"
    )


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
