"""`cpcmon baseline`: list, reset and confirm the baselines of a model's segments; hold its change alerts for maintenance."""

import argparse
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from monitor.cli.parser import as_path
from monitor.cli.run import DEFAULT_ADDRESS
from monitor.config.config import ModelConfig
from monitor.config.reading import read_config
from monitor.core.baselines.comparison import BaselineAction, BaselineKind, Baselines
from monitor.core.estimators.ensemble import headline_in
from monitor.core.segments import ALL, Segment, name_of
from monitor.errors import Problem, ServerError, StateInUse, UnknownName, UsageError
from monitor.evaluation.evaluator import LONGEST_MAINTENANCE, NOT_COMPLETE, segment_named
from monitor.evaluation.stored_values import StoredBaseline, baselines_as_bytes, baselines_from_bytes, baselines_key_of
from monitor.reference.reference import Reference
from monitor.settings.kinds import seconds
from monitor.state.commit_plan import CommitPlan
from monitor.state.database import BACKUPS, NAME
from monitor.state.store import State

_ANSWER_SECONDS = 150.0
_MOST_SENTENCE = 2_000
_UNAVAILABLE = 500
"""From this status on, the daemon failed, not the request."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "List what the segments of a model are compared with: their labelled records in the reference, or their own first"
        " records. After a known change, --reset starts a new own baseline. --confirm says that you compared a complete own"
        " baseline with labels, or know why it differs. --maintenance says that the records of the next time are no evidence of a"
        " change: a repair, or a test with phantoms."
    )
    parser.epilog = """\
examples:
  cpcmon baseline density --state state
  cpcmon baseline density --url http://localhost:9877
  cpcmon baseline density --segment site=A --reset
  cpcmon baseline density --segment site=A --maintenance 2h
  cpcmon baseline density --segment site=A --confirm --user operator --password-file secrets/operator
"""
    parser.add_argument("model", metavar="MODEL", help="the name of the model")
    parser.add_argument("--segment", metavar="NAME", help="only this segment, named as on the page: site=A,scanner=2")
    action = parser.add_mutually_exclusive_group()
    for one, help_ in (
        (BaselineAction.RESET, "start a new own baseline of the segment, from the records that come from now on"),
        (BaselineAction.CONFIRM, "mark the own baseline of the segment as verified"),
    ):
        action.add_argument(f"--{one}", dest="action", action="store_const", const=one, help=help_)
    action.add_argument(
        "--maintenance",
        metavar="DURATION",
        help="hold the change alerts of the segment, or of all, for so long, such as 2h; 0s to end it, without --segment everywhere",
    )
    add_daemon(parser, "Changes need `cpcmon run --web.enable-lifecycle`.")
    stopped = parser.add_argument_group("stopped daemon", "Run it as the daemon's user.")
    stopped.add_argument("--config.file", dest="config", type=as_path, metavar="FILE", help="its configuration")
    stopped.add_argument("--state", type=as_path, metavar="DIR", help="its state directory, without a configuration")
    parser.set_defaults(run=run)


def add_daemon(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the options for a running daemon."""
    daemon = parser.add_argument_group("running daemon", about)
    daemon.add_argument("--url", default=f"http://{DEFAULT_ADDRESS}", metavar="URL", help="its address")
    daemon.add_argument("--user", metavar="NAME", help="a user of its web configuration")
    daemon.add_argument("--password-file", type=as_path, metavar="FILE", help="file that contains the password")
    daemon.add_argument("--ca", type=as_path, metavar="FILE", help="CA certificates (default: those of the system)")


class _Row(NamedTuple):
    """A baseline for display; the other fields are those of `core.baselines.comparison.Baseline`."""

    segment: str
    kind: str
    accuracy: float | None
    records: int
    needed: int | None
    first_at: float | None
    last_at: float | None
    verified: bool

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns."""
        collecting = self.accuracy is None
        return (
            _printable(self.segment),
            self.kind,
            "-" if self.accuracy is None else f"{self.accuracy:.3f}",
            f"{self.records:,}" + (f" of {self.needed:,}" if collecting and self.needed is not None else ""),
            _time(self.first_at),
            _time(self.last_at),
            "collecting" if collecting else "yes" if self.verified else "no",
        )


def run(options: argparse.Namespace) -> int:
    """List or change baselines."""
    if options.action is not None and options.segment is None:
        raise UsageError(Problem(f"--{options.action}", "--segment beside it", "none"))
    if options.config is not None and options.state is not None:
        raise UsageError(Problem("--state", "no --config.file beside it", "one"))
    if options.maintenance is not None:
        if options.config is not None or options.state is not None:
            raise UsageError(Problem("--maintenance", "a running daemon", "the state of a stopped one"))
        lasting = 0.0 if options.maintenance == "0s" else seconds(options.maintenance, "--maintenance")
        if lasting > LONGEST_MAINTENANCE:
            raise UsageError(Problem("--maintenance", "at most 366d", options.maintenance))
        print(_Running(options).hold(options.segment, lasting))
        return 0
    place = _Stopped(options) if options.config is not None or options.state is not None else _Running(options)
    if options.action is not None:
        print(place.change(options.segment, options.action))
        return 0
    rows = place.rows()
    if options.segment is not None and not (rows := [row for row in rows if row.segment == options.segment]):
        raise UnknownName(Problem("--segment", "the name of one segment of the model", "none of that name"))
    table = [("segment", "kind", "accuracy", "records", "from", "to", "verified"), *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
    return 0


class DaemonClient:
    """A running daemon, over HTTP."""

    def __init__(self, options: argparse.Namespace, expected: str = "a running cpcmon") -> None:
        """`expected` is for the error when there is no answer."""
        self._expected = expected
        self._url: str = options.url.rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise UsageError(Problem("--url", f"a URL such as http://{DEFAULT_ADDRESS}", repr(options.url)))
        if (options.user is None) != (options.password_file is None):
            raise UsageError(Problem("--user and --password-file", "both or neither", "one"))
        self._login: str | None = None
        if options.user is not None:
            password = options.password_file.read_text(encoding="utf-8").strip()
            self._login = "Basic " + b64encode(f"{options.user}:{password}".encode()).decode()
        try:
            context = ssl.create_default_context(cafile=options.ca)
        except ssl.SSLError as error:
            raise UsageError(Problem("--ca", "a file of certificates", error.reason or "another")) from error
        # No proxy: cpcmon is usually on this machine or nearby.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def command(self, command: dict[str, object]) -> str:
        """Send a command; return what the daemon says."""
        return _printable(self._ask("/-/command", json.dumps(command).encode()).strip())

    def _ask(self, path: str, body: bytes | None) -> str:
        request = Request(self._url + path, data=body)  # noqa: S310 - http or https, see above
        request.add_header("Content-Type", "application/json")
        if self._login is not None:
            # Not sent to wherever a redirect points.
            request.add_unredirected_header("Authorization", self._login)
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                return str(answer.read().decode(errors="replace"))
        except HTTPError as error:
            said = _printable(error.read(_MOST_SENTENCE).decode(errors="replace").strip())
            failed = ServerError if error.code >= _UNAVAILABLE else UsageError
            raise failed(f"{self._url}: {error.code}: {said}") from error
        except (URLError, OSError, HTTPException) as error:
            found = getattr(error, "reason", error)
            raise ServerError(Problem(self._url, self._expected, str(found))) from error


class _Running(DaemonClient):
    """The baselines of a running daemon."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options, "a running cpcmon (of a stopped one, name --config.file or --state)")
        self._model: str = options.model

    def rows(self) -> list[_Row]:
        """Return the baselines of the windows of the last evaluation."""
        found = self._ask("/api/v1/status", None)
        try:
            models = {one["model"]: one for one in json.loads(found)["models"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(Problem(self._url, "the status of cpcmon", "another document")) from error
        if self._model not in models:
            raise UnknownName(Problem("MODEL", f"one of {', '.join(sorted(models)) or 'none so far'}", self._model))
        segments = [one for one in models[self._model]["segments"] if one.get("baseline")]
        return _ordered([_row(one["segment"], one["baseline"]) for one in segments])

    def change(self, segment: str, action: BaselineAction) -> str:
        """Reset or confirm; return what the daemon says."""
        return self.command({"command": "baseline", "model": self._model, "segment": segment, "action": action})

    def hold(self, segment: str | None, lasting: float) -> str:
        """Hold change alerts; return what the daemon says."""
        return self.command({"command": "maintenance", "model": self._model, "segment": segment, "seconds": lasting})


class _Stopped:
    """The state directory of a stopped daemon."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._name: str = options.model
        self._folder: Path = options.state
        self._allow_network = True
        self._model: ModelConfig | None = None
        self._baselines: Baselines | None = None
        if options.config is not None:
            config = read_config(options.config)
            self._folder, self._allow_network = config.storage.path, config.storage.allow_network
            models = {model.name: model for model in config.models}
            if self._name not in models:
                raise UnknownName(Problem("MODEL", f"one of {', '.join(models)}", self._name))
            self._model = models[self._name]
            if self._model.reference is not None:
                self._baselines = _baselines(self._model, Reference.load(self._model.reference))

    def rows(self) -> list[_Row]:
        """Return the stored own baselines, and with a configuration those of the reference."""
        with closing(self._open(repair=False)) as state:
            stored = self._stored(state)
        baselines = self._baselines
        rows = [] if baselines is None else _of_reference(baselines)
        needed = None if baselines is None else baselines.needed
        for segment, one in stored:
            if baselines is None or baselines.kind(segment) is BaselineKind.OWN:
                accuracy = one.estimates.get(headline_in(tuple(one.estimates))) if one.complete else None
                times = one.first_at, one.last_at
                rows.append(
                    _Row(name_of(segment), BaselineKind.OWN, accuracy, one.records, needed, *times, one.confirmed)
                )
        return _ordered(rows)

    def change(self, name: str, action: BaselineAction) -> str:
        """Reset or confirm; return what happened."""
        with closing(self._open(repair=True)) as state:
            stored = self._stored(state)
            segment = segment_named(name, (one for one, *_ in stored))
            if self._baselines is not None and (kind := self._baselines.kind(segment)) is not BaselineKind.OWN:
                raise UsageError(Problem("segment", "one with an own baseline", f"one with baseline {kind}"))
            changed = [_changed(one, action) if one[0] == segment else one for one in stored]
            plan = CommitPlan(values={baselines_key_of(self._name): baselines_as_bytes(changed)})
            state.commit(plan, time.time())
        return "done, and stored"

    def _open(self, *, repair: bool) -> State:
        if not any((self._folder / name).exists() for name in (NAME, *BACKUPS)):
            raise UsageError(Problem(str(self._folder), "the state directory of a daemon", f"one without {NAME}"))
        try:
            return State.open(self._folder, allow_network=self._allow_network, repair=repair)
        except StateInUse as error:
            raise StateInUse(
                f"{error}; of a running daemon, name --url in place of --config.file and --state"
            ) from error

    def _stored(self, state: State) -> list[StoredBaseline]:
        """Return the stored own baselines, without those of another reference."""
        content = state.values().get(baselines_key_of(self._name))
        try:
            stored = [] if content is None else baselines_from_bytes(content)
        except ValueError as error:
            raise UsageError(Problem(str(self._folder), "baselines that can be read", "damaged ones")) from error
        return [one for one in stored if self._baselines is None or one[1].of == self._baselines.of]


def _baselines(model: ModelConfig, reference: Reference) -> Baselines:
    bounds = model.bounds
    return Baselines(reference.calibration, model.baseline, reference.fingerprint, bounds.records, bounds.age_seconds)


def _of_reference(baselines: Baselines) -> list[_Row]:
    """Return the baselines that come with the reference."""
    numbers, labelled = baselines.calibration, baselines.calibration.segments
    measured: list[tuple[Segment, float, int]] = [(ALL, numbers.accuracy, numbers.records)]
    measured += (
        [] if labelled is None else [(one, labelled[one].accuracy, labelled[one].records) for one in labelled.segments]
    )
    return [
        _Row(name_of(segment), kind, accuracy, records, None, None, None, verified=True)
        for segment, accuracy, records in measured
        if (kind := baselines.kind(segment)) is not BaselineKind.OWN
        and (segment == ALL or kind is BaselineKind.LABELLED)
    ]


def _changed(stored: StoredBaseline, action: BaselineAction) -> StoredBaseline:
    segment, one = stored
    if action is BaselineAction.RESET:
        return segment, one.restarted()
    if not one.complete:
        raise UsageError(NOT_COMPLETE)
    return segment, replace(one, confirmed=True)


def _ordered(rows: list[_Row]) -> list[_Row]:
    """Return the rows by name, the whole model first."""
    return sorted(rows, key=lambda row: (row.segment != name_of(ALL), row.segment))


def _row(segment: str, one: dict[str, Any]) -> _Row:
    """Return the row of a segment of `/api/v1/status`."""
    keys: Sequence[str] = ("kind", "accuracy", "records", "needed", "from", "to", "verified")
    return _Row(segment, *(one[key] for key in keys))


def _time(at: float | None) -> str:
    return "-" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _printable(text: str) -> str:
    """Return a text that is safe to print: producers choose the names of segments."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
