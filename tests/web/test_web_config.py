"""The web configuration: everything accepted also passes promtool; the rest is an error with a reason."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.errors import ConfigError
from monitor.web.server.web_config import ClientAuth, TlsVersion, read_web_config
from tests.servers import real_server
from tests.web.certificates import Authority
from tests.web.conftest import TLS, Serve

Write = Callable[[str], Path]
HASH = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"
AUTH = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
GOOD = {
    "tls": TLS,
    "clients": TLS + AUTH,
    "optional clients": TLS + AUTH.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"),
    "versions": f"{TLS}  min_version: TLS12\n  max_version: TLS13\n",
    "users": f"basic_auth_users:\n  alice: {HASH}\n  bob: '{HASH}'\n",
    "both": f"{TLS}basic_auth_users: {{alice: {HASH}}}\n",
    "headers": "http_server_config:\n  http2: false\n  headers:\n"
    "    Content-Security-Policy: default-src 'none'\n    X-Frame-Options: deny\n"
    "    X-Content-Type-Options: nosniff\n    Strict-Transport-Security: max-age=60\n    X-XSS-Protection: '0'\n",
}


@pytest.fixture(scope="module")
def promtool() -> str:
    """The path of promtool."""
    return real_server("promtool")


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_promtool_accepts_what_we_accept(
    promtool: str, web_config: Write, authority: Authority, tmp_path: Path, text: str
) -> None:
    shutil.copy(authority.pair.cert, tmp_path / "ca.crt")
    path = web_config(text)
    read_web_config(path)
    ran = subprocess.run([promtool, "check", "web-config", path], capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr


def test_every_setting_is_read(web_config: Write, tmp_path: Path) -> None:
    """Paths are relative to the file."""
    config = read_web_config(
        web_config(
            f"{TLS}{AUTH}  client_allowed_sans: [a.example, '10.0.0.1']\n  min_version: TLS13\n{GOOD['users']}{GOOD['headers']}"
        )
    )
    assert config.tls is not None
    assert (config.tls.cert_file, config.tls.key_file) == (tmp_path / "server.crt", tmp_path / "server.key")
    assert (config.tls.client_auth, config.tls.client_ca_file) == (ClientAuth.REQUIRED, tmp_path / "ca.crt")
    assert config.tls.client_allowed_sans == ("a.example", "10.0.0.1")
    assert (config.tls.min_version, config.tls.max_version) == (TlsVersion.TLS13, TlsVersion.TLS13)
    assert config.users == {"alice": HASH, "bob": HASH}
    assert config.headers["X-XSS-Protection"] == "0"
    assert HASH not in repr(config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "web.yml:1: expected settings, found an empty file", id="empty"),
        pytest.param("tls_server_config:\n  cert_file: a\n", "key_file: expected a file, since TLS needs both cert_file and key_file, found nothing", id="cert without key"),
        pytest.param("tls_server_config:\n  key_file: a\n", "cert_file: expected a file, since TLS needs both", id="key without cert"),
        pytest.param("tls_server_config: {}\n", "cert_file: expected a file, since TLS needs both", id="empty tls"),
        pytest.param(f"{TLS}  client_ca_file: ca.crt\n", "client_auth_type: expected RequireAndVerifyClientCert or VerifyClientCertIfGiven, since there is a client_ca_file, found 'NoClientCert'", id="authority without asking"),
        pytest.param(f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n", "client_ca_file: expected a file, since client_auth_type is RequireAndVerifyClientCert, found nothing", id="asking without authority"),
        pytest.param(f"{TLS}  client_auth_type: RequireAnyClientCert\n", "found 'RequireAnyClientCert': cpcmon verifies every certificate", id="unverified"),
        pytest.param(f"{TLS}  client_allowed_sans: [a]\n", "client_auth_type: expected RequireAndVerifyClientCert, since there are client_allowed_sans", id="names without certificates"),
        pytest.param(f"{TLS}{AUTH}  client_allowed_sans: []\n", "client_allowed_sans: expected a list of names, found an empty list", id="no names"),
        pytest.param(f"{TLS}  min_version: TLS11\n", "web.yml:4: tls_server_config.min_version: expected one of TLS12, TLS13, found 'TLS11': it is insecure", id="old version"),
        pytest.param(f"{TLS}  min_version: TLS13\n  max_version: TLS12\n", "max_version: expected TLS13 or later, since that is the min_version", id="versions crossed"),
        pytest.param(f"{TLS}  cipher_suites: [x]\n", "cipher_suites: expected no cipher_suites: OpenSSL chooses", id="ciphers"),
        pytest.param(f"{TLS}  key: secret\n", "key: expected no key: use the file setting", id="key inline"),
        pytest.param("rate_limit: {interval: 1s, burst: 20}\n", "rate_limit: expected no rate_limit: cpcmon limits connections", id="rate limit"),
        pytest.param("http_server_config:\n  headers: {X-Other: a}\n", "http_server_config.headers: expected one of Content-Security-Policy", id="other header"),
        pytest.param("http_server_config:\n  headers: {X-Frame-Options: allow}\n", "X-Frame-Options: expected one of deny, sameorigin, found 'allow'", id="bad header"),
        pytest.param('http_server_config:\n  headers: {Content-Security-Policy: "a\\r\\nX: b"}\n', "Content-Security-Policy: expected a header's value", id="header with a newline"),
        pytest.param("basic_auth_users: {bob: hunter2}\n", "basic_auth_users.bob: expected a bcrypt hash of a cost from 4 to 16, found something else, which is not shown", id="password itself"),
        pytest.param("basic_auth_users: bob:hunter2\n", "basic_auth_users: expected names with a bcrypt hash each, found a single value", id="password in place of the group"),
        pytest.param(f"basic_auth_users: {{bob: {HASH.replace('$10$', '$31$')}}}\n", "expected a bcrypt hash of a cost from 4 to 16, found a cost of 31", id="cost of days"),
        pytest.param(f"basic_auth_users: {{bob: {HASH.replace('MCesa', 'MCfsa')}}}\n", "expected a bcrypt hash of a cost from 4 to 16, found something else", id="invalid salt"),
        pytest.param("basic_auth_users: {}\n", "basic_auth_users: expected one name or more, found none", id="no users"),
        pytest.param(f'basic_auth_users: {{"a:b": {HASH}}}\n', "expected names without a colon", id="colon in a name"),
        pytest.param(f"basic_auth_users:\n  bob: {HASH}\n  bob: {HASH}\n", "expected each key once, found 'bob' again", id="user twice"),
        pytest.param("tls_sever_config: {}\n", "expected a known setting, found 'tls_sever_config': did you mean tls_server_config?", id="unknown key"),
        pytest.param("a: &x 1\nb: *x\n", "expected no anchor", id="alias"),
    ],
)  # fmt: skip
def test_mistakes_are_config_errors(web_config: Write, text: str, expected: str) -> None:
    """Unsupported protections are never ignored, and no secret is shown."""
    with pytest.raises(ConfigError) as raised:
        read_web_config(web_config(text))
    assert expected in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_http2_is_a_warning_and_http_1_is_served(
    serve: Serve, web_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that other exporters share must not stop cpcmon: nothing that protects is missing."""
    client = serve(web_config=web_config("http_server_config: {http2: true}\n"))
    assert client.ask("/metrics").status == 200
    (record,) = [one for one in caplog.records if "http2" in one.getMessage()]
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("web.yml:1: http_server_config.http2: cpcmon speaks HTTP/1.1 only")


def test_all_mistakes_are_reported_at_once(web_config: Write) -> None:
    with pytest.raises(ConfigError) as raised:
        read_web_config(web_config("tls_server_config: {min_version: TLS10}\nrate_limit: {}\nother: 1\n"))
    assert str(raised.value).endswith("5 problems")


def test_configured_headers_are_sent(serve: Serve, web_config: Write) -> None:
    """With every response, also a refusal."""
    client = serve(web_config=web_config(GOOD["headers"]))
    for path in ("/metrics", "/html", "/nowhere"):
        headers = client.ask(path).headers
        assert headers["x-frame-options"] == "deny"
        assert headers["content-security-policy"] == "default-src 'none'"
