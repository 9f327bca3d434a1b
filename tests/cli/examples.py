"""A directory in which every example of the help and the docs runs."""

import csv
import json
import shutil
from pathlib import Path

from monitor.cli import main
from monitor.demo.example_data import CLASSES, write_example

NAMES = {"validation.jsonl": "validation_labelled", "labelled.jsonl": "site_b_labelled", "outputs.jsonl": "site_b"}


def prepare(folder: Path) -> None:
    """Write the example data under the names used in the help, with a reference and a state."""
    files = write_example(folder)
    for name, of in NAMES.items():
        shutil.copy(files[of], folder / name)
    for name in ("validation", "labelled"):
        _as_columns(folder / f"{name}.jsonl", folder / f"{name}.csv")
    shutil.copy(files["inbox"] / "results.jsonl", folder / "records.jsonl")
    _screening(folder / "screening.jsonl")
    for name in ("hospitals", "week"):
        _of_sites(folder / "validation.jsonl", folder / f"{name}.jsonl")
    shutil.copy(files["config"], folder / "config.yaml")
    words = ["--input", folder / "validation.jsonl", "--classes", ",".join(CLASSES), "--model", "density"]
    made = ["calibrate", *words, "--model-version", "2.1", "--output", folder / "density.ref"]
    assert main([str(word) for word in made]) == 0
    shutil.copy(folder / "density.ref", folder / "hospitals.ref")
    watch = ["watch", folder / "inbox", "--reference", folder / "density.ref", "--state", folder / "state", "--once"]
    assert main([str(word) for word in watch]) == 0


def _screening(path: Path) -> None:
    """Write labelled records of a model of two classes."""
    shares = [place / 500 for place in range(500)]
    lines = (
        {"probs": [1 - p, p], "label": "cancer" if place % 10 < 10 * p else "healthy"} for place, p in enumerate(shares)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _of_sites(lines: Path, path: Path) -> None:
    """Write the same records with a site and a scanner each."""
    records = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    sites = ({"site": "AB"[row % 2], "scanner": str(row % 6)} for row in range(len(records)))
    joined = (record | site for record, site in zip(records, sites, strict=True))
    path.write_text("".join(json.dumps(one) + "\n" for one in joined), encoding="utf-8")


def _as_columns(lines: Path, table: Path) -> None:
    """Write labelled records as CSV with one column per class."""
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", *(f"prob_{name}" for name in CLASSES)])
        for line in lines.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            writer.writerow([record["label"], *record["probs"]])


def ended(words: list[str]) -> list[str] | None:
    """Return a variant of a command that ends by itself; None if there is none."""
    if words[0] == "watch" and "--once" not in words:
        return [*words, "--once"]
    if words[0] == "run":
        return [*words, "--config.check"]
    if words[0] in {"audit-list", "audit-check", "forget"} or (words[0] == "baseline" and "--config.file" not in words):
        return None  # needs a daemon, or an audit
    # Notify needs a receiver.
    return None if words[0] in {"demo", "notify"} else words
