"""The source checks, applied to the directory source, and to faulty sources that they must detect."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import Carries, ModelFormat
from monitor.sources.base import Delivery, Source, SourceContext
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.sources.registry import SOURCE_TYPES
from monitor.testing.source_checks import check_source
from tests.docs.markdown import PAGES

KEY = b"0123456789abcdef"
PRIVATE = "ZZPATIENT"


@pytest.fixture
def put(tmp_path: Path) -> Callable[[int], None]:
    """Append records to a file with a private name and private ids."""

    def append(count: int) -> None:
        with (tmp_path / f"{PRIVATE}.jsonl").open("a") as file:
            file.writelines(json.dumps({"probs": [0.5, 0.25, 0.25], "id": PRIVATE}) + "\n" for _ in range(count))

    return append


def _directory(folder: Path) -> DirectorySource:
    decoder = RecordDecoder([ModelFormat("density", ("a", "b", "c"))], hash_key=KEY)
    return DirectorySource("results", DirectoryOptions(folder), decoder, key=KEY)


def test_the_directory_source_passes_the_checks(tmp_path: Path, put: Callable[[int], None]) -> None:
    check_source(lambda: _directory(tmp_path), put, private_text=PRIVATE)


def test_a_directory_of_labels_passes_the_checks(tmp_path: Path) -> None:
    """Built as the daemon builds it; it delivers classes by id, and no outputs."""
    for name in ("labels", "state"):
        (tmp_path / name).mkdir()

    def put(count: int) -> None:
        with (tmp_path / "labels" / f"{PRIVATE}.jsonl").open("a") as file:
            file.writelines(json.dumps({"label": "c", "id": f"{PRIVATE}{row}"}) + "\n" for row in range(count))

    formats = [ModelFormat("density", ("a", "b", "c"), segment_fields=("site",))]
    context = SourceContext("truth", formats, KEY, tmp_path / "state", carries=Carries.LABELS)
    options = DirectoryOptions(tmp_path / "labels")
    check_source(lambda: options.build(context), put, private_text=PRIVATE)
    source = options.build(context)
    source.restore({})
    (records,) = [one for delivery in source.poll(1.0) for one in delivery.batch.models.values()]
    assert records.vectors.shape == (len(records), 0)
    assert records.labels is not None
    assert set(records.labels.tolist()) == {2}
    source.close()


def test_the_types_are_known_without_slow_libraries() -> None:
    """Every command that reads a configuration imports them."""
    script = "import sys, monitor.sources.registry; print({'kafka', 'pyarrow'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


@pytest.mark.parametrize("type_name", SOURCE_TYPES)
def test_the_page_of_a_type_lists_its_events(type_name: str) -> None:
    """The closed list, in its order."""
    section = PAGES[f"docs/{type_name}.md"].text.partition("## Events")[2]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        str(name) for name in SOURCE_TYPES[type_name].EVENTS
    ]


class _Faulty(DirectorySource):
    """A source with one fault."""

    def __init__(self, folder: Path, fault: str) -> None:
        decoder = RecordDecoder([ModelFormat("density", ("a", "b", "c"))], hash_key=KEY)
        super().__init__("results", DirectoryOptions(folder), decoder, key=KEY)
        self.fault = fault

    def restore(self, positions: Mapping[bytes, bytes]) -> None:
        super().restore({} if self.fault == "forgets" else positions)

    def roll_back(self) -> None:
        if self.fault != "moves on":
            super().roll_back()

    def poll(self, now: float) -> Iterator[Delivery]:  # type: ignore[override]
        for one in super().poll(now):
            more: dict[str, Any] = {
                "tells": {"origin": f"{PRIVATE}.jsonl"},
                "has no place": {"checkpoints": {}},
                "invents": {"counted": Counter(surprises=1)},
            }
            yield Delivery(**{name: getattr(one, name) for name in Delivery.__slots__} | more.get(self.fault, {}))


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("forgets", "after a crash, reading must continue"),
        ("moves on", "delivered again after a rollback"),
        ("tells", "must not be logged"),
        ("has no place", "records must come with a checkpoint"),
        ("invents", "counted events must be among the events of the type"),
    ],
)
def test_a_faulty_source_fails_the_checks(tmp_path: Path, put: Callable[[int], None], fault: str, claim: str) -> None:

    def make() -> Source:
        return _Faulty(tmp_path, fault)

    with pytest.raises(AssertionError, match=claim):
        check_source(make, put, private_text=PRIVATE, patience_seconds=0.5)
