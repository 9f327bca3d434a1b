"""D4: half-open clients, slow senders, and clients that do not read."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from monitor.web.server.http_connection import HttpConnection
from monitor.web.server.limits import Closed, UnsentResponses, WebCounters, WebLimits
from monitor.web.server.request import Page, Response
from monitor.web.server.web_config import WebSettings
from tests.waiting import wait_until
from tests.web.clients import everything, still_open
from tests.web.conftest import TLS, Serve

pytestmark = pytest.mark.slow

HALF = b"GET /met"


def _web_threads() -> int:
    return sum(thread.name.startswith("web") for thread in threading.enumerate())


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("data", [b"", HALF], ids=["silent", "half a line"])
def test_d4_two_hundred_half_open_clients_do_not_block_others(
    serve: Serve,
    web_config: Callable[[str], Path],
    trusting: ssl.SSLContext,
    data: bytes,
    *,
    encrypted: bool,
) -> None:
    """A scrape is answered even without timeouts, and the number of threads is bounded."""
    client = serve(web_config=web_config(TLS) if encrypted else None, request_seconds=3600.0)
    context = trusting if encrypted else None
    client.ask(tls=context)
    half_open = [client.connect(data) for _ in range(200)]
    answers = [client.ask(tls=context, timeout=60.0) for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert _web_threads() <= 32
    closed = client.server.counts().closed
    # A TLS server closes plaintext connections at once.
    assert (closed[Closed.CAP] >= 200 - WebLimits().connections) == (not (encrypted and data))
    client.server.stop()
    assert still_open(half_open, 60.0) == 0


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_d4_half_open_clients_time_out(serve: Serve, web_config: Callable[[str], Path], *, encrypted: bool) -> None:
    client = serve(web_config=web_config(TLS) if encrypted else None, request_seconds=0.5)
    half_open = [client.connect() for _ in range(20)]
    assert still_open(half_open, 60.0) == 0
    why = Closed.HANDSHAKE_FAILED if encrypted else Closed.HEADER_TIMEOUT
    assert client.wait_for_closed(why, 20) == 20


def test_d4_half_a_request_after_the_handshake_times_out(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext
) -> None:
    """Handshake and request share one timeout."""
    client = serve(web_config=web_config(TLS), request_seconds=0.5)
    with trusting.wrap_socket(client.connect(), server_hostname="localhost") as encrypted:
        encrypted.sendall(HALF)
        assert encrypted.recv(100) == b""
    assert client.wait_for_closed(Closed.HEADER_TIMEOUT) == 1


def test_d4_sending_byte_by_byte_gains_no_time(serve: Serve) -> None:
    client = serve(request_seconds=0.5)
    slow = client.connect(b"GET /metrics HTTP/1.1\r\nX: ")
    slow.settimeout(0.05)
    end = time.monotonic() + 60.0
    closed = False
    while not closed and time.monotonic() < end:
        try:
            slow.sendall(b"a")
            closed = slow.recv(100) == b""
        except TimeoutError:
            continue
        except OSError:
            closed = True
    assert closed
    assert client.wait_for_closed(Closed.HEADER_TIMEOUT) == 1


def test_d4_a_client_that_does_not_read_times_out(serve: Serve) -> None:
    client = serve(write_seconds=0.5, write_bytes_per_second=1 << 30)
    deaf = client.connect()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.wait_for_closed(Closed.WRITE_TIMEOUT) == 1
    assert client.ask().status == 200


def test_d4_a_client_that_does_not_read_times_out_under_tls(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext
) -> None:
    """Encrypted but unsent data does not count as sent."""
    client = serve(web_config=web_config(TLS), write_seconds=0.5, write_bytes_per_second=1 << 30)
    deaf = trusting.wrap_socket(client.connect(), server_hostname="localhost")
    client.sockets.append(deaf)
    deaf.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.wait_for_closed(Closed.WRITE_TIMEOUT) == 1
    assert client.ask(tls=trusting).status == 200


def test_d4_a_slow_reader_gets_the_whole_page_under_tls(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext
) -> None:
    """The close timeout begins when the page is sent, not when it is encrypted."""
    client = serve(web_config=web_config(TLS), linger_seconds=0.3)
    with trusting.wrap_socket(client.connect(), server_hostname="localhost") as slow:
        slow.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        time.sleep(1.0)
        head, _, body = everything(slow).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert len(body) == 32 << 20


def test_a_tls_connection_is_idle_after_its_response(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext
) -> None:
    client = serve(web_config=web_config(TLS), idle_seconds=0.3, write_seconds=5.0)
    with trusting.wrap_socket(client.connect(), server_hostname="localhost") as kept:
        kept.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(12) == b"HTTP/1.1 200"
        assert client.wait_for_closed(Closed.IDLE) == 1
    assert client.server.counts().closed[Closed.WRITE_TIMEOUT] == 0


def test_d4_the_slowest_reader_is_closed_for_a_new_client(serve: Serve) -> None:
    client = serve(connections=4, stalled_seconds=0.2)
    for _ in range(4):
        deaf = client.connect()
        deaf.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
    end = time.monotonic() + 10.0
    status = 0
    while status != 200 and time.monotonic() < end:
        try:
            status = client.ask(timeout=2.0).status
        except OSError:
            # None has been slow for long enough: the new client is refused.
            continue
    assert status == 200


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_d4_unread_responses_take_bounded_memory(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext, *, encrypted: bool
) -> None:
    """Two of three large responses fit: the oldest is aborted."""
    client = serve(web_config=web_config(TLS) if encrypted else None, unsent_bytes=80 << 20)
    deaf = []
    for _ in range(3):
        one = client.connect()
        if encrypted:
            one = trusting.wrap_socket(one, server_hostname="localhost")
            client.sockets.append(one)
        one.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        # The response is being sent.
        assert one.recv(12) == b"HTTP/1.1 200"
        deaf.append(one)
    assert client.wait_for_closed(Closed.CAP) == 1
    with pytest.raises((OSError, AssertionError)):
        assert len(everything(deaf[0])) >= 32 << 20
    assert [len(everything(one)) >= 32 << 20 for one in deaf[1:]] == [True, True]


def test_d4_a_page_larger_than_the_bound_is_served(serve: Serve) -> None:
    client = serve(unsent_bytes=1 << 20)
    assert len(client.ask("/huge").body) == 32 << 20
    assert client.server.counts().closed[Closed.CAP] == 0


def test_d4_clients_that_announce_a_body_and_send_none_are_closed_for_others(serve: Serve) -> None:
    client = serve(connections=4, stalled_seconds=60.0)
    for _ in range(4):
        announced = client.connect(
            b"POST /post HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
        assert announced.recv(100).startswith(b"HTTP/1.1 100")
    assert client.ask().status == 200


def test_d4_clients_that_do_not_close_tls_are_closed_for_others(
    serve: Serve, web_config: Callable[[str], Path], trusting: ssl.SSLContext
) -> None:
    client = serve(web_config=web_config(TLS), connections=4, stalled_seconds=60.0, linger_seconds=60.0)
    for _ in range(4):
        lingering = trusting.wrap_socket(client.connect(), server_hostname="localhost", suppress_ragged_eofs=False)
        client.sockets.append(lingering)
        lingering.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert lingering.recv(12) == b"HTTP/1.1 200"
    assert client.ask(tls=trusting).status == 200


def test_d4_pipelined_requests_do_not_starve_others() -> None:
    targets: list[str] = []

    class Noting:
        """Answers, and notes who asked."""

        async def answer(self, _: str, target: str, *__: object) -> Response:
            targets.append(target)
            return Response(b"")

    async def serve_both(requests: Mapping[str, int]) -> None:
        clients, connections = [], []
        for target, count in requests.items():
            here, there = socket.socketpair()
            here.setblocking(False)
            there.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * count)
            there.shutdown(socket.SHUT_WR)
            clients.append(there)
            counting = WebCounters()
            unsent = UnsentResponses(1 << 20, counting)
            connections.append(HttpConnection(here, "127.0.0.1", Noting(), counting, unsent, WebLimits()))  # type: ignore[arg-type]
        await asyncio.gather(*(one.serve(WebSettings(None).current) for one in connections))
        for client in clients:
            client.close()

    asyncio.run(serve_both({"/many": 100, "/one": 1}))
    assert targets.count("/many") == 100
    assert targets.index("/one") < 50


def test_an_idle_connection_times_out(serve: Serve) -> None:
    client = serve(idle_seconds=0.3)
    kept = client.connect(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert everything(kept).startswith(b"HTTP/1.1 200")
    assert client.wait_for_closed(Closed.IDLE) == 1


def test_a_hanging_page_blocks_neither_other_pages_nor_stop(serve: Serve) -> None:
    never, ended = threading.Event(), []

    def hang(_: object) -> Response:
        ended.append(never.wait(300.0))
        return Response(b"")

    client = serve({"/hang": Page(hang, seconds=0.3), "/metrics": Page(lambda _: Response(b"ok"))})
    assert client.ask("/hang").status == 503
    assert client.ask().status == 200
    client.server.stop()
    assert ended == [], "stop did not wait for it"
    never.set()


def test_a_concurrent_reload_gets_503(serve: Serve) -> None:
    entered, leave = threading.Event(), threading.Event()

    def reload(_: object) -> Response:
        entered.set()
        leave.wait(30.0)
        return Response(b"done")

    client = serve({"/-/reload": Page(reload, ("POST",), one_at_a_time=True)})
    first: list[int] = []
    asking = threading.Thread(target=lambda: first.append(client.ask("/-/reload", "POST").status))
    asking.start()
    assert entered.wait(10.0)
    assert client.ask("/-/reload", "POST").status == 503
    leave.set()
    asking.join(10.0)
    assert first == [200]


def test_stop_finishes_responses_in_progress(serve: Serve) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: object) -> Response:
        entered.set()
        leave.wait(30.0)
        return Response(b"whole")

    client = serve({"/slow": Page(slow)}, stop_seconds=10.0)
    got: list[bytes] = []
    asking = threading.Thread(target=lambda: got.append(client.ask("/slow").body))
    asking.start()
    assert entered.wait(10.0)
    stopping = threading.Thread(target=client.server.stop)
    stopping.start()
    leave.set()
    asking.join(10.0)
    stopping.join(10.0)
    assert got == [b"whole"]


def test_open_connections_are_counted(serve: Serve) -> None:
    client = serve()
    three = [client.connect(HALF) for _ in range(3)]
    wait_until(lambda: client.server.counts().open == 3)
    for one in three:
        one.close()
    wait_until(lambda: client.server.counts().open == 0)
