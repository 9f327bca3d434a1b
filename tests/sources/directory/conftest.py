"""Fixtures for directory sources."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.directory.inbox import Inbox


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Inbox]]:
    """Watch a fresh directory with these options."""
    made: list[Inbox] = []

    def make(path: Path | None = None, **options: Any) -> Inbox:
        folder = path or tmp_path / "inbox"
        if path is None:
            folder.mkdir(exist_ok=True)
        made.append(Inbox(folder, **options))
        return made[-1]

    yield make
    for inbox in made:
        inbox.source.close()


@pytest.fixture
def inbox(watch: Callable[..., Inbox]) -> Inbox:
    """A watched directory with default settings."""
    return watch()


@pytest.fixture
def real_decoder() -> Any:
    """The real decoder, for one model of three classes."""
    stream = pytest.importorskip("monitor.records.decoder")
    formats = pytest.importorskip("monitor.records.record_schema")
    return stream.RecordDecoder([formats.ModelFormat("density", classes=("a", "b", "c"))], hash_key=b"k" * 16)
