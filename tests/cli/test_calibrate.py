"""`cpcmon calibrate`: the reference, its summary and its warnings."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor import Reference
from monitor.core.scores import label_outputs
from monitor.reference.summary import Concern, summarise
from tests.cli.conftest import NAMES, Example
from tests.conftest import Ran
from tests.strategies import hospital, synthetic

Command = Callable[..., Ran]


def jsonl(path: Path, probabilities: np.ndarray, labels: np.ndarray | None = None) -> Path:
    """Write records."""
    records = [
        {"probs": p.tolist()} | ({} if labels is None else {"label": int(labels[i])})
        for i, p in enumerate(probabilities)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.slow
def test_the_summary(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    words = ("--input", example.validation, "--model", "density", "--model-version", "2.1", "--classes", NAMES)
    ran = cpcmon("calibrate", *words, "--output", tmp_path / "d.ref")
    assert (ran.code, ran.err) == (0, "")
    reference = Reference.load(tmp_path / "d.ref")
    assert "model              density 2.1\n" in ran.out
    assert "records            4,000\n" in ran.out
    assert f"accuracy           {reference.calibration.accuracy:.4f}  (95% interval 0." in ran.out
    assert f"temperature        {reference.calibration.temperature:.4f}" in ran.out
    assert "calibration error  0.0" in ran.out
    assert reference.fingerprint[:16] in ran.out
    for name in NAMES.split(","):
        assert f"\n{name} " in ran.out
    assert "warning" not in ran.out


def test_the_class_table(example: Example) -> None:
    """Against a plain count."""
    records = [json.loads(line) for line in example.validation.read_text().splitlines()]
    names = NAMES.split(",")
    predicted = [names[int(np.argmax(record["probs"]))] for record in records]
    summary = Reference.load(example.reference).summary
    for index, name in enumerate(names):
        assert summary.class_records[index] == sum(record["label"] == name for record in records)
        assert summary.class_predicted[index] == predicted.count(name)
        right = sum(s == name == record["label"] for s, record in zip(predicted, records, strict=True))
        assert summary.class_right[index] == right


def test_calibration_error_equals_a_plain_count() -> None:
    """Fifteen bins of equal width, weighted by their records."""
    probabilities, labels = synthetic(500, 3, seed=1)
    confidence = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == labels
    error = 0.0
    for edge in range(15):
        inside = (confidence * 15 >= edge) & ((confidence * 15 < edge + 1) | (edge == 14))
        if inside.any():
            error += inside.sum() / 500 * abs(confidence[inside].mean() - right[inside].mean())
    assert summarise(label_outputs(probabilities, labels)).calibration_error == pytest.approx(error, abs=1e-12)


def warned(probabilities: np.ndarray, labels: np.ndarray) -> set[Concern]:
    """Return the warnings of a reference."""
    return set(summarise(label_outputs(probabilities.astype(np.float32), labels)).warnings())


def test_a_good_reference_has_no_warning() -> None:
    """600 records of 3 classes, continuous scores."""
    assert warned(*synthetic(600, 3, seed=1)) == set()


def test_few_records_cause_a_warning() -> None:
    """499 are fewer than 500; 500 are not."""
    probabilities, labels = synthetic(500, 3, seed=1)
    assert warned(probabilities[:499], labels[:499]) == {Concern.FEW_RECORDS}
    assert warned(probabilities, labels) == set()


def test_a_rare_class_causes_a_warning() -> None:
    """Nine records of a class are too few."""
    probabilities, labels = synthetic(600, 3, seed=1)
    rare = np.flatnonzero(labels == 2)[9:]
    keep = np.setdiff1d(np.arange(600), rare)
    assert Concern.RARE_CLASS in warned(probabilities[keep], labels[keep])


def test_tied_scores_cause_a_warning() -> None:
    """Vote shares of seven readers tie nearly all records."""
    votes = np.random.default_rng(1).multinomial(7, [0.6, 0.4], size=600) / 7
    assert Concern.TIED_SCORES in warned(votes, votes.argmax(axis=1))


def test_zeros_under_the_floor_cause_a_warning() -> None:
    """More than 1% of records with a probability of zero."""
    probabilities, labels = synthetic(600, 3, seed=1)
    for count, expected in ((6, False), (7, True)):
        zeros = probabilities.copy()
        zeros[:count] = [1.0, 0.0, 0.0]
        assert (Concern.ZEROS_UNDER_FLOOR in warned(zeros, labels)) is expected


def test_an_accuracy_below_the_largest_class_causes_a_warning() -> None:
    """As when the classes are in the wrong order."""
    probabilities, labels = synthetic(600, 2, seed=1)
    assert Concern.BELOW_LARGEST_CLASS in warned(probabilities[:, ::-1], labels)


def test_two_exchanged_classes_cause_a_warning() -> None:
    """Even if the accuracy stays above the share of the largest class."""
    random = np.random.default_rng(1)
    labels = random.integers(6, size=2000)
    predicted = np.where(random.random(2000) < 0.8, labels, random.integers(6, size=2000))
    probabilities = random.dirichlet(np.ones(6), 2000) * 0.4 + 0.6 * np.eye(6)[predicted]
    assert Concern.CLASSES_MIXED_UP not in warned(probabilities, labels)
    for one, other in itertools.combinations(range(6), 2):
        order = list(range(6))
        order[one], order[other] = other, one
        concerns = warned(probabilities[:, order], labels)
        assert Concern.CLASSES_MIXED_UP in concerns
        assert Concern.BELOW_LARGEST_CLASS not in concerns


@pytest.mark.parametrize("records", [1, 2, 39])
def test_few_records_cause_no_warning_about_class_order(records: int) -> None:
    probabilities = np.tile([[0.6, 0.4], [0.4, 0.6]], (records, 1))[:records]
    assert Concern.CLASSES_MIXED_UP not in warned(probabilities, probabilities.argmin(axis=1))


def test_warnings_are_printed(cpcmon: Command, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "small.jsonl", *synthetic(60, 3, seed=1))
    ran = cpcmon("calibrate", "--input", data, "--model", "m", "--output", tmp_path / "m.ref")
    assert ran.code == 0
    assert "warning: 60 records: with fewer than 500, intervals are wide" in ran.out


def test_bad_records_are_an_error(cpcmon: Command, tmp_path: Path) -> None:
    """With the first five and the number of others; nothing is written."""
    probabilities, labels = synthetic(40, 3, seed=1)
    wrong = probabilities.copy()
    wrong[3:10] *= 2
    data = jsonl(tmp_path / "bad.jsonl", wrong, labels)
    ran = cpcmon("calibrate", "--input", data, "--model", "m", "--output", tmp_path / "m.ref")
    assert ran.code == 2
    assert not (tmp_path / "m.ref").exists()
    for line in range(4, 9):
        assert f"line {line}: expected" in ran.err
    assert "line 9:" not in ran.err
    assert "2 more" in ran.err
    assert "--skip-bad" in ran.err
    assert "Traceback" not in ran.err


def test_skip_bad_skips_and_counts_bad_records(cpcmon: Command, tmp_path: Path) -> None:
    probabilities, labels = synthetic(40, 3, seed=1)
    wrong = probabilities.copy()
    wrong[3:10] *= 2
    data = jsonl(tmp_path / "bad.jsonl", wrong, labels)
    ran = cpcmon("calibrate", "--input", data, "--model", "m", "--output", tmp_path / "m.ref", "--skip-bad")
    assert ran.code == 0
    assert "skipped 7 bad of 40 records" in ran.err
    assert Reference.load(tmp_path / "m.ref").calibration.records == 33


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["--output", "nowhere/m.ref"],
            "--output nowhere/m.ref: expected a file in an existing directory",
            id="no folder",
        ),
        pytest.param(["--output", "data.jsonl"], "found the input itself", id="output is the input"),
        pytest.param(["--output", "."], "found a directory", id="output is a directory"),
        pytest.param(["--output", "m.ref", "--model", " "], "--model: expected a name", id="no name"),
        pytest.param(["--output", "m.ref", "--classes", "a,,b"], "found an empty name", id="empty class name"),
        pytest.param(["--output", "m.ref", "--level", "0.999"], "level: expected", id="level beyond the replays"),
        pytest.param(["--output", "m.ref", "--level", "95"], "level: expected", id="level in percent"),
        pytest.param(["--output", "m.ref", "--label-field", "truth"], "truth", id="no such label"),
        pytest.param(["--output", "m.ref", "--input", "absent.jsonl"], "absent.jsonl", id="no such file"),
    ],
)
def test_invalid_options_exit_with_2(
    cpcmon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    """Without a reference."""
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "data.jsonl", *synthetic(30, 3, seed=1))
    before = (tmp_path / "data.jsonl").read_bytes()
    ran = cpcmon("calibrate", "--input", "data.jsonl", "--model", "m", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not list(tmp_path.glob("*.ref"))
    assert (tmp_path / "data.jsonl").read_bytes() == before


def test_labels_of_an_npy_file(cpcmon: Command, tmp_path: Path) -> None:
    probabilities, labels = synthetic(40, 3, seed=1)
    np.save(tmp_path / "p.npy", probabilities)
    np.save(tmp_path / "y.npy", labels)
    words = ("--input", tmp_path / "p.npy", "--labels", tmp_path / "y.npy", "--model", "m")
    ran = cpcmon("calibrate", *words, "--output", tmp_path / "m.ref")
    assert (ran.code, ran.err) == (0, "")
    assert Reference.load(tmp_path / "m.ref").calibration.right == int((probabilities.argmax(axis=1) == labels).sum())


def test_named_labels_need_class_names(cpcmon: Command, tmp_path: Path) -> None:
    (tmp_path / "named.jsonl").write_text('{"probs": [0.7, 0.3], "label": "benign"}\n' * 30)
    ran = cpcmon("calibrate", "--input", tmp_path / "named.jsonl", "--model", "m", "--output", tmp_path / "m.ref")
    assert ran.code == 2
    assert "set their names in vector order with --classes" in ran.err


def counted_from_one(path: Path, classes: int = 4, records: int = 400) -> tuple[Path, np.ndarray, np.ndarray]:
    """Write labelled records with labels from 1, and return them."""
    probabilities, labels = synthetic(records, classes, seed=1, sharpness=2.6)
    return jsonl(path, probabilities, labels + 1), probabilities, labels


@pytest.mark.slow
@pytest.mark.parametrize("skip", [["--skip-bad"], []], ids=["bad records skipped", "none skipped"])
def test_labels_that_count_from_one_are_rejected(cpcmon: Command, tmp_path: Path, skip: list[str]) -> None:
    """The message suggests --classes, which gives the right reference."""
    data, probabilities, labels = counted_from_one(tmp_path / "data.jsonl")
    words = ("calibrate", "--input", data, "--model", "m", "--output", tmp_path / "m.ref")
    ran = cpcmon(*words, *skip)
    assert (ran.code, ran.out) == (2, "")
    assert f"{data}: expected labels that count from 0 to 3, found labels from 1 to 4 and no 0" in ran.err
    assert "--skip-bad" not in ran.err
    assert not (tmp_path / "m.ref").exists()
    assert ran.err.endswith("--classes 1,2,3,4\n")
    assert cpcmon(*words, "--classes", "1,2,3,4").code == 0
    assert Reference.load(tmp_path / "m.ref").calibration.right == np.sum(probabilities.argmax(axis=1) == labels)


def test_evaluate_rejects_labels_that_count_from_one(cpcmon: Command, tmp_path: Path) -> None:
    data, probabilities, labels = counted_from_one(tmp_path / "data.jsonl")
    right = jsonl(tmp_path / "right.jsonl", probabilities, labels)
    ran = cpcmon("evaluate", "--source", right, "--target", data, "--classes", "a,b,c,d", "--skip-bad")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(
        f"{data}: expected labels that count from 0 to 3, found labels from 1 to 4 and no 0:"
        " subtract 1 from each, or write the class names\n"
    )


def test_skip_bad_accepts_a_set_without_the_first_class(cpcmon: Command, tmp_path: Path) -> None:
    probabilities, labels = synthetic(400, 4, seed=1, sharpness=2.6)
    present = labels > 0
    labels = labels[present]
    labels[0] = 4
    data = jsonl(tmp_path / "data.jsonl", probabilities[present], labels)
    ran = cpcmon("calibrate", "--input", data, "--model", "m", "--output", tmp_path / "m.ref", "--skip-bad")
    assert (ran.code, "skipped 1 bad" in ran.err) == (0, True)


def test_a_file_of_bad_records_only_is_an_error(cpcmon: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"probs": [0.7, 0.7], "label": 0}\n' * 3)
    words = ("--input", tmp_path / "bad.jsonl", "--model", "m", "--output", tmp_path / "m.ref", "--skip-bad")
    ran = cpcmon("calibrate", *words)
    assert ran.code == 2
    assert "skipped 3 bad of 3" in ran.err


def test_a_temperature_at_its_bound_causes_a_warning() -> None:
    """Every prediction is right."""
    probabilities, _ = synthetic(600, 3, seed=1)
    assert Concern.TEMPERATURE_AT_BOUND in warned(probabilities, probabilities.argmax(axis=1))


@pytest.mark.slow
def test_permuted_columns_give_the_same_reference(cpcmon: Command, tmp_path: Path) -> None:
    """Eleven classes named by number, in natural and in lexical order: the same accuracy, to the digit."""
    probabilities, labels = synthetic(300, 11, seed=1)
    fingerprinted = []
    for name, order in (("natural", list(range(11))), ("lexical", sorted(range(11), key=str))):
        header = ",".join([*(f"prob_{k}" for k in order), "label"])
        lines = [
            ",".join([*(repr(float(p[k])) for k in order), str(y)]) for p, y in zip(probabilities, labels, strict=True)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
        words = ("--input", tmp_path / f"{name}.csv", "--class-columns", "prob_*", "--model", "m")
        assert cpcmon("calibrate", *words, "--output", tmp_path / f"{name}.ref").code == 0
        fingerprinted.append(Reference.load(tmp_path / f"{name}.ref").calibration.right)
    assert fingerprinted == [int((probabilities.argmax(axis=1) == labels).sum())] * 2
    names = ",".join(str(k) for k in range(11))
    both = ("--source", tmp_path / "natural.csv", "--target", tmp_path / "lexical.csv", "--class-columns", "prob_*")
    document = json.loads(cpcmon("evaluate", *both, "--classes", names, "--output", "json").out)
    assert document["pairs"][0]["target_accuracy"] == document["pairs"][0]["source_accuracy"]


def test_segments_get_labelled_baselines(cpcmon: Command, tmp_path: Path) -> None:
    """The output says how many, those that differ most, which are too small; `estimate` then corrects and compares."""
    random = np.random.default_rng(2)
    kinds = {"A": (300, 0.0), "B": (300, 0.4), "C": (20, 0.0), None: (30, 0.0)}
    for name in ("reference", "week"):
        parts = {site: hospital(random, size, mistaken=mistaken) for site, (size, mistaken) in kinds.items()}
        lines = [
            json.dumps({"probs": p.tolist(), "label": int(label), "meta": {"site": site}})
            for site, (vectors, labels) in parts.items()
            for p, label in zip(vectors, labels, strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    fields = ("--segment-by", "site", "--segment-field", "site=meta.site")
    made = ("--model", "m", "--output", tmp_path / "m.ref")
    ran = cpcmon("calibrate", "--input", tmp_path / "reference.jsonl", *made, *fields)
    assert ran.code == 0
    assert "segments by site: 2 of 3 have a labelled baseline; 30 records have no value\n" in ran.out
    assert "fewer than 50 records: site=C (20)\n" in ran.out
    baselines = Reference.load(tmp_path / "m.ref").calibration.segments
    assert baselines is not None
    assert (rows := [line.split() for line in ran.out.splitlines() if line.startswith("site=")])
    assert {row[0]: row[3] for row in rows} == {
        f"site={site}": f"{baselines[(('site', site),)].accuracy:.4f}" for site in "AB"
    }

    words = ("--reference", tmp_path / "m.ref", "--input", tmp_path / "week.jsonl", *fields)
    found = json.loads(cpcmon("estimate", *words, "--output", "json").out)["segments"]
    assert [(one["segment"], one["baseline"]["kind"], one["records"]) for one in found] == [
        ({"site": "A"}, "labelled", 300),
        ({"site": "B"}, "labelled", 300),
        ({"site": "C"}, "reference", 20),
    ]
    assert found[1]["baseline"]["accuracy"] == baselines[(("site", "B"),)].accuracy
    assert found[1]["estimators"]["adaptive"]["value"] < found[0]["estimators"]["adaptive"]["value"] - 0.1
    assert found[2]["estimators"]["adaptive"]["reason"] == "too_few_records"
    table = cpcmon("estimate", *words).out
    assert f"{found[0]['baseline']['accuracy']:.3f}  300 labelled\n" in table
    assert "the whole reference" in table
    assert f"{found[0]['field']['90'][0]:.3f} – {found[0]['field']['90'][1]:.3f} " in table
    assert "1 with fewer than 200 records" in table
    assert "site=B,300,adaptive,0." in cpcmon("estimate", *words, "--output", "csv").out
    assert "--segment-by: expected one window per segment" in cpcmon("estimate", *words, "--window", "200").err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("site",), "--segment-by: expected records with the field 'site', found none in"),
        (
            ("site,site",),
            "--segment-by: expected fields such as site or site,scanner, each set once, found 'site,site'",
        ),
        (("site,",), "--segment-by: expected names of fields, found an empty name"),
        (("probs",), "expected a field other than that of the outputs, found probs"),
        (
            ("site", "--segment-field", "ward=meta.ward"),
            "--segment-field: expected NAME=PATH, with a name of --segment-by",
        ),
    ],
)
def test_segments_that_no_record_has(cpcmon: Command, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    file = jsonl(tmp_path / "few.jsonl", *synthetic(60, 3, seed=1))
    made = ("--input", file, "--model", "m", "--output", tmp_path / "m.ref")
    ran = cpcmon("calibrate", *made, "--segment-by", *options)
    assert ran.code == 2
    assert words in ran.err
    assert not (tmp_path / "m.ref").exists()
