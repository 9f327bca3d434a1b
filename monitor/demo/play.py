"""Plays the story: feeds the supervised daemon, keeps the truth aside, narrates."""

import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from monitor.core.report import Realised
from monitor.demo.demo_folder import MINIMUM, WINDOW, DirectoryFeed, Feed, Folder, KafkaFeed
from monitor.demo.story import LENGTH, MODEL, REPLACED, SHIFTED, Exams, Truth, events, records
from monitor.errors import ServerError

_TIMEOUT_SECONDS = 5.0
_BOLD, _RED, _GREEN = "1", "31", "32"

Segments = dict[str, dict[str, Any]]
"""Of the daemon's status, by name."""


def read_segments(url: str) -> Segments | None:
    """Ask the daemon how the windows are; None when it does not answer, or has nothing to say yet."""
    try:
        # Straight to our own daemon, whatever proxy this machine has for the world outside.
        with build_opener(ProxyHandler({})).open(f"{url}api/v1/status", timeout=_TIMEOUT_SECONDS) as answer:
            document = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return None
    return {one["segment"]: one for model in document["models"] if model["model"] == MODEL for one in model["segments"]}


def told_of(segments: Segments) -> bool:
    """Tell whether there is an estimate for the scanner of the story."""
    return _estimated(segments.get(SHIFTED)) is not None


@dataclass(slots=True)
class Account:
    """Tells. Colours only where a terminal shows them."""

    say: Callable[[str], None]
    reference: float
    coloured: bool = False
    _firing: set[tuple[str, str]] = field(default_factory=set)

    def event(self, seconds: float, sentence: str) -> None:
        """Tell what happens in the story."""
        self.say(f"{_clock(seconds)}  {self._in(_BOLD, sentence)}")

    def alerts(self, seconds: float, segments: Segments) -> None:
        """Tell which alerts began and ended since the last look."""
        firing = {
            (name, alert["alert"]) for name, one in segments.items() for alert in one["alerts"] if alert["firing"]
        }
        for name, alert in sorted(firing - self._firing):
            self.say(f"{_clock(seconds)}  {self._in(_RED, 'ALERT')} {alert} fires for {name}")
        for name, alert in sorted(self._firing - firing):
            self.say(f"{_clock(seconds)}  {self._in(_GREEN, 'ended')} {alert} for {name}")
        self._firing = firing

    def numbers(self, seconds: float, segments: Segments, realised: dict[str, Realised | None]) -> None:
        """Tell how accurate the model is, at the scanner of the story and everywhere."""
        places = ((f"{REPLACED.room} at {REPLACED.hospital}", SHIFTED), ("all scanners", "all"))
        told = "; ".join(f"{called} {_pair(segments.get(name), realised.get(name))}" for called, name in places)
        self.say(f"{_clock(seconds)}  {told}; reference {self.reference:.3f}")

    def _in(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.coloured else text


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def _pair(segment: dict[str, Any] | None, realised: Realised | None) -> str:
    return (
        f"estimated {_number(_estimated(segment))}, realised {_number(None if realised is None else realised.accuracy)}"
    )


def _estimated(segment: dict[str, Any] | None) -> float | None:
    return None if segment is None else segment["estimators"].get("consensus", {}).get("accuracy")


def _number(value: float | None) -> str:
    return "not yet" if value is None else f"{value:.3f}"


_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_LAST_LINES = 8
_READY = re.compile(r"is ready on (http://[^\s\"]+)")


class DaemonProcess:
    """One daemon. Used by one thread."""

    def __init__(self, config: Path, log: Path, address: str) -> None:
        self._log = log
        # -P: a folder `monitor` where the demo is run is not taken for ours.
        command = [sys.executable, "-P", "-m", "monitor.demo.supervisor", "run"]
        with log.open("wb") as out:
            # In a session of its own: Ctrl-C is for the demo, which then stops the daemon, once.
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [*command, "--config.file", str(config), "--web.listen-address", address],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def url(self) -> str:
        """Wait until the daemon is ready, and return where its page is; raises ServerError when it is not."""
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
        """Let go of it, wait until it has written down what it knows, and make sure that it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self, found: str) -> ServerError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        told = "".join(f"\n  {line}" for line in lines) or " nothing"
        return ServerError(f"the daemon: expected it at work, found {found}; the end of {self._log} says:{told}")


_TICK_SECONDS = 0.5
_LOOK_SECONDS = 2.0
_TRUTH_SECONDS = 5.0
_NUMBERS_SECONDS = 10.0
_MOST_SECONDS = 5.0
"""What is made up for at once after the demo was held up."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says."""

    directory: Path
    address: str
    broker: str | None = None
    seconds: float | None = None
    rate: float = 300.0
    """Records a second."""
    speed: float = 1.0
    """How many of the story's seconds pass in one."""
    seed: int = 1


def play(wishes: Wishes, reference: float, say: Callable[[str], None], *, coloured: bool) -> None:
    """Play the story over and over until interrupted, or for so long. Raises ServerError when the daemon ends."""
    folder = Folder(wishes.directory)
    run = secrets.token_hex(4)
    folder.configure(wishes.broker, f"cpcmon-demo-{run}", wishes.speed)
    feed: Feed = DirectoryFeed(folder.arriving) if wishes.broker is None else KafkaFeed(wishes.broker)
    try:
        daemon = DaemonProcess(folder.config, folder.log, wishes.address)
        try:
            url = daemon.url()
            say(f"Open {url} in a browser, or {url}metrics. Ctrl-C ends it.")
            _Playing(wishes, folder, feed, daemon, url, run).go(Account(say, reference, coloured))
        finally:
            daemon.stop()
    finally:
        feed.close()


class _Due:
    """Says when something is to be done again."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = 0.0

    def now(self, seconds: float) -> bool:
        if seconds < self._next:
            return False
        self._next = seconds + self._every
        return True


class _Playing:
    """One run of the story."""

    def __init__(self, wishes: Wishes, folder: Folder, feed: Feed, daemon: DaemonProcess, url: str, run: str) -> None:
        self._wishes = wishes
        self._folder = folder
        self._feed = feed
        self._daemon = daemon
        self._url = url
        self._run = run
        self._exams = Exams(wishes.seed)
        self._truth = Truth(WINDOW, MINIMUM)
        self._sent = 0

    def go(self, account: Account) -> None:
        """Play until the time is up."""
        look, truth, numbers = _Due(_LOOK_SECONDS / self._wishes.speed), _Due(_TRUTH_SECONDS), _Due(_NUMBERS_SECONDS)
        began, told, fed = time.monotonic(), -1.0, 0.0
        while True:
            self._daemon.check()
            passed = time.monotonic() - began
            if self._wishes.seconds is not None and passed >= self._wishes.seconds:
                return
            at = passed * self._wishes.speed
            for event in events(told, at):
                again = event.at > 0.0 and event.at % LENGTH == 0.0
                account.event(event.at, f"Once more. {event.sentence}" if again else event.sentence)
            told = at
            self._send(min(passed - fed, _MOST_SECONDS), at)
            fed = passed
            if truth.now(passed):
                self._truth.write(self._folder.realised, time.time())
            if look.now(passed) and (segments := read_segments(self._url)) is not None:
                account.alerts(at, segments)
                if told_of(segments) and numbers.now(passed):
                    now = time.time()
                    account.numbers(at, segments, {name: self._truth.now(name, now) for name in (SHIFTED, "all")})
            time.sleep(max(0.0, _TICK_SECONDS - (time.monotonic() - began - passed)))

    def _send(self, seconds: float, at: float) -> None:
        count = round(seconds * self._wishes.rate * self._wishes.speed)
        if count == 0:
            return
        examined = self._exams.next(count, at)
        self._feed.send(records(examined, self._sent, self._run, time.time()))
        self._truth.note(examined)
        self._sent += count
