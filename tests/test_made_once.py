"""Folders shared by workers are made once."""

from pathlib import Path

import pytest

from tests.made_once import made_once


def test_a_folder_is_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("made")

    first = made_once(tmp_path_factory, "sample", make)
    assert made_once(tmp_path_factory, "sample", make) == first
    assert len(made) == 1
    assert (first / "file").read_text() == "made"


def test_a_partial_folder_is_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyError

    with pytest.raises(KeyError):
        made_once(tmp_path_factory, "failed", fail)
    whole = made_once(tmp_path_factory, "failed", lambda folder: (folder / "whole").touch())
    assert [path.name for path in whole.iterdir()] == ["whole"]
