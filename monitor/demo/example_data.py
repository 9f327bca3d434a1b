"""Generated example data: outputs of a classifier with four classes at its own site and at a shifted site.

Breast density in four grades, from six measurements. The classifier is linear discriminant analysis, fitted to generated
training data. The new site has another scanner with less contrast, and an older population with other prevalences.
"""

import json
import time
from copy import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CLASSES = ("fatty", "scattered", "heterogeneous", "dense")
_MEASUREMENTS = 6
PREVALENCE: Floats = np.array([0.10, 0.40, 0.40, 0.10])
"""The prevalence of the grades at the model's own site."""
_OLDER: Floats = np.array([0.22, 0.48, 0.24, 0.06])

_CONFIG = """\
# cpcmon run --config.file tour.yaml; config.example.yaml explains every setting.
storage: {path: tour-state}
sources:
  - {name: results, type: directory, path: inbox}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    window: {records: 1000}
    segment_by: [[site]]
    evaluate: {every: 5s}
    alerts:
      - {name: accuracy_drop, type: change, severity: critical}
      - {name: accuracy_low, below: 0.70, for: 30m, severity: warning}
      - {name: silent, after: 2h, severity: warning}
"""


class Patients:
    """Draws patients: a grade, and measurements that depend on it."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        patterns = random.normal(size=(len(CLASSES), _MEASUREMENTS))
        patterns -= patterns.mean(axis=0)
        self._patterns = 2.6 * patterns / np.linalg.norm(patterns, axis=1, keepdims=True)

    def others(self, random: np.random.Generator) -> "Patients":
        """Return another generator with the same patterns."""
        found = copy(self)
        found._random = random  # noqa: SLF001
        return found

    def draw(self, count: int, prevalence: Floats, contrast: float) -> tuple[Floats, Integers]:
        """Return measurements and grades."""
        grades = self._random.choice(len(CLASSES), size=count, p=prevalence)
        noise = self._random.standard_t(6, size=(count, _MEASUREMENTS))
        return self._patterns[grades] * contrast + noise, grades


class Discriminant:
    """Linear discriminant analysis, fitted to labelled measurements."""

    def __init__(self, measured: Floats, grades: Integers) -> None:
        means = np.array([measured[grades == grade].mean(axis=0) for grade in range(len(CLASSES))])
        within = np.cov((measured - means[grades]).T)
        self._weights = np.linalg.solve(within, means.T)
        shares = np.bincount(grades) / len(grades)
        self._offsets = np.log(shares) - 0.5 * np.einsum("gm,mg->g", means, self._weights)

    def probabilities(self, measured: Floats) -> Floats:
        """Return the outputs of the model."""
        from scipy.special import softmax  # noqa: PLC0415 - slow to import

        return np.asarray(softmax(measured @ self._weights + self._offsets, axis=1))


def trained() -> tuple[Patients, Discriminant]:
    """Return patients and a classifier fitted to some of them, with a fixed seed."""
    patients = Patients(np.random.default_rng(7))
    # A small training set makes the classifier overconfident, as real ones are.
    return patients, Discriminant(*patients.draw(120, PREVALENCE, contrast=1.0))


def write_example(directory: Path) -> dict[str, Path]:
    """Write the example data and return the files by name."""
    directory.mkdir(parents=True, exist_ok=True)
    patients, model = trained()
    sites = (("validation", 4000, PREVALENCE, 1.0), ("site_a", 2000, PREVALENCE, 1.0), ("site_b", 2000, _OLDER, 0.7))
    files = {}
    for name, count, prevalence, contrast in sites:
        measured, grades = patients.draw(count, prevalence, contrast)
        outputs = model.probabilities(measured)
        files[name] = directory / f"{name}.jsonl"
        files[f"{name}_labelled"] = directory / f"{name}_labelled.jsonl"
        _write(files[name], outputs, None)
        _write(files[f"{name}_labelled"], outputs, grades)
    files["inbox"] = directory / "inbox"
    _write_inbox(files["inbox"], [patients.draw(1500, PREVALENCE, 1.0), patients.draw(1500, _OLDER, 0.7)], model)
    files["config"] = directory / "tour.yaml"
    files["config"].write_text(_CONFIG, encoding="utf-8")
    return files


def _write_inbox(folder: Path, sites: list[tuple[Floats, Integers]], model: Discriminant) -> None:
    """Write the records of both sites to a file, one a minute until now, and one incomplete record."""
    folder.mkdir(exist_ok=True)
    outputs = [model.probabilities(measured).tolist() for measured, _ in sites]
    # Older ones would be an input problem.
    first = int(time.time()) - 60 * len(outputs[0])
    with (folder / "results.jsonl").open("w", encoding="utf-8") as file:
        for row, vectors in enumerate(zip(*outputs, strict=True)):
            for site, vector in zip("AB", vectors, strict=True):
                record = {"id": f"exam-{site}{row}", "time": first + 60 * row, "site": site, "probs": vector}
                file.write(json.dumps(record) + "\n")
        file.write('{"id": "exam-A1500", "site": "A", "probs": [0.1, 0.\n')


def _write(path: Path, outputs: Floats, grades: Integers | None) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row, vector in enumerate(outputs):
            record: dict[str, object] = {"probs": vector.tolist()}
            if grades is not None:
                record["label"] = CLASSES[grades[row]]
            file.write(json.dumps(record) + "\n")
