"""The example data and its reference."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from monitor.demo.example_data import CLASSES

NAMES = ",".join(CLASSES)


@dataclass(frozen=True)
class Example:
    """The files of the example."""

    validation: Path
    site_a: Path
    site_b: Path
    site_a_labelled: Path
    site_b_labelled: Path
    reference: Path


@pytest.fixture(scope="session")
def example(calibrated: Path) -> Example:
    """The example of `cpcmon demo --tour`, calibrated."""
    return Example(
        validation=calibrated / "validation_labelled.jsonl",
        site_a=calibrated / "site_a.jsonl",
        site_b=calibrated / "site_b.jsonl",
        site_a_labelled=calibrated / "site_a_labelled.jsonl",
        site_b_labelled=calibrated / "site_b_labelled.jsonl",
        reference=calibrated / "density.ref",
    )
