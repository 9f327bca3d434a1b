"""What the daemon's own thread is asked to do: reloads, stops, and both at once. In this process, by real signals."""

import signal
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from monitor.core.estimate import WindowState
from monitor.core.history import Span
from monitor.core.report import SegmentReport
from monitor.core.segments import ALL
from monitor.daemon.clock import moment
from monitor.daemon.daemon import Daemon, RunOptions
from monitor.errors import StateLost
from tests.core.test_past import report
from tests.daemon.conftest import Site

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(site: Site) -> Iterator[Daemon]:
    """One that was made and does not run yet; afterwards this process listens to signals as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield Daemon(RunOptions(site.config, "127.0.0.1:0"))
    for number, handler in before.items():
        signal.signal(number, handler)


class Reloads:
    """Takes the place of a reload: counts, and asks for a stop."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    def __call__(self, _: object) -> None:
        """Be asked for a reload."""
        self.count += 1
        if self._error is not None:
            raise self._error
        signal.raise_signal(signal.SIGTERM)


def test_a_reload_that_is_asked_for_during_the_start_follows_it(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a process that does not listen yet, SIGHUP is the end; systemd would not start it again."""
    signal.raise_signal(signal.SIGHUP)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 1


def test_a_storm_of_signals_is_one_reload(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(1000):
        signal.raise_signal(signal.SIGHUP)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 1


def test_a_stop_does_not_wait_for_reloads_that_were_asked_for_before(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Future[str | None]] = [Future() for _ in range(3)]
    begin = daemon._begin  # noqa: SLF001 - the instant between the start and the first wish

    def begun(*arguments: object) -> None:
        begin(*arguments)  # type: ignore[arg-type]
        for wish in asked:
            daemon._wishes.put(wish)  # noqa: SLF001
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(daemon, "_begin", begun)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 0
    assert {wish.result(0) for wish in asked} == {"reload: expected cpcmon to go on, found it stopping"}


def test_whoever_asked_for_a_reload_that_ends_cpcmon_is_told(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Future[str | None] = Future()
    daemon._wishes.put(asked)  # noqa: SLF001
    monkeypatch.setattr(daemon, "_reload", Reloads(StateLost("as if")))
    with pytest.raises(StateLost, match="as if"):
        daemon.run()
    assert asked.result(0) == "reload: expected cpcmon to go on, found it stopping"


def test_numbers_that_are_taken_back_are_a_gap_in_the_history(daemon: Daemon) -> None:
    """Not a line that goes on to the next ones."""
    standing = daemon._standing  # noqa: SLF001 - what its pages are made from
    found = standing.site()
    healthy, now = report(0.5), moment().now
    standing.history.note(healthy, now - 60.0)
    failed = replace(healthy, segments=tuple(SegmentReport(ALL, 0, WindowState.ERROR) for _ in healthy.segments))
    daemon._retract(failed)  # noqa: SLF001 - what failed evaluations end in
    series = found.history("density", "all", Span.RECENT)
    assert series is not None
    assert series.states == (WindowState.OK, WindowState.ERROR)
    assert np.isnan(series.accuracy).tolist() == [False, True]
    assert series.at[1] >= now
