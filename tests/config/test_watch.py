"""A changed configuration is detected once, after it stopped changing."""

import os
from pathlib import Path

import pytest

from monitor.config.reading import EVERY_SECONDS, ConfigWatch


class Checks:
    """A watch that is checked at every tick of a clock."""

    def __init__(self, file: Path) -> None:
        self.watch = ConfigWatch(file)
        self._now = 1000.0

    def __call__(self, count: int = 4) -> list[bool]:
        """Look so many times."""
        answers = []
        for _ in range(count):
            self._now += EVERY_SECONDS
            answers.append(self.watch.changed(self._now))
        return answers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration, as far as this matters."""
    (tmp_path / "config.yaml").write_text("first")
    return tmp_path / "config.yaml"


def test_what_stays_the_same_is_no_change(file: Path) -> None:
    """Nor is what was only touched, or written again."""
    checks = Checks(file)
    os.utime(file, (1, 1))
    assert checks() == [False] * 4
    file.write_text("first")
    assert checks() == [False] * 4


def test_a_change_is_reported_once_at_the_second_check(file: Path) -> None:
    checks = Checks(file)
    file.write_text("other")
    assert checks() == [False, True, False, False]


def test_what_is_still_being_written_is_waited_for(file: Path) -> None:
    checks = Checks(file)
    for text in ("oth", "other", "others"):
        file.write_text(text)
        assert checks(1) == [False]
    assert checks() == [True, False, False, False]


def test_a_file_that_is_gone_and_comes_back_are_two_changes(file: Path) -> None:
    checks = Checks(file)
    file.unlink()
    assert checks() == [False, True, False, False]
    file.write_text("first")
    assert checks() == [False, True, False, False]


def test_a_pipe_in_place_of_the_file_is_a_change_and_does_not_block(file: Path) -> None:
    checks = Checks(file)
    file.unlink()
    os.mkfifo(file)
    assert checks() == [False, True, False, False]


def test_it_checks_no_more_often_than_configured(file: Path) -> None:
    watch = ConfigWatch(file)
    file.write_text("other")
    assert [watch.changed(100.0 + step * EVERY_SECONDS / 4) for step in range(5)] == [False] * 4 + [True]


def test_what_was_read_otherwise_is_not_reported_again(file: Path) -> None:
    """A reload by signal has read it."""
    checks = Checks(file)
    file.write_text("other")
    checks.watch.mark_read()
    assert checks() == [False] * 4


def test_a_reference_that_is_replaced_is_a_change(file: Path) -> None:
    checks = Checks(file)
    reference = file.with_name("density.ref")
    reference.write_bytes(b"one")
    checks.watch.watch_references([reference, None])
    assert checks() == [False] * 4
    reference.with_name("new").write_bytes(b"two")
    reference.with_name("new").replace(reference)
    assert checks() == [False, True, False, False]


def test_other_references_than_before_are_no_change(file: Path) -> None:
    checks = Checks(file)
    checks.watch.watch_references([file.with_name("absent.ref")])
    checks.watch.watch_references([])
    assert checks() == [False] * 4
