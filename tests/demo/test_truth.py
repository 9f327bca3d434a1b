"""The file of what turned out right."""

import json
from pathlib import Path

import pytest

from monitor.demo.story import KEPT_SECONDS, SCANNERS, SEGMENTS, Exams, Truth


def test_nothing_is_said_of_a_window_with_too_few_records(tmp_path: Path) -> None:
    """And of one with enough, exactly what is in it: the last ones."""
    truth, exams = Truth(window=100, minimum=20), Exams(1)
    truth.write(tmp_path / "realised.jsonl", 1000.0)
    assert (tmp_path / "realised.jsonl").read_text() == ""
    everything: list[bool] = []
    for _ in range(10):
        examined = exams.next(60, 0.0)
        everything += [right for one in examined for right in one.right]
        truth.note(examined)
    found = truth.now("all", 1001.0)
    assert found is not None
    assert (found.records, found.right) == (100, sum(everything[-100:]))
    assert truth.now("hospital=Nowhere", 1001.0) is None


@pytest.mark.slow
def test_the_file_is_bounded_and_whole(tmp_path: Path) -> None:
    """Half an hour of it, a line for every segment, and nothing else left in the folder."""
    file, truth = tmp_path / "realised.jsonl", Truth(window=100, minimum=5)
    truth.note(Exams(1).next(600, 0.0))
    for number in range(500):
        truth.write(file, 1000.0 + 10.0 * number)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == len(SEGMENTS) * (int(KEPT_SECONDS / 10.0) + 1)
    assert {tuple(line) for line in lines} == {("at", "segment", "records", "right")}
    assert {line["segment"] for line in lines} == set(SEGMENTS)
    assert min(line["at"] for line in lines) == 1000.0 + 10.0 * 499 - KEPT_SECONDS
    assert [path.name for path in tmp_path.iterdir()] == ["realised.jsonl"]
    assert len(SCANNERS) == 6


def test_the_file_is_bounded_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """By a day: what it dated tomorrow does not keep everything after it until then."""
    file, truth = tmp_path / "realised.jsonl", Truth(window=100, minimum=5)
    truth.note(Exams(1).next(600, 0.0))
    truth.write(file, 186_400.0)
    for number in range(5):
        truth.write(file, 100_000.0 + number * KEPT_SECONDS)
    times = {json.loads(line)["at"] for line in file.read_text().splitlines()}
    assert times == {100_000.0 + number * KEPT_SECONDS for number in (3, 4)}
