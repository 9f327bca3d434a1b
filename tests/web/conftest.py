"""A real server on a free port, with clients, certificates and a sample site."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.reference.reference import Reference
from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.server.limits import WebLimits
from monitor.web.server.request import HTML, Page, Pages, Request, Response
from monitor.web.server.web_server import WebServer
from monitor.web.site import Site
from tests.strategies import synthetic
from tests.web.certificates import Authority, Pair
from tests.web.clients import Client
from tests.web.sample_reports import NOW, three_models


def answer(request: Request) -> Response:
    """Return the method only."""
    return Response(f"hello {request.method}\n".encode())


def fail(_: Request) -> Response:
    """Raise, with a patient's name in the message."""
    raise RuntimeError("ZZPATIENT")


PAGES: Pages = {
    "/metrics": Page(answer),
    "/long": Page(lambda _: Response(b"a line of metrics\n" * 500)),
    "/huge": Page(lambda _: Response(b"x" * (32 << 20))),
    "/html": Page(lambda _: Response(b"<p>", HTML)),
    "/post": Page(answer, ("POST", "PUT")),
    "/broken": Page(fail),
}

Serve = Callable[..., Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server and return its client; keyword arguments are limits."""
    with contextlib.ExitStack() as stack:

        def start(pages: Pages = PAGES, web_config: Path | None = None, **limits: float) -> Client:
            server = WebServer("127.0.0.1:0", pages, web_config, WebLimits(**limits))  # type: ignore[arg-type]
            server.start()
            stack.callback(server.stop)
            client = Client(server)
            stack.callback(client.close)
            return client

        yield start


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs all certificates."""
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    """A certificate for a server on this machine."""
    return authority.signed("server")


@pytest.fixture
def web_config(tmp_path: Path, server_pair: Pair) -> Callable[..., Path]:
    """Write a web configuration with its certificates."""
    server_pair.copied_to(Pair(tmp_path / "server.crt", tmp_path / "server.key"))

    def write(text: str) -> Path:
        path = tmp_path / "web.yml"
        path.write_text(text)
        return path

    return write


TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    """The TLS context of a client that trusts the authority."""
    return ssl.create_default_context(cafile=str(authority.pair.cert))


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


@pytest.fixture(scope="session")
def reference() -> Reference:
    """A reference of 300 records and three named classes."""
    probabilities, labels = synthetic(300, 3, seed=1)
    return Reference.calibrate(probabilities, labels, model="density", version="2.1", classes=("<script>", "b", "c"))


@pytest.fixture
def site(reference: Reference) -> Site:
    """A site with one reference."""
    return Site(
        reports=three_models,
        now=lambda: NOW,
        version="1.2.3",
        settings=lambda: (Setting("storage.path", "state", 3), Setting("a.url", HIDDEN, None)),
        reference={"density": reference}.get,
    )
