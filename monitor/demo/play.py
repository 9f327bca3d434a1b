"""Plays the story: sends records and late labels to a supervised daemon, narrates."""

import json
import math
import re
import secrets
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from monitor.core.estimate import HEADLINE
from monitor.core.labels.audit import audited
from monitor.demo.demo_folder import (
    AUDITED_SHARE,
    LABELS_TOPIC,
    MINIMUM,
    TOPIC,
    WINDOW,
    DirectoryFeed,
    Feed,
    Folder,
    KafkaFeed,
)
from monitor.demo.story import (
    LABELS,
    LABELS_AFTER,
    LENGTH,
    LOWEST,
    MODEL,
    REPLACED,
    SHIFTED,
    Examined,
    Exams,
    Truth,
    events,
    labels,
    records,
)
from monitor.errors import Problem, ServerError
from monitor.records.id_hash import hash_ids
from monitor.state.state_folder import read_hash_key

_TIMEOUT_SECONDS = 5.0
_LOWEST = LOWEST.partition("=")[2]
_BOLD, _RED, _GREEN = "1", "31", "32"

Segments = dict[str, dict[str, Any]]
"""Segments of `/api/v1/status`, by name."""
Series = dict[str, float]
"""Series of `/metrics` about the replaced scanner, by name."""
_SERIES = re.compile(rf'^(\w+){{(?!.*scope="window").*segment="{SHIFTED}".*}} (\S+)$', re.MULTILINE)
_JUDGED = "cpcmon_track_record_latest_"


def _read(url: str) -> str:
    """Read a page of the daemon; empty if it does not answer."""
    try:
        # Without a proxy.
        with build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError, HTTPException):
        return ""


def read_series(url: str) -> Series:
    """Read what labels say of the replaced scanner, over the horizon; empty if the daemon does not answer."""
    return {name: float(value) for name, value in _SERIES.findall(_read(f"{url}metrics"))}


def read_segments(url: str) -> Segments | None:
    """Read the segments from the daemon; None if it does not answer."""
    if not (found := _read(f"{url}api/v1/status")):
        return None
    document = json.loads(found)
    return {one["segment"]: one for model in document["models"] if model["model"] == MODEL for one in model["segments"]}


def _has_estimate(segments: Segments) -> bool:
    """Return whether there is an estimate for the replaced scanner."""
    return _estimated(segments.get(SHIFTED)) is not None


@dataclass(slots=True)
class Narration:
    """Prints what happens, in colour on a terminal."""

    say: Callable[[str], None]
    reference: float
    coloured: bool = False
    _firing: set[tuple[str, str]] = field(default_factory=set)
    _judged_at: float | None = None
    """The end of the last block of the track record that was printed."""

    def event(self, seconds: float, sentence: str) -> None:
        """Print an event of the story."""
        self.say(f"{_clock(seconds)}  {self._in(_BOLD, sentence)}")

    def alerts(self, seconds: float, segments: Segments) -> None:
        """Print the alerts that began or ended since the last call."""
        firing = {
            (name, alert["alert"]) for name, one in segments.items() for alert in one["alerts"] if alert["firing"]
        }
        for name, alert in sorted(firing - self._firing):
            self.say(f"{_clock(seconds)}  {self._in(_RED, 'ALERT')} {alert} fires for {name}")
        for name, alert in sorted(self._firing - firing):
            self.say(f"{_clock(seconds)}  {self._in(_GREEN, 'ended')} {alert} for {name}")
        self._firing = firing

    def numbers(self, seconds: float, segments: Segments, true: dict[str, float | None]) -> None:
        """Print the accuracy at the replaced scanner, at the least accurate hospital and overall."""
        windows = ((f"{REPLACED.room} at {REPLACED.hospital}", SHIFTED), (_LOWEST, LOWEST), ("all scanners", "all"))
        pairs = "; ".join(f"{title} {_pair(segments.get(name), true.get(name))}" for title, name in windows)
        self.say(f"{_clock(seconds)}  {pairs}; reference {self.reference:.3f}")

    def labels(self, seconds: float, series: Series, came_until: float) -> None:
        """Print what labels say of the last block of exams at the replaced scanner, if all labels until its end came."""
        ended_at = series.get(f"{_JUDGED}timestamp_seconds", math.inf)
        if ended_at > came_until or ended_at == self._judged_at:
            return
        if self._judged_at is None:
            self.event(seconds, LABELS)
        self._judged_at = ended_at
        audit, estimate = (_number(series.get(f"{_JUDGED}{name}_ratio")) for name in ("realised", "estimated"))
        cases, right = (series.get(f"cpcmon_{name}", 0.0) for name in ("labelled_records", "realised_accuracy_ratio"))
        self.say(
            f"{_clock(seconds)}  {REPLACED.room} at {REPLACED.hospital}: labels of the audit say {audit}, the estimate said"
            f" {estimate}; of all {cases:.0f} labelled cases {_number(right)}, a biased choice"
        )

    def _in(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.coloured else text


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def _pair(segment: dict[str, Any] | None, true: float | None) -> str:
    return f"estimated {_number(_estimated(segment))}, true {_number(true)}"


def _estimated(segment: dict[str, Any] | None) -> float | None:
    return None if segment is None else segment["estimators"].get(HEADLINE, {}).get("accuracy")


def _number(value: float | None) -> str:
    return "not yet" if value is None else f"{value:.3f}"


_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_LAST_LINES = 8
_READY = re.compile(r"is ready on (http://[^\s\"]+)")


class DaemonProcess:
    """A daemon in a child process."""

    def __init__(self, config: Path, log: Path, address: str) -> None:
        self._log = log
        # -P: do not import a package `monitor` of the current directory.
        command = [sys.executable, "-P", "-m", "monitor.demo.supervisor", "run"]
        with log.open("wb") as out:
            # In its own session, so that Ctrl-C reaches the demo only.
            self._process = subprocess.Popen(  # noqa: S603
                [*command, "--config.file", str(config), "--web.listen-address", address],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def url(self) -> str:
        """Wait until the daemon is ready and return its URL; raises ServerError if it does not start."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = _READY.search(self._log.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                return found[1]
            self.check()
            time.sleep(0.05)
        raise self._ended(f"it not ready after {_START_SECONDS:.0f} s")

    def check(self) -> None:
        """Raise ServerError if the daemon has ended."""
        code = self._process.poll()
        if code is not None:
            raise self._ended(f"it ended with {code}")

    def stop(self) -> None:
        """Stop the daemon; kill it if it does not stop in time."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self, found: str) -> ServerError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        tail = "".join(f"\n  {line}" for line in lines) or " nothing"
        return ServerError(Problem("the daemon", "it running", f"{found}; end of {self._log}:{tail}"))


_TICK_SECONDS = 0.5
_STATUS_SECONDS = 2.0
_NUMBERS_SECONDS = 10.0
_LABELS_READ_AFTER = 3.0
"""From the end of the time that labels take until the daemon has read and evaluated them."""
_MOST_SECONDS = 5.0
"""Upper bound for records sent at once after a delay."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of `cpcmon demo`."""

    directory: Path
    address: str
    broker: str | None = None
    seconds: float | None = None
    rate: float = 300.0
    """Records per second."""
    speed: float = 1.0
    """Seconds of the story per second."""
    seed: int = 1


def play(options: DemoOptions, reference: float, say: Callable[[str], None], *, coloured: bool) -> None:
    """Repeat the story until interrupted or for `options.seconds`. Raises ServerError if the daemon ends."""
    folder = Folder(options.directory)
    run = secrets.token_hex(4)
    folder.configure(options.broker, f"cpcmon-demo-{run}", options.speed)
    with ExitStack() as stack:
        feeds: list[Feed] = []
        for path, topic in ((folder.arriving, TOPIC), (folder.labels, LABELS_TOPIC)):
            feeds.append(DirectoryFeed(path) if options.broker is None else KafkaFeed(options.broker, topic))
            stack.callback(feeds[-1].close)
        daemon = DaemonProcess(folder.config, folder.log, options.address)
        try:
            url = daemon.url()
            say(f"Open {url} in a browser, or {url}metrics. Press Ctrl-C to stop.")
            say(
                f"Estimates are those of `{HEADLINE}`, the main number. Its page shows two intervals: what chance explains,"
                " and how far estimates have been off in real shifts."
            )
            late = _LateLabels(feeds[1], run, read_hash_key(folder.state))
            _Playing(options, feeds[0], late, daemon, url, run).go(Narration(say, reference, coloured))
        finally:
            daemon.stop()


class _Due:
    """A periodic timer."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = 0.0

    def now(self, seconds: float) -> bool:
        if seconds < self._next:
            return False
        self._next = seconds + self._every
        return True


class _LateLabels:
    """Sends labels of some exams, some time after their records."""

    def __init__(self, feed: Feed, run: str, key: bytes) -> None:
        self._feed = feed
        self._run = run
        self._key = key
        """Of the daemon's hashes of ids: it decides which exams are audited, as in `cpcmon audit-check`."""
        self._waiting: deque[tuple[float, list[dict[str, Any]]]] = deque()

    def note(self, examined: list[Examined], first: int, at: float) -> None:
        """Keep the labels of exams until they are due."""
        found = labels(examined, first, self._run, lambda ids: audited(hash_ids(ids, self._key), AUDITED_SHARE))
        self._waiting.append((at + LABELS_AFTER, found))

    def send(self, at: float) -> None:
        """Send the labels that are due."""
        due: list[dict[str, Any]] = []
        while self._waiting and self._waiting[0][0] <= at:
            due += self._waiting.popleft()[1]
        if due:
            now = round(time.time(), 3)
            self._feed.send([{**one, "time": now} for one in due])


class _Playing:
    """One run of the story."""

    def __init__(
        self, options: DemoOptions, feed: Feed, late: _LateLabels, daemon: DaemonProcess, url: str, run: str
    ) -> None:
        self._options = options
        self._feed = feed
        self._late = late
        self._daemon = daemon
        self._url = url
        self._run = run
        self._exams = Exams(options.seed)
        self._truth = Truth(WINDOW, MINIMUM)
        self._sent = 0

    def go(self, narration: Narration) -> None:
        """Play until the time is up."""
        status, numbers = _Due(_STATUS_SECONDS / self._options.speed), _Due(_NUMBERS_SECONDS)
        began, narrated, fed = time.monotonic(), -1.0, 0.0
        while True:
            self._daemon.check()
            passed = time.monotonic() - began
            if self._options.seconds is not None and passed >= self._options.seconds:
                return
            at = passed * self._options.speed
            for event in events(narrated, at):
                again = event.at > 0.0 and event.at % LENGTH == 0.0
                narration.event(event.at, f"The story repeats. {event.sentence}" if again else event.sentence)
            narrated = at
            self._send(min(passed - fed, _MOST_SECONDS), at)
            self._late.send(at)
            fed = passed
            if status.now(passed) and (segments := read_segments(self._url)) is not None:
                narration.alerts(at, segments)
                late = (LABELS_AFTER + _LABELS_READ_AFTER) / self._options.speed
                narration.labels(at, read_series(self._url), time.time() - late)
                if _has_estimate(segments) and numbers.now(passed):
                    true = {name: self._truth.now(name) for name in (SHIFTED, LOWEST, "all")}
                    narration.numbers(at, segments, true)
            time.sleep(max(0.0, _TICK_SECONDS - (time.monotonic() - began - passed)))

    def _send(self, seconds: float, at: float) -> None:
        count = round(seconds * self._options.rate * self._options.speed)
        if count == 0:
            return
        examined = self._exams.next(count, at)
        self._feed.send(records(examined, self._sent, self._run, time.time()))
        self._late.note(examined, self._sent, at)
        self._truth.note(examined)
        self._sent += count
