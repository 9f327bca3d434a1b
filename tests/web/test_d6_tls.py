"""D6 and D8: TLS versions, client certificates, and reloads of the web configuration."""

import contextlib
import logging
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.errors import ConfigError
from monitor.web.server.limits import Closed
from monitor.web.server.web_server import WebServer
from tests.servers import real_server
from tests.web.certificates import Authority, Pair
from tests.web.clients import Client
from tests.web.conftest import PAGES, TLS, Serve

Write = Callable[[str], Path]
SAN = "  client_allowed_sans: [prometheus.example, 'spiffe://hospital/prometheus', '2001:db8::7']\n"


def _clients_must_show(authority: Authority) -> str:
    return f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.pair.cert}\n"


def _is_refused(client: Client, context: ssl.SSLContext) -> bool:
    # With TLS 1.3 a client learns that its certificate was rejected only when it reads.
    with contextlib.suppress(OSError):
        client.ask(tls=context)
        return False
    return True


def _showing(trusting: ssl.SSLContext, pair: Pair) -> ssl.SSLContext:
    trusting.load_cert_chain(pair.cert, pair.key)
    return trusting


@pytest.mark.parametrize(("version", "accepted"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
def test_d6_tls_older_than_1_2_is_refused(serve: Serve, web_config: Write, version: str, *, accepted: bool) -> None:
    """Also from a client that offers every weak cipher."""
    client = serve(web_config=web_config(TLS))
    place = f"127.0.0.1:{client.server.port}"
    words = [real_server("openssl"), "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect", place]
    ran = subprocess.run(words, input=b"Q\n", capture_output=True, check=False, timeout=30)
    assert (b"Cipher is (NONE)" in ran.stdout) == (not accepted)
    assert client.wait_for_closed(Closed.HANDSHAKE_FAILED, least=int(not accepted)) == int(not accepted)


def test_d6_the_minimum_version_can_be_raised(serve: Serve, web_config: Write, trusting: ssl.SSLContext) -> None:
    client = serve(web_config=web_config(f"{TLS}  min_version: TLS13\n"))
    assert client.ask(tls=trusting).status == 200
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    assert _is_refused(client, trusting)


def test_d6_plain_http_is_refused_by_a_tls_server(serve: Serve, web_config: Write) -> None:
    client = serve(web_config=web_config(TLS))
    assert client.server.url.startswith("https://")
    with contextlib.suppress(ConnectionResetError):
        assert b"hello" not in client.talk(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.wait_for_closed(Closed.HANDSHAKE_FAILED) == 1


def test_d6_a_client_without_a_certificate_is_refused(
    serve: Serve, web_config: Write, authority: Authority, trusting: ssl.SSLContext
) -> None:
    """A certificate of the authority is accepted; without a list of names, any name is."""
    client = serve(web_config=web_config(_clients_must_show(authority)))
    assert _is_refused(client, trusting)
    assert client.wait_for_closed(Closed.HANDSHAKE_FAILED) == 1
    assert client.ask(tls=_showing(trusting, authority.signed("anybody", "DNS:anybody.example"))).status == 200


def test_d6_a_certificate_of_another_authority_is_refused(
    serve: Serve, web_config: Write, authority: Authority, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    """Also when certificates are optional."""
    stranger = Authority(tmp_path, "stranger").signed("pretender", "DNS:prometheus.example")
    text = _clients_must_show(authority)
    client = serve(web_config=web_config(text + SAN))
    assert _is_refused(client, _showing(trusting, stranger))
    optional = serve(web_config=web_config(text.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")))
    assert _is_refused(optional, trusting)
    assert optional.ask(tls=ssl.create_default_context(cafile=str(authority.pair.cert))).status == 200


@pytest.mark.parametrize(
    ("san", "accepted"),
    [
        pytest.param("DNS:prometheus.example", True, id="name"),
        pytest.param("URI:spiffe://hospital/prometheus", True, id="uri"),
        pytest.param("IP:2001:db8::7", True, id="address"),
        pytest.param("DNS:other.example,DNS:prometheus.example", True, id="one of two"),
        pytest.param("DNS:other.example", False, id="other name"),
        pytest.param("DNS:*.example", False, id="wildcard"),
        pytest.param("DNS:prometheus.example.evil", False, id="longer name"),
        pytest.param("IP:127.0.0.1", False, id="other address"),
    ],
)
def test_d6_only_listed_names_are_let_in(
    serve: Serve, web_config: Write, authority: Authority, trusting: ssl.SSLContext, san: str, *, accepted: bool
) -> None:
    """The match is exact."""
    client = serve(web_config=web_config(_clients_must_show(authority) + SAN))
    assert _is_refused(client, _showing(trusting, authority.signed("client", san))) == (not accepted)
    assert client.wait_for_closed(Closed.HANDSHAKE_FAILED, least=int(not accepted)) == int(not accepted)


def _serial(client: Client, trusting: ssl.SSLContext) -> str:
    with trusting.wrap_socket(client.connect(), server_hostname="localhost") as encrypted:
        certificate = encrypted.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_d8_a_rotated_certificate_is_served_without_a_restart(
    serve: Serve, web_config: Write, authority: Authority, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    client = serve(web_config=web_config(TLS))
    before = _serial(client, trusting)
    assert _serial(client, trusting) == before
    authority.signed("renewed").copied_to(Pair(tmp_path / "server.crt", tmp_path / "server.key"))
    assert _serial(client, trusting) != before
    assert client.ask(tls=trusting).status == 200
    assert client.server.web_config_ok


def test_d8_half_a_rotation_keeps_the_old_certificate(
    serve: Serve,
    web_config: Write,
    authority: Authority,
    trusting: ssl.SSLContext,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A certificate without its key is logged once, and served when the key arrives."""
    client = serve(web_config=web_config(TLS))
    before = _serial(client, trusting)
    renewed, served = authority.signed("renewed"), Pair(tmp_path / "server.crt", tmp_path / "server.key")
    renewed.copied_to(Pair(served.cert, tmp_path / "aside.key"))
    assert [_serial(client, trusting) for _ in range(3)] == [before] * 3
    assert not client.server.web_config_ok
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(messages) == 1
    assert "expected a certificate and its key in PEM, found key values mismatch" in messages[0]
    renewed.copied_to(served)
    assert _serial(client, trusting) != before
    assert client.server.web_config_ok


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="emptied"),
        pytest.param("basic_auth_users:\n  bob: nonsense\n", id="broken"),
        pytest.param("http_server_config: {http2: false}\n", id="without tls"),
        pytest.param(TLS, id="clients no longer asked for a certificate"),
        pytest.param("{ca}", id="names no longer listed"),
    ],
)
def test_d8_a_reload_that_fails_or_removes_a_protection_is_rejected(
    serve: Serve, web_config: Write, authority: Authority, trusting: ssl.SSLContext, text: str
) -> None:
    client = serve(web_config=web_config(_clients_must_show(authority) + SAN))
    showing = _showing(trusting, authority.signed("client", "DNS:prometheus.example"))
    web_config(text.replace("{ca}", _clients_must_show(authority)))
    assert _is_refused(client, ssl.create_default_context(cafile=str(authority.pair.cert)))
    assert client.ask(tls=showing).status == 200
    assert not client.server.web_config_ok
    web_config(_clients_must_show(authority) + SAN)
    assert client.ask(tls=showing).status == 200
    assert client.server.web_config_ok


def test_d8_new_passwords_apply_to_open_connections(serve: Serve, web_config: Write) -> None:
    client = serve(web_config=web_config("http_server_config: {http2: false}\n"))
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    kept = client.connect(request)
    assert kept.recv(1000).startswith(b"HTTP/1.1 200")
    web_config("basic_auth_users:\n  bob: $2b$04$" + "e" * 53 + "\n")
    kept.sendall(request)
    assert kept.recv(1000).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        pytest.param("server.crt", None, "server.crt: expected a file, found no such file or directory", id="none"),
        pytest.param("server.key", b"", "expected a certificate and its key in PEM, found", id="empty key"),
        pytest.param(
            "server.crt", b"nonsense", "expected a certificate and its key in PEM, found", id="no certificate"
        ),
        pytest.param(
            "ca.crt", b"nonsense", "ca.crt: expected certificates of authorities in PEM, found", id="no authority"
        ),
    ],
)
def test_invalid_certificates_are_config_errors(
    web_config: Write, tmp_path: Path, server_pair: Pair, name: str, content: bytes | None, found: str
) -> None:
    path = web_config(f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n")
    (tmp_path / "ca.crt").write_bytes(server_pair.cert.read_bytes())
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=found):
        WebServer("127.0.0.1:0", PAGES, path)


def test_a_key_with_a_passphrase_is_a_config_error(web_config: Write, tmp_path: Path, server_pair: Pair) -> None:
    locked = [real_server("openssl"), "ec", "-in", server_pair.key, "-aes128", "-passout", "pass:secret", "-out"]
    subprocess.run([*map(str, locked), str(tmp_path / "server.key")], check=True, capture_output=True)
    with pytest.raises(ConfigError, match="expected a certificate and its key in PEM"):
        WebServer("127.0.0.1:0", PAGES, web_config(TLS))


def test_a_pipe_instead_of_a_file_is_a_config_error(web_config: Write, tmp_path: Path) -> None:
    path = web_config(TLS)
    (tmp_path / "server.key").unlink()
    os.mkfifo(tmp_path / "server.key")
    with pytest.raises(ConfigError, match=r"server\.key: expected a file, found a pipe or a device"):
        WebServer("127.0.0.1:0", PAGES, path)
