"""What the demo tells: events as they happen, numbers in between, and alerts as the daemon reports them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.request import ProxyHandler, build_opener

from monitor.core.realised import Realised
from monitor.demo.exams import MODEL
from monitor.demo.story import REPLACED, SHIFTED

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
