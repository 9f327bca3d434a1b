"""Metrics beyond accuracy and the class mix, as `cpcmon estimate` and `cpcmon evaluate` print and plot them."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor import Reference, estimate
from monitor.core.performance import Metric
from tests.conftest import Ran

Command = Callable[..., Ran]
NAMES = ("healthy", "cancer")


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up detector of two classes: a source, a target with more cases, and the reference at an operating point."""
    folder, random = tmp_path_factory.mktemp("binary"), np.random.default_rng(7)
    for name, records, share in (("source", 4000, 0.2), ("target", 2000, 0.4)):
        cases = random.random(records) < share
        score = 1.0 / (1.0 + np.exp(1.4 - 2.5 * cases - random.normal(size=records)))
        np.savez(folder / f"{name}.npz", score=score.round(4), label=cases.astype(np.int64))
    with np.load(folder / "source.npz") as data:
        vectors, labels = np.column_stack([1 - data["score"], data["score"]]), data["label"]
    Reference.calibrate(vectors, labels, model="detector", classes=NAMES, decide="cancer=0.3").save(folder / "d.ref")
    return folder


def of_target(folder: Path) -> tuple[object, ...]:
    """Return the command for the target."""
    return ("estimate", "--reference", folder / "d.ref", "--input", folder / "target.npz", "--kind", "score")


def of_pair(folder: Path) -> tuple[object, ...]:
    """Return the command for source and target."""
    files = ("--source", folder / "source.npz", "--target", folder / "target.npz")
    return ("evaluate", *files, "--kind", "score", "--classes", ",".join(NAMES), "--decide-at", "cancer=0.3")


def test_the_table_of_two_classes(binary: Path, cpcmon: Command) -> None:
    ran = cpcmon(*of_target(binary))
    assert ran.code == 0
    found = ran.out.partition("expected performance\n\n")[2]
    assert found == TABLE
    assert max(len(line) for line in found.splitlines()) <= 100


TABLE = """\
class           sensitivity      specificity      PPV              NPV              F1
healthy         0.658            0.987            0.991            0.593            0.791
  95% interval  0.648 – 0.670    0.968 – 1.000    0.981 – 0.996    0.567 – 0.617    0.783 – 0.799
  reference     0.722            0.971            0.990            0.458            0.835
cancer          0.987            0.658            0.593            0.991            0.741
  95% interval  0.968 – 1.000    0.648 – 0.670    0.567 – 0.617    0.981 – 0.996    0.717 – 0.762
  reference     0.971            0.722            0.458            0.990            0.623
macro average   0.823            0.823            0.792            0.792            0.766
  95% interval  0.811 – 0.832    0.811 – 0.832    0.778 – 0.805    0.778 – 0.805    0.750 – 0.781
  reference     0.846            0.846            0.724            0.724            0.729
AUROC           0.966
  95% interval  0.953 – 0.976
  reference     0.960

class mix, if nothing but the class mix changed

class           share            95% interval     reference
healthy         0.590            0.572 – 0.608    0.805
cancer          0.410            0.392 – 0.428    0.195

PPV and NPV are the positive and the negative predictive value. All assume that probabilities mean
what they meant on the reference: confident mistakes stay invisible. Intervals are about chance
only.
The class mix is right if nothing but the class mix changed; under real shifts it was off by 17 to
23 points on average.
"""


def test_json_has_the_numbers_of_the_python_api(binary: Path, cpcmon: Command) -> None:
    document = json.loads(cpcmon(*of_target(binary), "--output", "json").out)
    reference = Reference.load(binary / "d.ref")
    with np.load(binary / "target.npz") as data:
        window = estimate(reference, np.column_stack([1 - data["score"], data["score"]]))
    assert len(document["performance"]) == len(window.performance) == 2 * 5 + 5 + 1
    for found, wanted in zip(document["performance"], window.performance, strict=True):
        assert set(found) == {"metric", "class", "value", "lower", "upper", "cases", "why", "reference"}
        of_class = None if wanted.target.of_class is None else NAMES[wanted.target.of_class]
        assert (found["metric"], found["class"], found["value"]) == (wanted.target.metric.value, of_class, wanted.value)
        assert found["lower"] <= found["value"] <= found["upper"]
        assert found["why"] is None
    assert [set(one) for one in document["class_mix"]] == [{"class", "value", "lower", "upper", "reference"}] * 2
    assert sum(one["value"] for one in document["class_mix"]) == pytest.approx(1.0)


def test_too_few_cases_cannot_be_said(binary: Path, cpcmon: Command, tmp_path: Path) -> None:
    """A class without a single expected case; in every format, and never NaN."""
    np.savez(tmp_path / "none.npz", score=np.full(300, 0.0001))
    words = ("estimate", "--reference", binary / "d.ref", "--input", tmp_path / "none.npz", "--kind", "score")
    document = json.loads(cpcmon(*words, "--output", "json").out)
    (found,) = (one for one in document["performance"] if (one["metric"], one["class"]) == ("sensitivity", "cancer"))
    assert [found[key] for key in ("value", "lower", "upper", "why")] == [None, None, None, "too_few_cases"]
    assert found["reference"] > 0.5
    assert "cannot say: too few such records" in cpcmon(*words).out
    assert ",sensitivity,,,,,,too_few_cases,cancer," in cpcmon(*words, "--output", "csv").out
    assert "cannot say" in cpcmon(*words, "--window", 200).out


def test_an_older_reference_says_so(binary: Path, cpcmon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference.load(binary / "d.ref")
    object.__setattr__(reference.calibration, "performance", None)
    monkeypatch.setattr(Reference, "load", lambda _path: reference)
    assert "run `cpcmon calibrate` again" in cpcmon(*of_target(binary)).out
    document = json.loads(cpcmon(*of_target(binary), "--output", "json").out)
    assert (document["performance"], document["class_mix"]) == ([], [])


def test_a_watched_class(binary: Path, cpcmon: Command) -> None:
    document = json.loads(cpcmon(*of_target(binary), "--watch-class", "cancer", "--output", "json").out)
    assert {one["class"] for one in document["performance"]} == {"cancer", None}
    ran = cpcmon(*of_target(binary), "--watch-class", "absent")
    assert (ran.code, "--watch-class: expected one of the classes healthy, cancer, found 'absent'" in ran.err) == (
        2,
        True,
    )


def test_windows_show_the_class_of_the_threshold(binary: Path, cpcmon: Command) -> None:
    lines = cpcmon(*of_target(binary), "--window", 500).out.partition("\ncancer per window")[2].splitlines()[2:]
    assert lines[0].split() == ["window", "sensitivity", "specificity", "PPV", "NPV", "F1", "AUROC"]
    assert [line.split()[0] for line in lines[1:]] == ["reference", "1", "2", "3", "4"]


def test_evaluate_shows_the_error_of_each_metric(binary: Path, cpcmon: Command) -> None:
    """And that of repeating the reference; here only the class mix changed, so it is found."""
    document = json.loads(cpcmon(*of_pair(binary), "--output", "json").out)
    (pair,) = document["pairs"]
    with np.load(binary / "target.npz") as data:
        decided, cases = data["score"].astype(np.float32) >= np.float32(0.3), data["label"] == 1
    found = {(one["metric"], one["class"]): one for one in pair["performance"]}
    assert found["sensitivity", "cancer"]["realised"] == pytest.approx(decided[cases].mean())
    assert found["specificity", "cancer"]["realised"] == pytest.approx(1 - decided[~cases].mean())
    assert found["ppv", "cancer"]["realised"] == pytest.approx(cases[decided].mean())
    for one in pair["performance"]:
        assert one["error"] == pytest.approx(abs(one["value"] - one["realised"]))
        assert one["reference_error"] == pytest.approx(abs(one["reference"] - one["realised"]))
    errors = document["performance_errors"]
    assert list(errors) == [*Metric, "class_mix"]
    both = [found["f1", name]["error"] for name in NAMES]
    assert errors["f1"]["mean"] == pytest.approx(statistics.fmean(both))
    assert errors["class_mix"]["mean"] < 0.05 < errors["class_mix"]["reference_mean"]
    table = cpcmon(*of_pair(binary)).out
    assert f"\nF1{100 * errors['f1']['mean']:>41.1f} " in table
    assert "if nothing but the class mix changed" in table
    assert "| F1 | " in cpcmon(*of_pair(binary), "--output", "markdown").out


@pytest.mark.slow
def test_the_figures_of_the_real_sets(real_sets: Path, cpcmon: Command, tmp_path: Path) -> None:
    """At 90% sensitivity, what can be said of eleven sets equals the expected values, and its mean errors are these."""
    expected = json.loads((real_sets / "expected_performance.json").read_text())
    errors: dict[str, list[tuple[float, float]]] = {}
    for name, found in expected.items():
        if (point := found.get("operating_point")) is None:
            continue
        with np.load(real_sets / f"{name}.npz") as data:
            for part in ("source", "target"):
                columns = {"probs": data[f"{part}_probs"].astype(np.float64), "label": data[f"{part}_labels"]}
                np.savez(tmp_path / f"{part}.npz", **columns)
        files = ("--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz")
        decision = ("--decide-at", f"1={point['threshold']!r}", "--watch-class", "1")
        (pair,) = json.loads(cpcmon("evaluate", *files, *decision, "--output", "json").out)["pairs"]
        for one in pair["performance"]:
            if (one["class"] is None and one["metric"] != "auroc") or one["value"] is None:
                continue
            wanted = point["estimated"] if one["class"] is None else point["estimated"]["classes"]["1"]
            tolerance = 1e-3 if one["metric"] == "auroc" else 1e-9
            assert one["value"] == pytest.approx(wanted[one["metric"]], abs=tolerance), name
            errors.setdefault(one["metric"], []).append((one["error"], one["reference_error"]))
    means = {
        metric: tuple(round(100 * statistics.fmean(column), 1) for column in zip(*pairs, strict=True))
        for metric, pairs in errors.items()
    }
    assert (means["specificity"], means["ppv"], means["f1"]) == ((6.6, 19.0), (12.7, 14.3), (6.4, 20.6))
    assert [len(errors[metric]) for metric in Metric] == [8, 11, 11, 10, 11, 8]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_plots_name_metrics_and_classes(binary: Path, cpcmon: Command, tmp_path: Path, suffix: str) -> None:
    for words in (of_target(binary), of_pair(binary)):
        path = tmp_path / f"plot{suffix}"
        assert cpcmon(*words, "--plot", path).code == 0
        text = path.read_text(encoding="utf-8")
        for name in (
            "sensitivity",
            "AUROC",
            "class mix",
            "macro average",
            "cancer",
            "if nothing but the class mix changed",
        ):
            assert name in text
        assert (">realised<" in text) == (words[0] == "evaluate")


def test_a_plot_of_windows_is_refused(binary: Path, cpcmon: Command) -> None:
    ran = cpcmon(*of_target(binary), "--plot", "plot.svg", "--window", 500)
    assert (ran.code, "--plot: expected one window, found --window 500" in ran.err) == (2, True)
