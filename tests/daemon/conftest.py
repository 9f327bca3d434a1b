"""A site: a folder with a reference, an inbox and a configuration."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon.process import write_reference
from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka
from tests.strategies import Integers, Singles

__all__ = ["Site", "kafka", "real_kafka", "run_folder", "secured_kafka", "site"]

CONFIG = """\
storage: {{path: state}}
sources:
  - {{name: results, type: directory, path: inbox, poll: 0.2s}}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    window: {{records: {window}}}
    segment_by: [[site]]
    evaluate: {{every: {every}}}
    minimum_records: {minimum}
    alerts:
      - {{name: accuracy_low, below: {below}, for: 2s, new_records: 0.01, severity: critical}}
      - {{name: silent, after: 2h}}
{more}
"""


@dataclass(frozen=True)
class Site:
    """The files of one installation."""

    folder: Path
    reference_vectors: Singles
    labels: Integers
    temperature: float

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "config.yaml"

    @property
    def inbox(self) -> Path:
        """The watched directory."""
        return self.folder / "inbox"

    def configure(
        self, *, window: int = 300, every: str = "1s", minimum: int = 50, below: float = 0.5, more: str = ""
    ) -> None:
        """Write the configuration."""
        text = CONFIG.format(window=window, every=every, minimum=minimum, below=below, more=more)
        self.config.write_text(text, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with a valid configuration."""
    reference, vectors, labels = write_reference(tmp_path)
    (tmp_path / "inbox").mkdir()
    found = Site(tmp_path, vectors, labels, reference.calibration.temperature)
    found.configure()
    return found
