"""`cpcmon baseline` and `POST /-/command` with a real daemon, killed right after the answer, and with its state."""

import json
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import bcrypt
import pytest

from monitor.daemon.commands import execute
from monitor.evaluation.stored_values import AlertMemory, key_of
from monitor.ingest.ingestion import PendingValues
from monitor.state.store import State
from tests.conftest import ROOT, Ran
from tests.daemon.conftest import Site
from tests.daemon.process import LIMIT, Process, one, running, write_records
from tests.waiting import wait_until

RESET = {"command": "baseline", "model": "density", "segment": "site=A", "action": "reset"}
LOGIN = "Basic " + b64encode(b"operator:wonder").decode()
COLLECTED = ("cpcmon_baseline_records", {"segment": "site=A", "kind": "own"})


def test_the_command_on_the_page_is_one() -> None:
    """The tests below send the same, and type the other blocks."""
    page = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"-d '(.*)'", page)
    assert json.loads(body) == {**RESET, "segment": "site=B"}


@pytest.fixture
def secured(site: Site) -> Site:
    """A site with baselines of 300 records, and a user."""
    site.configure(more="    baseline_records: 300")
    hashed = bcrypt.hashpw(b"wonder", bcrypt.gensalt(4)).decode()
    (site.folder / "web.yaml").write_text(f"basic_auth_users:\n  operator: {hashed}\n", encoding="utf-8")
    (site.folder / "password").write_text("wonder\n", encoding="utf-8")
    return site


def post(process: Process, body: object, **headers: str) -> tuple[int, str]:
    """Send a command; return status and text."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(process.url + "/-/command", data=content, headers={"Authorization": LOGIN, **headers})  # noqa: S310
    try:
        with urlopen(request, timeout=LIMIT) as answer:  # noqa: S310 - our own
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def status(process: Process) -> dict[str, Any]:
    """Return the baselines by segment."""
    request = Request(process.url + "/api/v1/status", headers={"Authorization": LOGIN})  # noqa: S310
    with urlopen(request, timeout=LIMIT) as answer:  # noqa: S310
        (model,) = json.load(answer)["models"]
    return {one["segment"]: one["baseline"] for one in model["segments"]}


def wait_for_records(process: Process, count: int) -> None:
    """Wait until the own baseline has so many records."""
    process.wait_until(lambda page: one(page, COLLECTED[0], **COLLECTED[1]) == count, f"{count} records")


def row(ran: Ran, segment: str = "site=A") -> str:
    """Return the line of a segment."""
    assert (ran.code, ran.err) == (0, "")
    return next(line for line in ran.out.splitlines() if line.startswith(f"{segment} "))


def test_a_reset_is_on_disk_when_it_is_answered(secured: Site, cpcmon: Callable[..., Ran]) -> None:
    """A kill right after the answer does not undo it, and only later records count. Bad requests change nothing."""
    words = ("--web.enable-lifecycle", "--web.config.file", str(secured.folder / "web.yaml"))
    write_records(secured.inbox / "a.jsonl", secured.reference_vectors[:300], site="A")
    write_records(secured.inbox / "a.jsonl", secured.reference_vectors[:100], site="B")
    login = ("--user", "operator", "--password-file", secured.folder / "password")
    with running(secured.config, *words) as process:
        process.wait_for_line("density, site=A: own baseline is complete")
        listed = cpcmon("baseline", "density", "--url", process.url, *login)
        assert " own " in row(listed)
        assert row(listed).endswith("  no")
        assert row(listed, "site=B").endswith("  collecting")
        assert " reference " in row(listed, "all")

        _refuses_all_else(process, cpcmon)
        assert status(process)["site=A"]["verified"] is False

        confirm = ("--segment", "site=A", "--confirm")
        done = cpcmon("baseline", "density", *confirm, "--url", process.url, *login)
        assert (done.code, done.out) == (0, "done, and stored\n")
        assert status(process)["site=A"]["verified"] is True
        process.wait_for_line("density, site=A: own baseline: confirm by command")
        busy = cpcmon("baseline", "density", *confirm, "--config.file", secured.config)
        assert busy.code == 3
        assert "of a running daemon, name --url" in busy.err

        reload = Request(process.url + "/-/reload", method="POST", headers={"Authorization": LOGIN})  # noqa: S310
        with urlopen(reload, timeout=LIMIT) as answer:  # noqa: S310 - our own
            assert answer.status == 200
        wait_until(lambda: (status(process).get("site=A") or {}).get("verified"), lambda: process.log)

        assert post(process, RESET) == (200, "done, and stored\n")
        assert status(process)["site=A"]["accuracy"] is None
        held = cpcmon("baseline", "density", "--segment", "site=A", "--maintenance", "2h", "--url", process.url, *login)
        assert (held.code, held.out) == (0, "done, and stored\n")
        assert post(process, {"command": "maintenance", "model": "density", "segment": "all", "seconds": 0}) == (
            200,
            "done, and stored\n",
        )
        process.kill()
        assert "wonder" not in process.log
        assert LOGIN not in process.log

    _check_maintenance(secured)
    for where in (("--config.file", secured.config), ("--state", secured.folder / "state")):
        assert row(cpcmon("baseline", "density", "--segment", "site=A", *where)).endswith("  collecting")
    with running(secured.config) as process:
        write_records(secured.inbox / "a.jsonl", secured.reference_vectors[300:599], site="A")
        page = process.wait_until(
            lambda page: one(page, "cpcmon_records_total", model="density") == 699.0, "all records"
        )
        evaluations = (one(page, "cpcmon_evaluations_total", model="density") or 0.0) + 2.0
        page = process.wait_until(
            lambda page: (one(page, "cpcmon_evaluations_total", model="density") or 0.0) >= evaluations, "evaluations"
        )
        assert one(page, COLLECTED[0], **COLLECTED[1]) == 0.0
        refused = cpcmon("baseline", "density", "--segment", "site=A", "--reset", "--url", process.url)
        assert refused.code == 2
        assert "lifecycle API is not enabled" in refused.err
        write_records(secured.inbox / "a.jsonl", secured.reference_vectors[599:], site="A")
        wait_for_records(process, 300)


def _check_maintenance(site: Site) -> None:
    """Two hours of one segment are stored; another window is not held."""
    with closing(State.open(site.folder / "state")) as state:
        memory = AlertMemory.from_bytes(state.values()[key_of("density")])
    assert memory is not None
    assert 7000.0 < memory.held_until["site=A"] - time.time() <= 7200.0
    assert list(memory.held_until) == ["site=A"]


def _refuses_all_else(process: Process, cpcmon: Callable[..., Ran]) -> None:
    assert post(process, RESET, Authorization="")[0] == 401
    assert post(process, RESET, Authorization="Basic " + b64encode(b"operator:wrong").decode())[0] == 401
    assert post(process, RESET, Origin="http://localhost")[0] == 403
    assert post(process, {**RESET, "padding": "x" * 4096})[0] == 413
    for body in (
        b"",
        b"{",
        b"[" * 3000,
        b"null",
        {**RESET, "more": 1},
        {**RESET, "command": "restart"},
        {**RESET, "action": "forget"},
        {**RESET, "segment": None},
        {key: value for key, value in RESET.items() if key != "segment"},
        {"command": "maintenance", "model": "density", "seconds": -1},
        {"command": "maintenance", "model": "density", "segment": "site=A"},
    ):
        code, text = post(process, body)
        assert (code, text.partition(",")[0]) == (400, 'command: expected JSON such as {"command": "baseline"')
    assert post(process, {**RESET, "model": "other"})[0] == 404
    assert post(process, {**RESET, "segment": "site=ZZPATIENT"})[0] == 404
    assert "ZZPATIENT" not in process.log
    assert post(process, {**RESET, "segment": "all"})[0] == 409
    assert post(process, {**RESET, "segment": "site=B", "action": "confirm"})[0] == 409
    assert cpcmon("baseline", "density", "--url", process.url).code == 2


def test_the_state_of_a_stopped_daemon_is_changed(site: Site, cpcmon: Callable[..., Ran]) -> None:
    """The next start uses it."""
    site.configure(more="    baseline_records: 300")
    write_records(site.inbox / "a.jsonl", site.reference_vectors[:300], site="A")
    with running(site.config) as process:
        process.wait_for_line("density, site=A: own baseline is complete")
        assert process.stop() == 0
    state = ("--state", site.folder / "state")
    segment = ("baseline", "density", "--segment", "site=A")
    assert cpcmon(*segment, "--confirm", *state).out == "done, and stored\n"
    assert row(cpcmon("baseline", "density", "--config.file", site.config)).endswith("  yes")
    with running(site.config) as process:
        process.wait_until(
            lambda page: one(page, "cpcmon_baseline_verified", segment="site=A", kind="own") == 1.0, "verified"
        )
        assert process.stop() == 0
    assert cpcmon(*segment, "--reset", "--config.file", site.config).out == "done, and stored\n"
    assert row(cpcmon(*segment, "--config.file", site.config)).split()[2:6] == ["-", "0", "of", "300"]
    assert "still collected" in cpcmon(*segment, "--confirm", *state).err
    assert cpcmon("baseline", "density", "--segment", "site=B", "--reset", *state).code == 2
    assert cpcmon("baseline", "other", "--config.file", site.config).code == 2


class SlowRunner:
    """A runner whose disk is full, or that is stopping."""

    def __init__(self, *, stored: bool | Exception) -> None:
        self._stored = stored

    def change(self, model: str, change: object) -> bool:
        """Do nothing."""
        del model, change
        if isinstance(self._stored, Exception):
            raise self._stored
        return self._stored


@pytest.mark.parametrize(
    ("runner", "code", "said"),
    [
        (SlowRunner(stored=True), 200, "done, and stored"),
        (SlowRunner(stored=False), 503, "done, but not on disk yet, so a crash could undo it"),
        (SlowRunner(stored=TimeoutError()), 503, "not done within a minute: it may still be"),
        (None, 503, "not done: cpcmon is starting, reloading or stopping"),
    ],
)
def test_the_answer_says_what_happened(runner: Any, code: int, said: str) -> None:
    found, sentence = execute(json.dumps(RESET).encode(), runner)
    assert (found, sentence.startswith(said)) == (code, True)


def test_a_value_counts_as_written_when_its_latest_version_is() -> None:
    """A command waits for that, and not longer than it may."""
    values = PendingValues()
    values.store("baselines:density", b"1")
    older = values.unwritten()
    values.store("baselines:density", b"2")
    values.written(older)
    assert not values.wait_written("baselines:density", 0.01)
    threading.Timer(0.05, lambda: values.written(values.unwritten())).start()
    assert values.wait_written("baselines:density", LIMIT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reset"], "expected --segment beside it"),
        (["--maintenance", "2"], "--maintenance: expected a duration such as"),
        (["--maintenance", "2h", "--state", "state"], "--maintenance: expected a running daemon"),
        (["--state", "state", "--config.file", "config.yaml"], "expected no --config.file beside it"),
        (["--url", "localhost:9877"], "expected a URL such as"),
        (["--user", "operator"], "expected both or neither"),
        (["--state", "."], "expected the state directory of a daemon"),
    ],
)
def test_usage_that_makes_no_sense_is_refused(words: list[str], said: str, cpcmon: Callable[..., Ran]) -> None:
    ran = cpcmon("baseline", "density", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_no_daemon_is_a_failure(cpcmon: Callable[..., Ran]) -> None:
    """With a hint at what else there is."""
    ran = cpcmon("baseline", "density", "--url", "http://127.0.0.1:1")
    assert ran.code == 1
    assert "expected a running cpcmon (of a stopped one, name --config.file or --state)" in ran.err
