"""One file per configuration error; its first lines are the expected messages."""

from itertools import takewhile
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.errors import ConfigError
from monitor.evaluation.crontab import shortest_gap_seconds
from tests.conftest import ROOT

BAD = ROOT / "tests" / "data" / "config" / "bad"
FILES = sorted(BAD.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_is_rejected_with_exactly_these_messages(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them by line, and a last line with their number."""
    monkeypatch.chdir(BAD)
    lines = file.read_text(encoding="utf-8").splitlines()
    reported = [line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines)]
    expected = [f"{file.name}:{sentence}" for sentence in reported]
    with pytest.raises(ConfigError) as caught:
        read_config(Path(file.name), shortest_gap_seconds)
    count = f"{len(reported)} {'problem' if len(reported) == 1 else 'problems'}"
    assert str(caught.value).splitlines() == [*expected, f"{file.name}: {count}"]


def test_there_are_many() -> None:
    """A folder that was not found would otherwise pass."""
    assert len(FILES) >= 100


def test_no_message_shows_the_value_of_a_secret() -> None:
    """The canary is in the files, and in none of their messages."""
    texts = [file.read_text(encoding="utf-8") for file in FILES]
    assert sum("ZZPATIENT" in text for text in texts) >= 8
    assert not [line for text in texts for line in text.splitlines() if line.startswith("# ") and "ZZPATIENT" in line]
