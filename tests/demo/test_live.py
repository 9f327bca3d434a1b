"""The real command with its daemon, at a higher speed."""

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
from tests.conftest import Ran
from tests.demo.process import LIMIT, demo, gone
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ANY_PORT = ("--web.listen-address", "127.0.0.1:0")
LEFT = {
    "arriving",
    "config.yaml",
    "cpcmon.log",
    "demo.lock",
    "density.ref",
    "labels",
    "state-live",
    "tour.yaml",
}


def test_the_demo_runs_stops_at_ctrl_c_and_runs_again(prepared: Callable[[], Path]) -> None:
    """With estimates, the alert and true accuracies; the next run starts without alerts, also after a kill."""
    folder = prepared()
    with demo(folder, *ANY_PORT, "--speed", "2") as first:
        wait_until(
            lambda: f'cpcmon_estimated_accuracy_ratio{{estimator="adaptive",model="density",segment="{SHIFTED}"}}' in first.metrics(),
            lambda: "an estimate",
        )  # fmt: skip
        first.wait_for_output(f"ALERT accuracy_drop fires for {SHIFTED}")
        segments = first.segments()
        assert set(segments) == set(SEGMENTS)
        firing = {name for name, one in segments.items() for alert in one["alerts"] if alert["firing"]}
        assert SHIFTED in firing
        assert firing <= {SHIFTED, f"hospital={REPLACED.hospital}"}
        numbers = first.wait_for_output(r"N2 at Northlake estimated (0\.\d+), true (0\.\d+); .*; reference (0\.\d+)")
        assert all(0.5 < float(number) < 1.0 for number in numbers.groups())
        said = first.wait_for_output(
            r"labels of the audit say (0\.\d+), the estimate said (0\.\d+); of all \d+ labelled cases (0\.\d+)"
        )
        audit, estimate, biased = map(float, said.groups())
        assert abs(audit - estimate) < 0.15
        assert biased < audit
        assert (
            f'cpcmon_audited_accuracy_ratio{{model="density",scope="horizon",segment="{SHIFTED}"}}' in first.metrics()
        )
        daemon = first.daemon
        assert first.interrupt() == 0
        assert "The demo has stopped" in first.output.splitlines()[-2]
        assert gone(daemon)
        assert "cpcmon has stopped" in (folder / "cpcmon.log").read_text()
    assert {path.name for path in folder.iterdir()} >= LEFT
    assert [path.name for path in folder.parent.iterdir() if path.suffix != ".out"] == [folder.name]
    with demo(folder, *ANY_PORT) as second:
        second.wait_for_output("estimated 0")
        assert "Making a reference" not in second.output
        assert [alert for one in second.segments().values() for alert in one["alerts"] if alert["firing"]] == []
        daemon = second.daemon
        second.process.kill()
        wait_until(lambda: gone(daemon), lambda: "the daemon gone")
    with demo(folder, *ANY_PORT, "--seconds", "1") as third:
        assert third.process.wait(LIMIT) == 0, third.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_are_like_ctrl_c(number: signal.Signals) -> None:
    # Under nohup, pytest itself inherits that SIGHUP is ignored.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), _interruptible():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    except KeyboardInterrupt:
        pytest.fail("it was interrupted")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_pipe_stops_the_demo(prepared: Callable[[], Path]) -> None:
    """As in `cpcmon demo | head -1`."""
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


def test_another_port_is_used_if_the_default_one_is_taken(prepared: Callable[[], Path]) -> None:
    """A port that was given is not replaced: the daemon's error is shown."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9877))
            taken.listen()
        except OSError:
            pass  # in use already
        with demo(prepared(), "--seconds", "1") as running:
            assert running.process.wait(LIMIT) == 0, running.output
            assert "127.0.0.1:9877 is in use" in running.output
            assert ":9877/" not in running.url
        with demo(running.folder, "--web.listen-address", "127.0.0.1:9877") as rejected:
            assert rejected.process.wait(LIMIT) == 1
            assert "cpcmon: the daemon: expected it running" in rejected.output
            assert "9877" in rejected.output.splitlines()[-1]


def test_a_daemon_that_dies_is_reported_with_the_end_of_its_log(prepared: Callable[[], Path]) -> None:
    """The demo exits with 1."""
    with demo(prepared(), *ANY_PORT) as running:
        assert running.url
        os.kill(running.daemon, signal.SIGKILL)
        assert running.process.wait(LIMIT) == 1
        assert "found it ended with -9" in running.output
        assert "is ready on" in running.output


@pytest.mark.parametrize("words", [("--seconds", "0"), ("--seconds", "nan"), ("--kafka", "nonsense")])
def test_invalid_options_are_rejected(words: tuple[str, str], cpcmon: Callable[..., Ran], tmp_path: Path) -> None:
    """Before anything is started."""
    ran = cpcmon("demo", "--directory", tmp_path / "demo", *words)
    assert ran.code == 2
    assert ran.err.startswith(f"cpcmon: {words[0]}")
    assert not (tmp_path / "demo").exists()
