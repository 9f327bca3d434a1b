"""D5: oversized, malformed and unexpected requests, and correct ones."""

import contextlib
import gzip
import logging
import os
import socket
import zlib

import pytest

from monitor.web.server.request import Packed, Page, Response
from tests.web.clients import everything
from tests.web.conftest import Serve

pytestmark = pytest.mark.slow

HOST = b"Host: localhost\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(("/metrics", "GET"), 200, id="a page"),
        pytest.param(("/metrics?name=value", "GET"), 200, id="with a query"),
        pytest.param(("/%6Detrics", "GET"), 200, id="encoded"),
        pytest.param(("/metrics", "HEAD"), 200, id="head"),
        pytest.param(("/post", "POST"), 200, id="post where it belongs"),
        pytest.param(("/post", "PUT"), 200, id="put where it belongs"),
        pytest.param(("/post", "GET"), 405, id="get where only post belongs"),
        pytest.param(("/metrics", "POST"), 405, id="post"),
        pytest.param(("/metrics", "DELETE"), 405, id="delete"),
        pytest.param(("/metrics", "TRACE"), 405, id="trace"),
        pytest.param(("/nowhere", "TRACE"), 405, id="trace of nothing"),
        pytest.param(("/metrics", "OPTIONS"), 405, id="options"),
        pytest.param(("/nowhere", "GET"), 404, id="no such page"),
        pytest.param(("/metrics/", "GET"), 404, id="a slash more"),
        pytest.param(("/../metrics", "GET"), 404, id="dots"),
        pytest.param(("/../../etc/passwd", "GET"), 404, id="a file"),
        pytest.param(("/%2e%2e/metrics", "GET"), 404, id="encoded dots"),
        pytest.param(("/%ff", "GET"), 404, id="no utf-8"),
        pytest.param(("/broken", "GET"), 500, id="a page that fails"),
    ],
)
def test_d5_every_request_has_its_status(serve: Serve, request_: tuple[str, str], status: int) -> None:
    """Every response forbids content sniffing."""
    answer = serve().ask(*request_)
    assert answer.status == status
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("allow" in answer.headers) == (status == 405)
    if request_[1] == "HEAD":
        assert answer.body == b""
        assert int(answer.headers["content-length"]) > 0


def test_d5_a_mebibyte_of_headers_is_431(serve: Serve) -> None:
    """The sender can read the response, though it was still sending."""
    client = serve()
    assert client.ask(X_Long="x" * (1 << 20)).status == 431
    assert client.ask().status == 200


@pytest.mark.parametrize(
    ("size", "status"),
    [(0, 200), (1, 200), (64 << 10, 200), ((64 << 10) + 1, 413), (1 << 20, 413)],
)
def test_d5_a_body_is_read_up_to_a_limit(serve: Serve, size: int, status: int) -> None:
    assert serve().ask("/post", "POST", body=b"x" * size).status == status


def test_d5_a_chunked_body_has_the_same_limit(serve: Serve) -> None:
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    head = b"POST /post HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    client = serve()
    assert client.talk(head + 8 * chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    with client.connect(head + 2 * chunk + b"0\r\n\r\n") as few:
        assert few.recv(100).startswith(b"HTTP/1.1 200")


def test_d5_100_continue_is_sent_when_expected(serve: Serve) -> None:
    head = b"POST /post HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    client = serve().connect(head)
    assert client.recv(100).startswith(b"HTTP/1.1 100")
    client.sendall(b"ok")
    assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"nonsense\r\n\r\n", id="no request"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: 127.0.0.1\r\n\r\n", id="two hosts"),
        pytest.param(b"GET /met\x00rics HTTP/1.1\r\n" + HOST + b"\r\n", id="a zero byte"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nX : 1\r\n" + HOST + b"\r\n", id="a blank before the colon"),
        pytest.param(b"POST /post HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(b"POST /post HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", id="tls to a plain server"),
    ],
)  # fmt: skip
def test_d5_a_malformed_request_is_400_and_closes(serve: Serve, data: bytes) -> None:
    answer = serve().talk(data)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"\r\nconnection: close" in answer.lower()


CHUNKED = b"POST /post HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize("split", [False, True], ids=["whole", "byte by byte"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET /metrics HTTP/1.1\n" + HOST + b"\r\n", id="request line"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n", id="header"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n" + HOST + b"\n", id="end of headers"),
        pytest.param(b"GET /metrics HTTP/1.1\nHost: localhost\n\n", id="every line"),
        pytest.param(CHUNKED + b"\r\n2\nab\n0\n\n", id="every line of a chunked body"),
        pytest.param(CHUNKED + b"\r\n2;x=\ny\r\nab\r\n0\r\n\r\n", id="chunk extension"),
        pytest.param(CHUNKED + b"\r\n2\r\nab\n0\r\n\r\n", id="end of a chunk"),
        pytest.param(CHUNKED + b"\r\n2\r\nab\r\n0\r\n\n", id="end of a chunked body"),
        pytest.param(CHUNKED + b"\r\n2\r\nab\r\n0\r\nA: b\n\r\n", id="trailer"),
    ],
)
def test_d5_a_bare_lf_is_400_and_closes(serve: Serve, data: bytes, *, split: bool) -> None:
    """A proxy in front may frame the same bytes differently."""
    client = serve().connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for part in (data[place : place + 1] for place in range(len(data))) if split else (data,):
            client.sendall(part)
        client.sendall(b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n")
        client.shutdown(socket.SHUT_WR)
    answer = everything(client)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"Content-Length: 6\r\n\r\na\nb\r\n\n", id="length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n1\r\n\r\r\n0\r\nA: b\r\n\r\n", id="chunked"),
    ],
)
def test_d5_a_body_may_contain_bare_lfs(serve: Serve, body: bytes) -> None:
    """Also when a packet ends between CR and LF."""
    data = b"POST /post HTTP/1.1\r\n" + HOST + body
    server = serve()
    for place in range(1, len(data)):
        client = server.connect()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(data[:place])
        client.sendall(data[place:] + b"GET /metrics HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert everything(client).count(b"HTTP/1.1 200") == 2


def test_d5_a_request_with_two_framings_is_400_and_closes(serve: Serve) -> None:
    """Content-Length beside Transfer-Encoding (RFC 9112, 6.1): request smuggling."""
    framed = CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n"
    answer = serve().talk(framed + b"GET /metrics HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_d5_random_bytes_never_stop_the_server(serve: Serve) -> None:
    client = serve(request_seconds=0.5, linger_seconds=0.1)
    for size in (1, 10, 100, 1000, 70_000):
        for _ in range(5):
            noise = client.connect()
            noise.sendall(os.urandom(size))
            noise.close()
    assert client.ask().status == 200


def test_d5_pipelined_requests_are_answered(serve: Serve) -> None:
    one = b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n"
    last = b"GET /metrics HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert serve().talk(one + one + last).count(b"HTTP/1.1 200") == 3


def test_d5_http_1_0_is_answered_and_closed(serve: Serve) -> None:
    answer = serve().talk(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nhello GET\n")


def test_d5_an_absolute_target_is_accepted(serve: Serve) -> None:
    data = b"GET http://127.0.0.1/metrics?a HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert serve().talk(data).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        pytest.param("gzip", True, id="gzip"),
        pytest.param("deflate, gzip;q=0.5", True, id="among others"),
        pytest.param("gzip;q=0", False, id="refused"),
        pytest.param("gzip;q=0.0, identity", False, id="refused at length"),
        pytest.param("identity", False, id="other"),
        pytest.param("", False, id="none"),
    ],
)
def test_a_long_response_is_compressed_when_accepted(serve: Serve, accepted: str, *, compressed: bool) -> None:
    answer = serve().ask("/long", Accept_Encoding=accepted)
    assert (answer.headers.get("content-encoding") == "gzip") == compressed
    assert answer.headers["vary"] == "Accept-Encoding"
    body = gzip.decompress(answer.body) if compressed else answer.body
    assert body == b"a line of metrics\n" * 500


def test_a_short_response_is_not_compressed(serve: Serve) -> None:
    assert "content-encoding" not in serve().ask(Accept_Encoding="gzip").headers


def test_d5_client_input_is_neither_echoed_nor_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A failing page is logged once."""
    caplog.set_level(logging.DEBUG)
    client = serve()
    answers = [client.ask(f"/ZZPATIENT/{path}", method, ZZPATIENT="ZZPATIENT", body=b"ZZPATIENT") for path, method in
               [("a", "GET"), ("b", "POST"), ("c", "TRACE"), ("c?ZZPATIENT", "PUT")]]  # fmt: skip
    answers += [client.ask("/broken?ZZPATIENT") for _ in range(5)]
    assert all(b"ZZPATIENT" not in answer.body and "ZZPATIENT" not in str(answer.headers) for answer in answers)
    assert b"Traceback" not in answers[-1].body
    assert client.talk(b"ZZPATIENT\r\n\r\n").count(b"ZZPATIENT") == 0
    ours = [record for record in caplog.records if record.name == "cpcmon"]
    assert [record.getMessage() for record in ours] == ["web: page /broken failed: RuntimeError"]


def test_requests_are_counted_by_class(serve: Serve) -> None:
    client = serve()
    assert client.server.counts().requests == {"2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}
    for path in ("/metrics", "/metrics", "/nowhere", "/broken"):
        client.ask(path)
    assert client.server.counts().requests == {"2xx": 2, "3xx": 0, "4xx": 1, "5xx": 1}


def test_a_client_that_disconnects_during_its_response_does_no_harm(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve()
    for _ in range(5):
        rude = client.connect(b"GET /huge HTTP/1.1\r\n" + HOST + b"\r\n")
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        rude.recv(1000)
        rude.close()
    assert client.ask().status == 200
    assert not [record for record in caplog.records if record.name == "cpcmon"]


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_a_start_that_was_compressed_before_is_sent_as_one_body(serve: Serve, accepted: str) -> None:
    plain = b"a line of metrics\n" * 50_000
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    start = Packed((packer.compress(plain), packer.flush(zlib.Z_FULL_FLUSH)), len(plain), zlib.crc32(plain))
    client = serve({"/metrics": Page(lambda _: Response(b"the end\n", start=start))})
    answer = client.ask("/metrics", Accept_Encoding=accepted)
    assert (gzip.decompress(answer.body) if accepted == "gzip" else answer.body) == plain + b"the end\n"
