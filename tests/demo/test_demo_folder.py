"""What the demo does with its folder."""

from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.demo.demo_folder import Folder
from monitor.demo.example_data import write_example
from monitor.errors import StateInUse, UsageError
from monitor.state.state_folder import StateFolder


@pytest.mark.parametrize("name", ["arriving", "state-live", "realised.jsonl", "cpcmon.log", "config.yaml"])
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    """What stands where the demo would write, or remove, is not its own."""
    theirs = tmp_path / name
    theirs.write_text("mine")
    with pytest.raises(UsageError, match=f"found {name} of somebody else"), Folder(tmp_path).held():
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert theirs.read_text() == "mine"


@pytest.mark.parametrize("name", ["density.ref", "validation.jsonl", "validation_labelled.jsonl", "tour.yaml"])
def test_files_that_the_example_would_overwrite_are_refused_too(tmp_path: Path, name: str) -> None:
    """The help makes a `density.ref` where one stands, and a validation set may well be called so."""
    theirs = tmp_path / name
    theirs.write_text("mine")
    with pytest.raises(UsageError, match=f"found {name} of somebody else"), Folder(tmp_path).held():
        pass
    assert theirs.read_text() == "mine"


def test_the_folder_of_a_tour_is_taken_over(tmp_path: Path) -> None:
    """It holds the same example."""
    write_example(tmp_path)
    (tmp_path / "density.ref").write_text("made by the tour")
    with Folder(tmp_path).held():
        pass


def test_what_a_run_left_is_removed_and_what_is_good_for_the_next_one_is_kept(tmp_path: Path) -> None:
    """State, unread files, truth and log go; a reference stays."""
    folder = Folder(tmp_path / "demo")
    with folder.held():
        folder.empty()
        StateFolder.hold(folder.state).close()
        for path in (folder.arriving / "00000001.jsonl", folder.realised, folder.log, folder.reference):
            path.write_text("old")
        folder.empty()
        assert sorted(path.name for path in folder.path.iterdir()) == ["arriving", "demo.lock", "density.ref"]
        assert list(folder.arriving.iterdir()) == []


def test_state_that_a_daemon_uses_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may run the demo's configuration by hand."""
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


def test_a_second_demo_is_kept_out_while_the_first_has_the_folder(tmp_path: Path) -> None:
    """And let in afterwards."""
    folder = Folder(tmp_path / "demo")
    with folder.held(), pytest.raises(StateInUse, match="found one at work there"), folder.held():
        pass
    with folder.held():
        pass


def test_an_unusable_folder_is_refused_with_a_message(tmp_path: Path) -> None:
    """A file stands there."""
    (tmp_path / "demo").write_text("a file")
    with pytest.raises(UsageError, match="expected a folder, found"), Folder(tmp_path / "demo").held():
        pass


@pytest.mark.parametrize("broker", [None, "kafka:9092", "[::1]:9092"])
@pytest.mark.parametrize("speed", [0.5, 1.0, 7.0, 100.0])
def test_the_configuration_is_fine_whatever_is_asked_for(tmp_path: Path, broker: str | None, speed: float) -> None:
    """It is read without a remark."""
    folder = Folder(tmp_path / "demo")
    with folder.held():
        folder.configure(broker, "cpcmon-demo-1", speed)
    config = read_config(folder.config)
    assert config.remarks == ()
    assert config.models[0].realised == folder.realised
