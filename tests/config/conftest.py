"""A folder with a configuration in it, and real references for it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.reference.reference import Reference

BASE = """\
storage: {path: state}
sources:
  - {name: results, type: directory, path: inbox}
models:
  - name: density
    reference: density.ref
"""

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def reference() -> Reference:
    """A reference of 300 records of three classes, right in about four of five."""
    random = np.random.default_rng(7)
    labels = random.integers(0, 3, 300)
    logits = random.normal(size=(300, 3))
    logits[np.arange(300), labels] += 2.0
    outputs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return Reference.calibrate(outputs, labels, model="density", version="2.1", classes=["a", "b", "c"])


@pytest.fixture
def write(tmp_path: Path, reference: Reference) -> Write:
    """Write a configuration, by default a small one that is right, beside its reference; more text is added to it."""

    def write(more: str = "", base: str = BASE, *, other_reference: Reference = reference) -> Path:
        (tmp_path / "inbox").mkdir(exist_ok=True)
        other_reference.save(tmp_path / "density.ref")
        file = tmp_path / "config.yaml"
        file.write_text(base + more, encoding="utf-8")
        return file

    return write
