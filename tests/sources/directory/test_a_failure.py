"""Failed files: the failure has expected and found, and never content."""

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.errors import Problem
from monitor.records.rejections import Reason, RejectedFile
from monitor.sources.directory.directory_options import OnFinish
from monitor.sources.directory.file_checkpoint import Failure
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]

SECRET = "ZZPATIENT"  # noqa: S105 - no password


def _decoding(watch: Watch, decoder: Any, **options: Any) -> Inbox:
    inbox = watch(**options)
    inbox.decoder = decoder
    inbox.crash()
    return inbox


def test_a_failure_has_expected_and_found(watch: Watch, real_decoder: Any) -> None:
    """Logged once, as a warning with the file's hash, without its name or a second reason."""
    inbox = _decoding(watch, real_decoder)
    inbox.put("ZZPATIENT.csv", b"id;probs\n" + b"1;[0.7, 0.2, 0.1]\n" * 3)
    inbox.polls(5)
    (warning,) = inbox.warnings
    assert warning.startswith("file#")
    assert warning.count("file#") == 1
    assert "expected" in warning
    assert "found" in warning
    assert warning.endswith(")")
    assert SECRET not in warning
    assert not any("failed" in event for event in inbox.events)


def test_the_reason_file_has_the_same_text(watch: Watch) -> None:
    """Also after a restart between the failure and the move."""
    inbox = watch(on_finish=OnFinish.ARCHIVE, finish_after_seconds=600)
    inbox.write("f.jsonl", "POISON")
    inbox.poll()
    inbox.crash()
    inbox.polls(60, 61)
    reason = json.loads((inbox.path / ".failed" / "f.jsonl.reason.json").read_text())
    assert (reason["reason"], reason["explanation"]) == ("not_jsonl", "expected no poison, found some")
    assert inbox.warnings[0].endswith("until it changes: expected no poison, found some (not_jsonl)")


def test_a_failure_is_short_and_without_the_file_name() -> None:
    refused = RejectedFile(Reason.BAD_CSV, Problem("ZZPATIENT.csv", "commas", "x" * 1000))
    failure = Failure.of(refused)
    assert str(failure).startswith("expected commas, found xxx")
    assert str(failure).endswith("… (bad_csv)")
    assert len(str(failure)) < 320


def _npz(name: str = SECRET) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.zeros((3, 3))}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _parquet() -> bytes:
    arrow = pytest.importorskip("pyarrow", reason="LOUD: no pyarrow; Parquet is not tested")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({SECRET: [SECRET]}), buffer)
    return buffer.getvalue()


HEADER = f"{{'descr': '{SECRET}', 'fortran_order': False, 'shape': (1,), }}".encode().ljust(117) + b"\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("f.csv", lambda: f"{SECRET},0.5,0.5\n".encode() * 2, id="csv without header"),
        pytest.param("f.csv", lambda: f"{SECRET};0.5;0.5\n".encode() * 2, id="csv with semicolons"),
        pytest.param("f.csv", lambda: f'"{SECRET}\n'.encode() * 3, id="csv with open quotes"),
        pytest.param("f.csv.gz", lambda: gzip.compress(f"{SECRET},0.5\n{SECRET},0.5\n".encode()), id="csv.gz"),
        pytest.param("f.jsonl", lambda: f"{SECRET}\n".encode() * 300, id="jsonl"),
        pytest.param("f.jsonl.gz", lambda: f"{SECRET}\n".encode() * 300, id="jsonl.gz that is none"),
        pytest.param("f.npy", lambda: f"{SECRET}\n".encode() * 300, id="npy that is none"),
        pytest.param("f.npy", lambda: b"\x93NUMPY\x01\x00v\x00" + HEADER + bytes(8), id="npy of an invalid type"),
        pytest.param("f.npz", _npz, id="npz without the field"),
        pytest.param("f.npz", lambda: _npz()[:-40], id="npz cut short"),
        pytest.param("f.npz", lambda: _npz("probs").replace(b"probs", SECRET[:5].encode(), 1), id="npz of two names"),
        pytest.param("f.parquet", _parquet, id="parquet without the field"),
        pytest.param("f.parquet", lambda: _parquet()[:-20] + b"PAR1", id="parquet damaged"),
        pytest.param("f.arrow", lambda: f"ARROW1{SECRET}".encode() * 30, id="arrow damaged"),
    ],
)
def test_no_failure_quotes_the_file(watch: Watch, real_decoder: Any, name: str, content: Callable[[], bytes]) -> None:
    """No content, header or column name appears in warnings, events or checkpoints."""
    inbox = _decoding(watch, real_decoder)
    inbox.put(name, content())
    inbox.polls(100)
    assert inbox.counted["files_failed"] == 1
    texts = [*inbox.events, *inbox.warnings, *map(repr, inbox.committed.values())]
    assert not any(SECRET[:5] in text for text in texts)
