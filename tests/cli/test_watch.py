"""`cpcmon watch` and `cpcmon state`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.state.store import State
from tests.conftest import Ran
from tests.ingest.lines import POOL, line, small_reference


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a reference, and an inbox with twelve good records and a bad one."""
    small_reference().save(tmp_path / "density.ref")
    (tmp_path / "inbox").mkdir()
    lines = [line(n, site="AB"[n % 2], id=f"ZZPATIENT{n}") for n in range(12)]
    (tmp_path / "inbox" / "ZZPATIENT.jsonl").write_bytes(b"".join(lines) + b"{bad\n")
    return tmp_path


def words(place: Path, *more: object) -> list[object]:
    """Return the command for that directory."""
    inbox = ["watch", place / "inbox", "--reference", place / "density.ref", "--state", place / "state"]
    return [*inbox, "--minimum-records", 1, *more]


def test_once_reads_existing_files_and_prints_estimates(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """One line for the whole and one per site."""
    ran = cpcmon(*words(place, "--segment-by", "site", "--once"))
    assert ran.code == 0
    first, *sites = ran.out.splitlines()
    assert "density all: 12 records, estimated accuracy 0." in first
    assert first.endswith("; 1 rejected so far")
    assert [one.split()[2] for one in sites] == ["site=A:", "site=B:"]
    assert "bytes a record" in ran.err
    assert f"rejected 1 records: 1 bad_json; see {place}/state/rejected.jsonl" in ran.err


def test_duplicates_do_not_count_towards_the_minimum(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """600 records with five ids are five records."""
    (place / "inbox" / "ZZPATIENT.jsonl").write_bytes(b"".join(line(n, id=f"study-{n % 5}") for n in range(600)))
    inbox = ("watch", place / "inbox", "--reference", place / "density.ref", "--once", "--state")
    ran = cpcmon(*inbox, place / "state")
    assert "density all: 5 records, no estimate (too_few_records: an estimate needs 200); 595 rejected" in ran.out
    answer = json.loads(cpcmon(*inbox, place / "another", "--json").out)
    assert (answer["records"], answer["accuracy"], answer["reason"]) == (5, None, "too_few_records")
    assert (answer["minimum_records"], answer["rejected"]) == (200, 595)


def test_left_out_records_are_reported(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """Of another version, and of too many segments."""
    other = b"".join(line(n, version="1.0") for n in range(5)) + b"".join(line(n, site=f"s{n}") for n in range(250))
    (place / "inbox" / "other.jsonl").write_bytes(other)
    ran = cpcmon(*words(place, "--once", "--segment-by", "site"))
    assert "left out 5 records of another version" in ran.err
    assert "52 records count in `all` only" in ran.err


def test_a_second_run_counts_nothing_again(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """Only appended records."""
    cpcmon(*words(place, "--once"))
    with (place / "inbox" / "ZZPATIENT.jsonl").open("ab") as file:
        file.write(line(50))
    ran = cpcmon(*words(place, "--once", "--json"))
    answer = json.loads(ran.out)
    assert (answer["records"], answer["rejected"], answer["segment"]) == (13, 1, "all")
    assert answer["lower"] <= answer["accuracy"] <= answer["upper"]


def test_once_does_not_wait_for_a_damaged_file(
    place: Path, cpcmon: Callable[..., Ran], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (place / "inbox" / "b.npz").write_bytes(b"not an archive")
    np.save(place / "inbox" / "c.npy", POOL[:5])
    ran = cpcmon(*words(place, "--once", "--json", "--settle", "0.2s"))
    assert json.loads(ran.out)["records"] == 17
    assert "bad_file" in caplog.text


def test_a_missing_directory_is_reported(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """A23."""
    (place / "inbox").rename(place / "elsewhere")
    ran = cpcmon(*words(place, "--once"))
    assert ran.code == 2
    assert "no estimate (no records)" in ran.out
    assert "waiting for its directory" in ran.err
    assert "--once does not wait" in ran.err


def test_rejected_records_are_reported(place: Path, cpcmon: Callable[..., Ran]) -> None:
    (place / "inbox" / "ZZPATIENT.jsonl").write_bytes(b"".join(line(n, model="other") for n in range(200)))
    ran = cpcmon(*words(place, "--once"))
    assert "no estimate (no records); 200 rejected so far; input degraded: many records are rejected" in ran.out
    assert "200 unknown_model" in ran.err


@pytest.mark.parametrize(("where", "more"), [("inbox", []), ("inbox/state", ["--recursive"])], ids=["same", "inside"])
def test_a_state_inside_the_inbox_is_rejected(
    where: str, more: list[str], place: Path, cpcmon: Callable[..., Ran]
) -> None:
    ran = cpcmon(
        "watch", place / "inbox", "--reference", place / "density.ref", "--state", place / where, *more, "--once"
    )
    assert ran.code == 2
    assert "expected a directory outside the watched one" in ran.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(["--records", "0"], "--records: expected 1 to", id="window"),
        pytest.param(
            ["--records", "100", "--minimum-records", "101"], "--records: expected at least 101 records", id="minimum"
        ),
        pytest.param(
            ["--age", "long"], "--age: expected a duration such as 90s, 30m, 12h or 7d, found 'long'", id="age"
        ),
        pytest.param(["--poll", "0s"], "--poll: expected a duration", id="poll"),
        pytest.param(["--field", "probs"], "--field: expected NAME=PATH with a name among probs, model", id="field"),
        pytest.param(["--field", "site=a"], "--field: expected NAME=PATH with a name among", id="no such field"),
        pytest.param(["--segment-by", "site,site"], "--segment-by: expected sets of different fields", id="segments"),
    ],
)
def test_invalid_options_exit_with_2_and_write_nothing(
    more: list[str], message: str, place: Path, cpcmon: Callable[..., Ran]
) -> None:
    ran = cpcmon(*words(place, *more))
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (place / "state").exists()


def test_two_references_of_one_model_are_rejected(place: Path, cpcmon: Callable[..., Ran]) -> None:
    ran = cpcmon(*words(place, "--reference", place / "density.ref"))
    assert ran.code == 2
    assert "expected one per model, found two for 'density'" in ran.err


def test_state_shows_file_names_only_with_the_inbox(place: Path, cpcmon: Callable[..., Ran]) -> None:
    """File names may contain patient names."""
    watched = cpcmon(*words(place, "--once", "--segment-by", "site"))
    shown = cpcmon("state", place / "state")
    assert "density site=A: 6 records in 1 chunks" in shown.out
    assert "12  records_total inbox density" in shown.out
    assert "line or row 13 (byte" in shown.out
    assert ": bad_json, expected a JSON object\n" in shown.out
    for text in (watched.out, watched.err, shown.out, shown.err):
        assert "ZZPATIENT" not in text
    for file in (place / "state").iterdir():
        assert b"ZZPATIENT" not in file.read_bytes(), file.name
    named = cpcmon("state", place / "state", "--inbox", place / "inbox")
    assert "ZZPATIENT.jsonl, line or row 13" in named.out
    held = State.open(place / "state")
    listed = cpcmon("state", place / "state", "--inbox", place / "inbox", "--files")
    held.close()
    assert listed.code == 0
    assert re.fullmatch(r"file#[0-9a-f]{8}  .*ZZPATIENT.jsonl\n", listed.out)


def test_names_of_files_cannot_forge_lines(place: Path, cpcmon: Callable[..., Ran]) -> None:
    (place / "inbox" / "a\nCRITICAL \x1b[31m.jsonl").write_bytes(b"{bad\n")
    with open(os.fsencode(place / "inbox") + b"/bad\xff.jsonl", "wb") as file:  # noqa: PTH123 - a name in bytes
        file.write(b"{bad\n")
    cpcmon(*words(place, "--once"))
    shown = cpcmon("state", place / "state", "--inbox", place / "inbox")
    assert "a\\nCRITICAL \\x1b[31m.jsonl" in shown.out
    assert "bad\\xff.jsonl" in shown.out


def test_field_time_unit_and_time_zone_options(place: Path, cpcmon: Callable[..., Ran]) -> None:
    record = {
        "out": {"p": [0.5, 0.25, 0.25]},
        "at": 1760000000123,
        "where": {"h": "A"},
        "top": "dog",
        "name": "ZZPATIENT",
    }
    other = record | {"at": "2025-10-09T10:53:20"}
    (place / "inbox" / "ZZPATIENT.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (record, other, {"out": 7})))
    fields = ["probs=out.p", "time=at", "site=where.h", "predicted=top"]
    more = [word for field in fields for word in ("--field", field)]
    more += ["--time-unit", "ms", "--time-zone", "Europe/Oslo", "--segment-by", "site", "--store-raw"]
    ran = cpcmon(*words(place, *more, "--once"))
    assert "density site=A: 2 records" in ran.out
    shown = cpcmon("state", place / "state")
    assert "2  records_argmax_mismatch_total density" in shown.out
    # The start of rejected records is stored, nothing of accepted ones.
    rejected = (place / "state" / "rejected.jsonl").read_text()
    assert "raw" in rejected
    assert "ZZPATIENT" not in rejected


def test_state_of_a_missing_directory_is_an_error(tmp_path: Path, cpcmon: Callable[..., Ran]) -> None:
    """And does not create it."""
    ran = cpcmon("state", tmp_path / "none")
    assert ran.code == 1
    assert "expected a state directory, found none" in ran.err
    assert not (tmp_path / "none").exists()


def test_the_real_process_prints_estimates_and_stops_on_sigterm(place: Path) -> None:
    """The state is complete at the next start."""
    command = [sys.executable, "-m", "monitor", *(str(word) for word in words(place, "--json", "--poll", "0.2s"))]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["records"] == 12
        with (place / "inbox" / "more.jsonl").open("ab") as file:
            file.write(line(90) + line(91))
        assert json.loads(process.stdout.readline())["records"] == 14
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            process.stdout.readline()
        assert process.wait(timeout=30) == 0
    ran = subprocess.run([*command, "--once"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["records"] == 14
