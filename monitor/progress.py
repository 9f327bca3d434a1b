"""Whether the two strokes still move: what the watchdog is fed by, and what `/-/healthy` says."""

import threading

_STUCK_SECONDS = 120.0
"""Longer than any batch takes. A stroke that has not moved for so long will not move again."""


class Progress:
    """When each stroke last did something, on the steady clock; may be used by any thread."""

    def __init__(self, stuck_seconds: float = _STUCK_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def moved(self, stroke: str, running: float) -> None:
        """Note that a stroke did something."""
        with self._lock:
            self._last[stroke] = running

    def end(self, stroke: str) -> None:
        """Expect nothing of a stroke any more."""
        with self._lock:
            self._last.pop(stroke, None)

    def problems(self, running: float) -> list[str]:
        """Return a sentence for each stroke that is stuck."""
        with self._lock:
            return [
                f"{stroke} has not moved for {running - last:.0f} seconds"
                for stroke, last in self._last.items()
                if running - last > self._stuck_seconds
            ]
