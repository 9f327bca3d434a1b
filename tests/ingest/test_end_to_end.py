"""Scenarios that only the whole product shows: the real directory, the real state, the real process."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitor.config.config import ModelOptions
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.state.store import State
from tests.ingest.lines import NOW, line, small_reference
from tests.state.states import need_strace

pytestmark = pytest.mark.slow


class Product:
    """Directory, decoder, state and windows, as `cpcmon watch` puts them together."""

    def __init__(self, place: Path, *, bytes_per_tick: int = 64 << 20) -> None:
        self.inbox = place / "inbox"
        self.inbox.mkdir(exist_ok=True)
        self.state = State.open(place / "state")
        model = ModelOptions("density", small_reference())
        options = DirectoryOptions(path=self.inbox, bytes_per_tick=bytes_per_tick)
        decoder = RecordDecoder([model.format], hash_key=self.state.key)
        source = DirectorySource("inbox", options, decoder, key=self.state.key)
        self.ingestion = Ingestion(self.state, [ModelState(model)], [source])
        self.ingestion.start(NOW)

    def counted(self, *name: str) -> int:
        """Return a counter."""
        return self.ingestion.view.counters().stored().get(name, 0)


def test_a19_a_file_dropped_twice_under_another_name_counts_once(tmp_path: Path) -> None:
    """Its records carry ids, so the second copy is known."""
    product = Product(tmp_path)
    lines = b"".join(line(n, id=f"study{n}") for n in range(50))
    (product.inbox / "a.jsonl").write_bytes(lines)
    product.ingestion.tick(NOW, 0.0)
    (product.inbox / "again.jsonl").write_bytes(lines)
    product.ingestion.tick(NOW, 10.0)
    assert product.counted("records_total", "inbox", "density") == 50
    assert product.counted("records_rejected_total", "inbox", "duplicate_id") == 50
    product.state.close()


def test_a31_a_backlog_is_taken_in_bit_by_bit_and_said(tmp_path: Path) -> None:
    """Five thousand files at start: it is catching up until all of them are read, and each tick ends."""
    product = Product(tmp_path, bytes_per_tick=1 << 20)
    for n in range(5000):
        (product.inbox / f"r{n}.jsonl").write_bytes(line(n))
    catching_up = []
    for tick in range(200):
        product.ingestion.tick(NOW, float(tick))
        catching_up.append(product.ingestion.view.catching_up(NOW))
        if product.counted("records_total", "inbox", "density") == 5000:
            break
    assert product.counted("records_total", "inbox", "density") == 5000
    assert catching_up[0]
    assert len(catching_up) > 2
    product.ingestion.tick(NOW, 1000.0)
    assert product.ingestion.view.catching_up(NOW) is False
    product.state.close()


def watch(place: Path, *more: str) -> list[str]:
    """Return the command."""
    words = ["--reference", str(place / "density.ref"), "--state", str(place / "state")]
    return [sys.executable, "-m", "monitor", "watch", str(place / "inbox"), *words, *more]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A reference and an inbox of ten records."""
    small_reference().save(tmp_path / "density.ref")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.jsonl").write_bytes(b"".join(line(n) for n in range(10)))
    return tmp_path


def peak_kilobytes(command: list[str]) -> int:
    """Run a command and return the most memory it took."""
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    ran = subprocess.run([sys.executable, "-c", script, *command], check=True, capture_output=True, text=True)
    return int(ran.stdout)


def test_c4_a_line_of_128_mib_is_rejected_without_being_held(place: Path) -> None:
    """Its neighbours are read, and memory hardly grows."""
    usual = peak_kilobytes(watch(place, "--once"))
    with (place / "inbox" / "b.jsonl").open("wb") as file:
        file.write(line(10))
        for _ in range(128):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + line(11))
    grown = peak_kilobytes(watch(place, "--once"))
    (place / "inbox" / "b.jsonl").unlink()
    assert grown - usual < 32 << 10
    state = State.open(place / "state")
    counters = state.counters()
    state.close()
    assert counters["records_total", "inbox", "density"] == 12
    assert counters["records_rejected_total", "inbox", "line_too_long"] == 1


def test_b18_a_state_deleted_under_the_running_process_ends_it(place: Path) -> None:
    """With exit code 1 and a sentence, instead of writing into a file without a name."""
    with subprocess.Popen(
        watch(place, "--poll", "0.2s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "10 records" in process.stdout.readline()
        shutil.rmtree(place / "state")
        with (place / "inbox" / "a.jsonl").open("ab") as file:
            file.write(line(10))
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "expected the database that was opened, found it moved or deleted" in said


def test_b9_an_error_of_the_disk_ends_the_process_and_the_next_start_is_clean(place: Path) -> None:
    """Nothing is lost or counted twice, whatever the failed sync left behind."""
    need_strace()
    failed = 0
    for first in (1, 3):
        inject = ["-e", f"inject=fdatasync:error=EIO:when={first}"]
        ran = subprocess.run(
            ["strace", "-f", "-qq", "-o", "/dev/null", *inject, *watch(place, "--once")],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode in {0, 1}, ran.stderr
        if ran.returncode:
            failed += 1
            assert "the next start verifies it" in ran.stderr
    assert failed
    ran = subprocess.run(watch(place, "--once"), capture_output=True, text=True, check=True)
    assert "density all: 10 records" in ran.stdout


def test_a33_files_that_come_while_the_process_is_stopped_are_all_read(place: Path) -> None:
    """SIGSTOP, three thousand files, SIGCONT: polling has nothing to miss."""
    with subprocess.Popen(
        watch(place, "--poll", "0.2s"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert "10 records" in process.stdout.readline()
        os.kill(process.pid, 19)
        for n in range(3000):
            temporary = place / "inbox" / f".r{n}.tmp"
            temporary.write_bytes(line(n))
            temporary.rename(place / "inbox" / f"r{n}.jsonl")
        os.kill(process.pid, 18)
        deadline = time.monotonic() + 120
        said = ""
        while "3,010 records" not in said and time.monotonic() < deadline:
            said = process.stdout.readline()
        process.terminate()
        process.communicate(timeout=60)
    assert "3,010 records" in said
