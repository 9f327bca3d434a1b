"""Lets the story happen: feeds the daemon, keeps the truth aside, looks at what the daemon says, and tells."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monitor.demo.account import Account, read_segments, told_of
from monitor.demo.exams import Exams, records
from monitor.demo.feed import DirectoryFeed, Feed, KafkaFeed
from monitor.demo.folder import MINIMUM, WINDOW, Folder
from monitor.demo.process import DaemonProcess
from monitor.demo.story import LENGTH, SHIFTED, events
from monitor.demo.truth import Truth

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
