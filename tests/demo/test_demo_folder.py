"""The folder of the demo."""

from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.demo.demo_folder import Folder
from monitor.demo.example_data import write_example
from monitor.errors import StateInUse, UsageError
from monitor.state.state_folder import StateFolder


@pytest.mark.parametrize("name", ["arriving", "labels", "state-live", "cpcmon.log", "config.yaml"])
def test_a_folder_with_other_files_is_rejected_and_left_unchanged(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.write_text("mine")
    with pytest.raises(UsageError, match=f"found {name}, which no demo wrote"), Folder(tmp_path).held():
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert theirs.read_text() == "mine"


@pytest.mark.parametrize("name", ["density.ref", "validation.jsonl", "validation_labelled.jsonl", "tour.yaml"])
def test_files_that_the_example_would_overwrite_are_rejected(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.write_text("mine")
    with pytest.raises(UsageError, match=f"found {name}, which no demo wrote"), Folder(tmp_path).held():
        pass
    assert theirs.read_text() == "mine"


def test_the_folder_of_a_tour_is_accepted(tmp_path: Path) -> None:
    write_example(tmp_path)
    (tmp_path / "density.ref").write_text("made by the tour")
    with Folder(tmp_path).held():
        pass


def test_the_next_run_keeps_the_reference_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    with folder.held():
        folder.empty()
        StateFolder.hold(folder.state).close()
        feeds = folder.arriving / "00000001.jsonl", folder.labels / "00000001.jsonl"
        for path in (*feeds, folder.log, folder.reference):
            path.write_text("old")
        folder.empty()
        assert sorted(path.name for path in folder.path.iterdir()) == ["arriving", "demo.lock", "density.ref", "labels"]
        assert [*folder.arriving.iterdir(), *folder.labels.iterdir()] == []


def test_state_that_a_daemon_uses_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may run the demo's configuration by hand."""
    monkeypatch.setattr("monitor.demo.demo_folder._PATIENCE_SECONDS", 0.0)
    folder = Folder(tmp_path / "demo")
    with folder.held():
        held = StateFolder.hold(folder.state)
        try:
            with pytest.raises(StateInUse):
                folder.empty()
        finally:
            held.close()
        assert folder.state.exists()


def test_a_second_demo_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "demo")
    with folder.held(), pytest.raises(StateInUse, match="found one running there"), folder.held():
        pass
    with folder.held():
        pass


def test_a_file_in_place_of_the_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")
    with pytest.raises(UsageError, match="expected a folder, found"), Folder(tmp_path / "demo").held():
        pass


@pytest.mark.parametrize(("broker", "speed"), [(None, 0.5), (None, 100.0), ("kafka:9092", 1.0), ("[::1]:9092", 7.0)])
def test_the_configuration_is_valid(tmp_path: Path, broker: str | None, speed: float) -> None:
    """And causes no remark."""
    folder = Folder(tmp_path / "demo")
    with folder.held():
        folder.configure(broker, "cpcmon-demo-1", speed)
    config = read_config(folder.config)
    assert config.remarks == ()
