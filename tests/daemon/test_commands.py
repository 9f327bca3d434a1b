"""Commands to the daemon's thread: reload and stop, by real signals to this process."""

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
from tests.core.test_history import report
from tests.daemon.conftest import Site

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(site: Site) -> Iterator[Daemon]:
    """A daemon that does not run yet; restores the signal handlers afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield Daemon(RunOptions(site.config, "127.0.0.1:0"))
    for number, handler in before.items():
        signal.signal(number, handler)


class Reloads:
    """Replaces `_reload`: counts calls and requests a stop."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    def __call__(self, _: object) -> None:
        """Reload."""
        self.count += 1
        if self._error is not None:
            raise self._error
        signal.raise_signal(signal.SIGTERM)


def test_a_reload_requested_during_the_start_runs_after_it(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler, SIGHUP would kill the process, and systemd would not restart it."""
    signal.raise_signal(signal.SIGHUP)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 1


def test_many_signals_are_one_reload(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(1000):
        signal.raise_signal(signal.SIGHUP)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 1


def test_a_stop_does_not_wait_for_queued_reloads(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Future[str | None]] = [Future() for _ in range(3)]
    begin = daemon._begin  # noqa: SLF001

    def begun(*arguments: object) -> None:
        begin(*arguments)  # type: ignore[arg-type]
        for reload in requested:
            daemon._commands.put(reload)  # noqa: SLF001
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(daemon, "_begin", begun)
    monkeypatch.setattr(daemon, "_reload", reloads := Reloads())
    daemon.run()
    assert reloads.count == 0
    assert all("stopping" in (reload.result(0) or "") for reload in requested)


def test_a_reload_that_ends_the_daemon_is_answered(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: Future[str | None] = Future()
    daemon._commands.put(requested)  # noqa: SLF001
    monkeypatch.setattr(daemon, "_reload", Reloads(StateLost("as if")))
    with pytest.raises(StateLost, match="as if"):
        daemon.run()
    assert "stopping" in (requested.result(0) or "")


def test_retracted_estimates_are_a_gap_in_the_history(daemon: Daemon) -> None:
    status = daemon._status  # noqa: SLF001
    found = status.site()
    healthy, now = report(0.5), moment().now
    status.history.note(healthy, now - 60.0)
    failed = replace(healthy, segments=tuple(SegmentReport(ALL, 0, WindowState.ERROR) for _ in healthy.segments))
    daemon._retract(failed)  # noqa: SLF001
    series = found.history("density", "all", Span.RECENT)
    assert series is not None
    assert series.states == (WindowState.OK, WindowState.ERROR)
    assert np.isnan(series.accuracy).tolist() == [False, True]
    assert series.at[1] >= now
