"""D7: wrong and missing passwords, and floods of guesses."""

import concurrent.futures
import contextlib
import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from monitor.web.auth import credentials_in
from tests.waiting import wait_until
from tests.web.clients import Client, basic
from tests.web.conftest import Serve

Write = Callable[[str], Path]
COST = 8


@pytest.fixture(scope="module")
def users() -> str:
    """Two users; bob's password contains a colon and is not ASCII."""
    alice, bob = (bcrypt.hashpw(word.encode(), bcrypt.gensalt(COST)).decode() for word in ("wonder", "bücher:2"))
    # In the format of htpasswd.
    return f"basic_auth_users:\n  alice: {alice.replace('$2b$', '$2y$')}\n  bob: {bob}\n"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param(basic("alice", "wonder"), 200, id="right"),
        pytest.param(basic("alice", "wonder").replace("Basic", "bAsIc"), 200, id="right in other letters"),
        pytest.param(basic("bob", "bücher:2"), 200, id="right with a colon"),
        pytest.param(None, 401, id="missing"),
        pytest.param("", 401, id="empty"),
        pytest.param(basic("alice", "wrong"), 401, id="wrong password"),
        pytest.param(basic("alice", ""), 401, id="no password"),
        pytest.param(basic("alice", "bücher:2"), 401, id="another's password"),
        pytest.param(basic("carol", "wonder"), 401, id="unknown user"),
        pytest.param(basic("", ""), 401, id="empty"),
        pytest.param(basic("alice", "wonder\x00"), 401, id="a zero byte more"),
        pytest.param(basic("alice", "x" * 2000), 401, id="very long"),
        pytest.param("Basic YWxpY2U=", 401, id="no colon"),
        pytest.param("Basic ?", 401, id="no base64"),
        pytest.param("Basic /zr/", 401, id="no utf-8"),
        pytest.param("Bearer wonder", 401, id="another scheme"),
    ],
)
def test_d7_only_the_right_password_is_let_in(
    serve: Serve, web_config: Write, users: str, header: str | None, status: int
) -> None:
    client = serve(web_config=web_config(users))
    for path in ("/metrics", "/nowhere", "/metrics"):
        answer = client.ask(path) if header is None else client.ask(path, Authorization=header)
        expected = 404 if status == 200 and path == "/nowhere" else status
        assert answer.status == expected
        assert ("www-authenticate" in answer.headers) == (status == 401)


@contextlib.contextmanager
def _flood(client: Client, threads: int) -> Iterator[None]:
    """Guess the password of `user 0` continuously, from 127.0.0.1."""
    stop = threading.Event()

    def guess(thread: int) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(OSError, http.client.HTTPException):
                client.ask(Authorization=basic("user 0", f"{thread} {number}"))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for thread in range(threads):
            pool.submit(guess, thread)
        # Wait until guesses were checked and others are queued.
        wait_until(lambda: sum(client.server.counts().requests[kind] for kind in ("4xx", "5xx")) >= 3)
        try:
            yield
        finally:
            stop.set()


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        pytest.param("127.0.0.1", {}, id="from the same address, as behind one proxy"),
        pytest.param("127.0.0.2", {"waiting_passwords": 4}, id="from another address, while more guess than may wait"),
    ],
)
def test_d7_new_users_get_in_during_a_flood_of_guesses(
    serve: Serve, web_config: Write, source: str, limits: dict[str, float]
) -> None:
    """Ten users with the right password, including the attacked one."""
    hashed = bcrypt.hashpw(b"wonder", bcrypt.gensalt(COST)).decode()
    names = [f"user {number}" for number in range(10)]
    users = "basic_auth_users:\n" + "".join(f"  {name}: {hashed}\n" for name in names)
    client = serve(web_config=web_config(users), **limits)
    with _flood(client, 16):
        statuses = [client.ask(Authorization=basic(name, "wonder"), source=source).status for name in names]
    assert statuses == [200] * 10


class Hashing:
    """Counts bcrypt checks and their concurrency."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = list[bytes]()
        self.most_at_once = self._now = 0
        self._lock, self._check = threading.Lock(), bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self)

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        """Check with bcrypt."""
        with self._lock:
            self.asked.append(password)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            return self._check(password, hashed)
        finally:
            with self._lock:
                self._now -= 1


def test_d7_guesses_are_hashed_one_at_a_time_and_keep_no_known_scraper_out(
    serve: Serve, web_config: Write, users: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that logged in before waits for no hash."""
    hashing = Hashing(monkeypatch)
    client = serve(web_config=web_config(users))
    right = basic("alice", "wonder")
    assert client.ask(Authorization=right).status == 200
    with _flood(client, 16):
        scrapes = [client.ask(Authorization=right).status for _ in range(50)]
    assert scrapes == [200] * 50
    assert (hashing.asked.count(b"wonder"), hashing.most_at_once) == (1, 1)


@pytest.mark.slow
def test_d7_a_full_queue_gets_503(serve: Serve, web_config: Write) -> None:
    slow = bcrypt.hashpw(b"wonder", bcrypt.gensalt(13)).decode()
    client = serve(web_config=web_config(f"basic_auth_users: {{alice: {slow}}}\n"), waiting_passwords=2)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: client.ask(Authorization=basic("alice", f"wrong {n}")), range(12)))
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {401, 503}
    assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status == 503)


def test_d7_a_right_password_is_hashed_once(
    serve: Serve, web_config: Write, users: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong ones are hashed each time, also for unknown names, so that timing reveals no names."""
    hashing = Hashing(monkeypatch)
    client = serve(web_config=web_config(users))
    for name, password, status in (("alice", "wonder", 200), ("alice", "wrong", 401), ("carol", "guess", 401)):
        assert {client.ask(Authorization=basic(name, password)).status for _ in range(3)} == {status}
    assert hashing.asked == [b"wonder", *[b"wrong"] * 3, *[b"guess"] * 3]


def test_d7_a_changed_password_is_no_longer_accepted(serve: Serve, web_config: Write, users: str) -> None:
    client = serve(web_config=web_config(users))
    assert client.ask(Authorization=basic("alice", "wonder")).status == 200
    new = bcrypt.hashpw(b"land", bcrypt.gensalt(COST)).decode()
    web_config(f"basic_auth_users:\n  alice: {new}\n")
    assert client.ask(Authorization=basic("alice", "wonder")).status == 401
    assert client.ask(Authorization=basic("alice", "land")).status == 200


def test_d7_a_reload_cannot_remove_passwords(serve: Serve, web_config: Write, users: str) -> None:
    client = serve(web_config=web_config(users))
    web_config("http_server_config: {http2: false}\n")
    assert client.ask().status == 401
    assert not client.server.web_config_ok


def test_credentials_split_at_the_first_colon() -> None:
    assert credentials_in(basic("a", "b:c")) == ("a", b"b:c")
    assert credentials_in("Digest x") is None
