"""What workers share is made by one of them."""

from pathlib import Path

import pytest

from tests.made_once import made_once


def test_the_second_who_asks_gets_what_the_first_made(tmp_path_factory: pytest.TempPathFactory) -> None:
    """However often it is asked for."""
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("made")

    first = made_once(tmp_path_factory, "sample", make)
    assert made_once(tmp_path_factory, "sample", make) == first
    assert len(made) == 1
    assert (first / "file").read_text() == "made"


def test_what_failed_half_way_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Half of it is never found by others."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyError

    with pytest.raises(KeyError):
        made_once(tmp_path_factory, "failed", fail)
    whole = made_once(tmp_path_factory, "failed", lambda folder: (folder / "whole").touch())
    assert [path.name for path in whole.iterdir()] == ["whole"]
