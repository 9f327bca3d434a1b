"""References are opened, and everything that does not fit is reported at once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.config.reading import read_config
from monitor.config.references import load_models, window_costs
from monitor.errors import ConfigError
from monitor.reference.reference import Reference
from tests.config.conftest import BASE, Write
from tests.strategies import synthetic


def _error_of(file: Path) -> list[str]:
    config = read_config(file)
    with pytest.raises(ConfigError) as caught:
        load_models(config)
    return [line.removeprefix(f"{file}:") for line in str(caught.value).splitlines()]


def test_every_model_gets_its_reference(write: Write, reference: Reference) -> None:
    """Or none, where the configuration names none."""
    config = read_config(write('    version: "2.1"\n  - name: other\n'))
    assert load_models(config) == [(config.models[0], reference), (config.models[1], None)]


def test_all_references_that_do_not_fit_are_reported_at_once(write: Write) -> None:
    """Each at its line: absent, damaged, of another model, of another version, of other outputs, of a lower accuracy."""
    more = """\
  - name: absent
    reference: nowhere/absent.ref
  - name: damaged
    reference: damaged.ref
  - name: other
    reference: density.ref
"""
    own = '    version: "3"\n    kind: score\n    alerts: [{name: low, drop: 0.99}]\n'
    file = write(own + more)
    (file.parent / "damaged.ref").write_bytes((file.parent / "density.ref").read_bytes()[:-10])
    reported = _error_of(file)
    folder = file.parent
    assert reported[0] == "7: models[0].version: expected a reference of version '3', found version '2.1'"
    assert reported[1] == "8: models[0].kind: expected 2 names for kind score, found 3"
    assert reported[2].startswith("9: models[0].alerts[0].drop: expected less than the reference's accuracy, 0.")
    assert reported[3] == (
        "11: models[1].reference: expected a reference file,"
        f" found No such file or directory in '{folder}/nowhere/absent.ref'"
    )
    assert reported[4].startswith("13: models[2].reference: expected content with fingerprint ")
    assert (
        reported[5] == "15: models[3].reference: expected a reference made for model 'other', found one for 'density'"
    )
    assert reported[6:] == [" 6 problems"]


def test_a_device_that_decides_in_another_way_is_refused_with_what_to_do(write: Write) -> None:
    """Without the setting the reference decides."""
    outputs, labels = synthetic(60, 2, seed=1)
    argmax, threshold, field = (
        Reference.calibrate(outputs, labels, model="density", classes=("healthy", "cancer"), decide=decide)
        for decide in ("argmax", "cancer=0.13", labels)
    )
    again = "run `cpcmon calibrate` again with"
    for reference, setting, wanted in (
        (threshold, "cancer=0.13", None),
        (threshold, "cancer=0.130", None),
        (threshold, "cancer=0.2", f"'cancer=0.2': {again} --decide-at cancer=0.2, or set decide to cancer=0.13"),
        (threshold, "argmax", f"'argmax': {again} --decide argmax, or set decide to cancer=0.13"),
        (threshold, "field", f"'field': {again} --decide-field FIELD, or set decide to cancer=0.13"),
        (threshold, "cyst=0.2", "expected one of the classes healthy and cancer, found 'cyst'"),
        (argmax, "argmax", None),
        (argmax, "cancer=0.5", "expected 'argmax', as the reference was made, found 'cancer=0.5'"),
    ):
        file = write(f"    decide: {setting}\n", other_reference=reference)
        if wanted is None:
            assert load_models(read_config(file))
        else:
            (line, _) = _error_of(file)
            assert line.startswith("7: models[0].decide: expected ")
            assert wanted in line
    for setting in ("", "    decide: field\n"):
        (line, _) = _error_of(write(setting, other_reference=field))
        assert "sources[0].fields.predicted: expected the field of the decision, found none" in line


def test_what_the_reference_cannot_estimate_is_reported(write: Write) -> None:
    """Each at its line: metrics, classes, and drops under the reference's own value."""
    more = """\
    performance: [sensitivity, auroc]
    watch_classes: [a, d]
    alerts:
      - {name: one, metric: auroc, below: 0.5}
      - {name: two, metric: sensitivity, class: d, below: 0.5}
      - {name: three, metric: sensitivity, class: a, drop: 0.99}
      - {name: four, metric: f1, drop: 0.05}
"""
    reported = _error_of(write(more))
    classes = "expected a class of the reference: a, b, c, found 'd'"
    assert reported[:4] == [
        "7: models[0].performance: expected auroc only for two classes, found a reference with 3",
        f"8: models[0].watch_classes[1]: {classes}",
        "10: models[0].alerts[0].metric: expected auroc only for two classes, found a reference with 3",
        f"11: models[0].alerts[1].class: {classes}",
    ]
    assert reported[4].startswith(
        "12: models[0].alerts[2].drop: expected less than the reference's sensitivity of a, 0."
    )
    assert reported[5:] == [" 5 problems"]


def test_a_reference_of_an_older_version_estimates_accuracy_only(write: Write, reference: Reference) -> None:
    """What needs more is reported, with what to do; without it, the reference fits."""
    file = write("    performance: [f1]\n    watch_classes: [a]\n    alerts: [{name: low, metric: f1, below: 0.5}]\n")
    older = replace(reference, calibration=replace(reference.calibration, performance=None))
    wanted = "expected a reference that estimates more than accuracy, found one of an older cpcmon: calibrate again"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reference, "load", lambda _path: older)
        assert _error_of(file) == [
            f"7: models[0].performance: {wanted}",
            f"8: models[0].watch_classes: {wanted}",
            f"9: models[0].alerts[0].metric: {wanted}",
            " 3 problems",
        ]
        assert load_models(read_config(write()))


def test_many_classes_are_watched_by_name(write: Write) -> None:
    """An alert on another class is reported; so are a class mix of too many, and a class with hardly any cases."""
    random, names = np.random.default_rng(3), [f"c{one}" for one in range(51)]
    labels = np.append(random.integers(0, 50, 1200), 50)
    logits = random.normal(size=(1201, 51))
    logits[np.arange(1201), labels] += 4.0
    outputs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    made = Reference.calibrate(outputs, labels, model="density", version="2.1", classes=names)
    file = write(
        "    performance: [class_mix]\n    watch_classes: [c1, c50]\n    alerts:\n"
        "      - {name: one, metric: sensitivity, class: c1, below: 0.1}\n"
        "      - {name: two, metric: sensitivity, class: c2, below: 0.1}\n"
        "      - {name: three, metric: sensitivity, class: c50, below: 0.1}\n"
    )
    made.save(file.parent / "density.ref")
    assert _error_of(file) == [
        "7: models[0].performance: expected class_mix only for at most 50 classes, found a reference with 51",
        (
            "11: models[0].alerts[1].class: expected a class of watch_classes, since the model has more than 20,"
            " found 'c2': add it to watch_classes"
        ),
        (
            "12: models[0].alerts[2].metric: expected a metric with at least 10 cases in the reference,"
            " found one with fewer: it could never fire"
        ),
        " 3 problems",
    ]
    (model,) = read_config(file).models
    assert {one.of_class for one in model.targets(made.classes)} == {1, 50, None}
    assert [one.of_class for one in model.exported(made.classes)] == [1, 50]
    # The forecast counts what is measured only for those who ask for it.
    plain = replace(model, performance=(), watch_classes=(), alerts=())
    measured, without = (dict(window_costs([(one, made)]))["density"] for one in (model, plain))
    assert measured - without >= 8 * 2 * 51


def test_windows_that_may_take_too_much_memory_are_rejected(write: Write) -> None:
    """The sentence says what each model costs and what to change."""
    file = write("    segment_by: [site]\n    window: {records: 100000}\n    segments: {limit: 500}\n")
    (reported, count) = _error_of(file)
    assert reported.startswith("1: limits.window_bytes: expected at least ")
    assert "the size of all windows when full (density " in reported
    assert reported.endswith(
        "found 512MiB: raise it, or lower window.records, window.most_records or segments.limit of a model"
    )
    assert count == " 1 problem"
    file.write_text(file.read_text() + "limits: {window_bytes: 8GiB}\n")
    assert load_models(read_config(file))


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ("{class_columns: [p1, p2]}", "fields.class_columns: expected 3 for model density, found p1, p2"),
        ("{segments: {scanner: x}}", "fields.segments: expected segment fields of a model, found scanner"),
        ("{id: site}", "fields.segments: expected fields other than the id, found the id for site"),
        ("{probs: a, time: a.b}", "fields: expected fields that do not contain each other, found a and a.b"),
    ],
)
def test_fields_that_do_not_fit_the_models_are_reported(write: Write, fields: str, reported: str) -> None:
    """At the source, in its line."""
    base = BASE.replace("path: inbox}", f"path: inbox, fields: {fields}}}")
    (first, _) = _error_of(write("    segment_by: [site]\n", base))
    assert first.startswith(f"3: sources[0].{reported}")
