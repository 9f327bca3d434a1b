"""What the demo reads of its daemon."""

import socket
import threading

import pytest

from monitor.demo.play import read_segments


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", b"no HTTP\r\n\r\n", b"HTTP/1.1 503 -\r\n\r\n"],
    ids=["nothing", "cut off", "no HTTP", "not ready"],
)
def test_a_daemon_that_ends_while_it_answers_has_nothing_to_say(answer: bytes) -> None:
    """The demo then finds that it has ended, and tells its last words."""
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
