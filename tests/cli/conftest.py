"""A generated example and its reference, made once for all tests of the commands."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from monitor.cli import main
from monitor.example_data import CLASSES, write_example

NAMES = ",".join(CLASSES)


@dataclass(frozen=True)
class Example:
    """Where the example's files are."""

    validation: Path
    site_a: Path
    site_b: Path
    site_a_labelled: Path
    site_b_labelled: Path
    reference: Path


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The example of `cpcmon demo`, calibrated."""
    folder = tmp_path_factory.mktemp("example")
    files = write_example(folder)
    found = Example(
        validation=files["validation_labelled"],
        site_a=files["site_a"],
        site_b=files["site_b"],
        site_a_labelled=files["site_a_labelled"],
        site_b_labelled=files["site_b_labelled"],
        reference=folder / "density.ref",
    )
    words = ["calibrate", "--input", found.validation, "--model", "density", "--classes", NAMES]
    assert main([str(word) for word in [*words, "--output", found.reference]]) == 0
    return found
