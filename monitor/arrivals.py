"""When records last came to each window: how long a source has been quiet is told from it."""

from collections.abc import Iterable, Mapping

from monitor.state.change import WindowName


class Arrivals:
    """Last arrivals. Not safe for two threads at once; its owner holds a lock."""

    def __init__(self) -> None:
        self._since: dict[WindowName, float] = {}
        self._before: dict[WindowName, float] = {}

    def restore(self, before: Mapping[WindowName, float]) -> None:
        """Take over when records came before the start, in Unix seconds."""
        self._before.update(before)

    def note(self, windows: Iterable[WindowName], running: float) -> None:
        """Records came to these windows now, on the steady clock."""
        self._since.update(dict.fromkeys(windows, running))

    def forget(self, windows: Iterable[WindowName]) -> None:
        """These windows are gone."""
        for name in windows:
            self._since.pop(name, None)
            self._before.pop(name, None)

    def since_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return when a record last came to any of these since the start, on the steady clock; None when none has."""
        return max((self._since[name] for name in windows if name in self._since), default=None)

    def before_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return when the last record before the start came, in Unix seconds; None when there was none."""
        return max((self._before[name] for name in windows if name in self._before), default=None)
