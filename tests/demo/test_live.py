"""The demo as people run it: the real command, its daemon and its page, with the story made faster."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.demo import _interruptible
from monitor.demo.story import REPLACED, SEGMENTS, SHIFTED
from tests.demo.process import LIMIT, demo, gone, waited

pytestmark = pytest.mark.slow

ANY_PORT = ("--web.listen-address", "127.0.0.1:0")
LEFT = {
    "arriving",
    "config.yaml",
    "cpcmon.log",
    "demo.lock",
    "density.ref",
    "realised.jsonl",
    "state-live",
    "tour.yaml",
}


def test_the_story_is_seen_and_ctrl_c_leaves_only_the_folder_and_it_works_again(
    prepared: Callable[[], Path],
) -> None:
    """Estimates, the alert in its place, the truth aside; then a second run, which knows nothing of the first alert."""
    folder = prepared()
    with demo(folder, *ANY_PORT, "--speed", "6") as first:
        waited(
            lambda: f'cpcmon_estimated_accuracy_ratio{{estimator="consensus",model="density",segment="{SHIFTED}"}}' in first.metrics(),
            lambda: "an estimate",
        )  # fmt: skip
        first.hear(f"ALERT accuracy_low fires for {SHIFTED}")
        segments = first.segments()
        assert set(segments) == set(SEGMENTS)
        firing = {name for name, one in segments.items() for alert in one["alerts"] if alert["firing"]}
        assert SHIFTED in firing
        assert firing <= {SHIFTED, f"hospital={REPLACED.hospital}"}
        told = first.hear(r"N2 at Northlake estimated (0\.\d+), realised (0\.\d+); .*; reference (0\.\d+)")
        assert all(0.5 < float(number) < 1.0 for number in told.groups())
        shown = first.ask("api/v1/realised?model=density")
        assert shown["remark"] is None
        assert SHIFTED in {one["segment"] for one in shown["realised"]}
        daemon = first.daemon
        assert first.interrupt() == 0
        assert "The demo has ended" in first.said.splitlines()[-2]
        assert gone(daemon)
    lines = [json.loads(line) for line in (folder / "realised.jsonl").read_text().splitlines()]
    assert {line["segment"] for line in lines} == set(SEGMENTS)
    assert all(0 < line["right"] <= line["records"] <= 1000 for line in lines)
    assert {path.name for path in folder.iterdir()} >= LEFT
    assert [path.name for path in folder.parent.iterdir() if path.suffix != ".out"] == [folder.name]
    with demo(folder, *ANY_PORT) as second:
        second.hear("estimated 0")
        assert "Making a reference" not in second.said
        assert [alert for one in second.segments().values() for alert in one["alerts"] if alert["firing"]] == []


def test_in_a_folder_where_a_demo_is_at_work_another_one_says_so(prepared: Callable[[], Path]) -> None:
    """It ends with the code of state in use and disturbs nothing. A daemon on the same state is noticed as well."""
    folder = prepared()
    with demo(folder, *ANY_PORT) as first:
        assert first.url
        with demo(folder, *ANY_PORT) as second:
            assert second.process.wait(LIMIT) == 3
            assert "found one at work there" in second.said
        assert first.process.poll() is None
        assert first.segments() is not None


def test_killed_outright_it_takes_its_daemon_along(prepared: Callable[[], Path]) -> None:
    """And the next demo in the folder works."""
    folder = prepared()
    with demo(folder, *ANY_PORT) as first:
        assert first.url
        daemon = first.daemon
        first.process.kill()
        waited(lambda: gone(daemon), lambda: "the daemon gone")
    with demo(folder, *ANY_PORT, "--seconds", "1") as second:
        assert second.process.wait(LIMIT) == 0, second.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_it_stops_in_order(prepared: Callable[[], Path], number: signal.Signals) -> None:
    """By whoever stops processes, and by a terminal that is closed."""
    with demo(prepared(), *ANY_PORT) as running:
        assert running.url
        daemon = running.daemon
        running.process.send_signal(number)
        assert running.process.wait(LIMIT) == 0
        assert gone(daemon)
    assert "cpcmon has stopped" in (running.folder / "cpcmon.log").read_text()


def test_a_terminal_that_is_closed_does_not_end_it_where_that_was_asked_for() -> None:
    """`nohup cpcmon demo` goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    except KeyboardInterrupt:
        pytest.fail("it was interrupted")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nobody_reads_what_it_says_any_more(prepared: Callable[[], Path]) -> None:
    """`cpcmon demo | head -1` ends, and the daemon with it."""
    folder = prepared()
    command = [sys.executable, "-m", "monitor", "demo", "--directory", str(folder), *ANY_PORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert b"Open http://" in running.stdout.readline()
        running.stdout.close()
        assert running.wait(LIMIT) == 1
        assert running.stderr is not None
        assert b"Traceback" not in running.stderr.read()
    assert "cpcmon has stopped" in (folder / "cpcmon.log").read_text()


def test_where_its_port_is_taken_it_says_so_and_takes_another(prepared: Callable[[], Path]) -> None:
    """Unless it was told which one: then the daemon's own words are shown."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9877))
            taken.listen()
        except OSError:
            pass  # taken by somebody else: as good
        with demo(prepared(), "--seconds", "1") as running:
            assert running.process.wait(LIMIT) == 0, running.said
            assert "127.0.0.1:9877 is taken" in running.said
            assert ":9877/" not in running.url
        with demo(running.folder, "--web.listen-address", "127.0.0.1:9877") as refused:
            assert refused.process.wait(LIMIT) == 1
            assert "cpcmon: the daemon: expected it at work" in refused.said
            assert "9877" in refused.said.splitlines()[-1]


def test_a_daemon_that_dies_is_reported_with_its_last_words(prepared: Callable[[], Path]) -> None:
    """The demo ends with 1."""
    with demo(prepared(), *ANY_PORT) as running:
        assert running.url
        os.kill(running.daemon, signal.SIGKILL)
        assert running.process.wait(LIMIT) == 1
        assert "found it ended with -9" in running.said
        assert "is ready on" in running.said


@pytest.mark.parametrize("words", [("--seconds", "0"), ("--seconds", "nan"), ("--kafka", "nonsense")])
def test_words_that_do_not_fit_are_refused(words: tuple[str, str], prepared: Callable[[], Path]) -> None:
    """Before anything is started."""
    with demo(prepared(), *words) as running:
        assert running.process.wait(LIMIT) == 2
        assert f"cpcmon: {words[0]}" in running.said
