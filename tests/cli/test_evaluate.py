"""`cpcmon evaluate`."""

import csv
import io
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.cli.evaluate import rows
from monitor.core.estimators import ESTIMATORS
from monitor.reference.offline import Evaluation
from tests.cli.conftest import NAMES, Example
from tests.conftest import Ran
from tests.strategies import synthetic

Command = Callable[..., Ran]


def words(example: Example, *targets: Path) -> tuple[object, ...]:
    """Return the command for the example."""
    return ("evaluate", "--source", example.validation, "--target", *targets, "--classes", NAMES)


def test_errors_are_absolute_differences_from_the_realised_accuracy(example: Example, cpcmon: Command) -> None:
    document = json.loads(cpcmon(*words(example, example.site_b_labelled), "--output", "json").out)
    (pair,) = document["pairs"]
    records = [json.loads(line) for line in example.site_b_labelled.read_text().splitlines()]
    names = NAMES.split(",")
    realised = statistics.fmean(names[int(np.argmax(r["probs"]))] == r["label"] for r in records)
    assert pair["target_accuracy"] == pytest.approx(realised)
    for name, errors in document["errors"].items():
        for column, form in (
            ("raw", name),
            ("scaled", f"{name}_ts" if name not in {"consensus", "adaptive"} else name),
        ):
            if errors[column] is not None:
                assert errors[column]["mean"] == pytest.approx(abs(pair["estimates"][form] - realised), abs=1e-12)
                assert errors[column]["standard_deviation"] is None
    assert document["errors"]["adaptive"]["raw"] is None


def test_several_pairs_give_mean_and_standard_deviation(example: Example, cpcmon: Command) -> None:
    """Of two targets with one source."""
    targets = (example.site_a_labelled, example.site_b_labelled)
    document = json.loads(cpcmon(*words(example, *targets), "--output", "json").out)
    each = [abs(pair["estimates"]["ac"] - pair["target_accuracy"]) for pair in document["pairs"]]
    found = document["errors"]["ac"]["raw"]
    assert (found["mean"], found["standard_deviation"]) == pytest.approx(
        (statistics.fmean(each), statistics.stdev(each))
    )
    table = cpcmon(*words(example, *targets)).out
    assert f"{100 * statistics.fmean(each):.1f} ± {100 * statistics.stdev(each):.1f}" in table
    assert "mean ± standard deviation of 2 pairs" in table


def test_the_best_of_each_column_is_marked(example: Example, cpcmon: Command) -> None:
    document = json.loads(cpcmon(*words(example, example.site_b_labelled), "--output", "json").out)
    for column in ("raw", "scaled"):
        cells = {name: errors[column] for name, errors in document["errors"].items() if errors[column]}
        best = {name for name, cell in cells.items() if cell["best"]}
        assert best == {name for name, cell in cells.items() if cell["mean"] == min(c["mean"] for c in cells.values())}
    table = cpcmon(*words(example, example.site_b_labelled)).out
    markdown = cpcmon(*words(example, example.site_b_labelled), "--output", "markdown").out
    assert table.count("*") >= 3
    assert markdown.count("**") >= 4
    assert "| estimator | without scaling | with scaling |" in markdown


def test_paper_selects_the_papers_estimators_and_variants(example: Example, cpcmon: Command) -> None:
    """Absolute DOC and `skip`; the default forms differ."""
    target = example.site_b_labelled
    paper = json.loads(cpcmon(*words(example, target), "--paper", "--output", "json").out)
    options = ("--doc-absolute", "--empty-sets", "skip", "--output", "json")
    by_hand = json.loads(cpcmon(*words(example, target), *options).out)
    plain = json.loads(cpcmon(*words(example, target), "--output", "json").out)
    assert list(paper["errors"]) == ["ac", "doc", "atc_mc", "atc_ne", "cpc_acc", "cpc_ac"]
    for name in paper["errors"]:
        assert paper["errors"][name]["raw"]["mean"] == by_hand["errors"][name]["raw"]["mean"]
    for name in ("doc", "cpc_acc", "cpc_ac"):
        assert paper["errors"][name]["raw"]["mean"] != plain["errors"][name]["raw"]["mean"]
    assert paper["pairs"][0]["estimates"]["doc"] >= paper["pairs"][0]["source_accuracy"]


def test_csv_has_a_line_per_pair_and_form(example: Example, cpcmon: Command) -> None:
    """Each member in two forms, and each combination once."""
    found = list(csv.DictReader(io.StringIO(cpcmon(*words(example, example.site_b_labelled), "--output", "csv").out)))
    assert len(found) == 2 * len(ESTIMATORS) + 2
    for row in found:
        assert float(row["error"]) == pytest.approx(abs(float(row["estimate"]) - float(row["target_accuracy"])))


def test_an_estimator_without_an_estimate_for_a_pair_has_no_mean() -> None:
    answers: list[dict[str, float | None]] = [{"ac": 0.8, "ac_ts": 0.8}, {"ac": None, "ac_ts": 0.6}]
    evaluations = [Evaluation(0.9, 0.7, 1.0, estimates, 0.0) for estimates in answers]
    raw, scaled = rows(evaluations, ["ac"])["ac"]
    assert raw is not None
    assert scaled is not None
    assert (raw.mean, raw.best) == (None, False)
    assert raw.text(str) == "–"
    assert scaled.mean == pytest.approx(0.1)


def test_the_plot_is_drawn(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    path = tmp_path / "plot.html"
    assert cpcmon(*words(example, example.site_b_labelled), "--plot", path).code == 0
    assert path.stat().st_size > 2000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(["--plot", "plot.bmp"], "plot.bmp", id="unknown picture"),
        pytest.param(
            ["--target", "a.jsonl", "b.jsonl", "--source", "a.jsonl", "b.jsonl", "c.jsonl"], "--source", id="pairs"
        ),
        pytest.param(
            ["--paper", "--empty-sets", "zero"], "--paper: expected no other variant", id="paper and a choice"
        ),
        pytest.param(
            ["--plot", "nowhere/p.svg"],
            "--plot nowhere/p.svg: expected a file in an existing directory",
            id="no folder",
        ),
        pytest.param(["--target-labels", "a.npy", "b.npy"], "--target-labels: expected 1 files", id="labels too many"),
        pytest.param(["--target", "absent.jsonl"], "absent.jsonl", id="no such file"),
    ],
)
def test_invalid_options_exit_with_2(example: Example, cpcmon: Command, more: list[str], message: str) -> None:
    """Without a table."""
    ran = cpcmon(*words(example, example.site_a_labelled), *more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_labels_of_npy_files(cpcmon: Command, tmp_path: Path) -> None:
    """One label file per array."""
    for name, seed in (("a", 1), ("b", 2)):
        probabilities, labels = synthetic(200, 3, seed=seed)
        np.save(tmp_path / f"{name}.npy", probabilities)
        np.save(tmp_path / f"{name}_y.npy", labels)
    words = ("--source", tmp_path / "a.npy", "--target", tmp_path / "b.npy", "--source-labels", tmp_path / "a_y.npy")
    ran = cpcmon("evaluate", *words, "--target-labels", tmp_path / "b_y.npy", "--output", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["pairs"][0]["target_accuracy"] == (probabilities.argmax(axis=1) == labels).mean()
