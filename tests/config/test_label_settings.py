"""Sources of labels, and the settings `labels` and `audit` of a model."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.config.config import AuditOptions, LabelOptions
from monitor.config.reading import read_config
from monitor.config.references import load_models
from monitor.errors import ConfigError
from monitor.records.record_schema import Carries, RecordFields
from tests.config.conftest import BASE, Write
from tests.config.test_sample import sample
from tests.conftest import Ran

TRUTH = "  - {name: truth, type: directory, path: labels, carries: labels"
WITH_LABELS = BASE.replace("models:", f"{TRUTH}}}\nmodels:")
STREAM = "  - {name: stream, type: kafka, brokers: ['kafka:9092'], group: cpcmon, topics: [predictions]}\n"
KAFKA = """\
storage: {path: state}
sources:
  - {name: stream, type: kafka, brokers: ['kafka:9092'], group: cpcmon, topics: [predictions]}
  - {name: truth, type: kafka, brokers: ['kafka:9092'], group: GROUP, topics: [labels], carries: labels}
models:
  - {name: density, reference: density.ref, window: {age: 7d}}
"""


def test_without_labels_nothing_is_kept(write: Write) -> None:
    """Labels are opt-in."""
    config = read_config(write())
    assert (config.models[0].labels, config.models[0].audit, config.sources[0].carries) == (None, None, "predictions")


@pytest.mark.parametrize(
    ("base", "more"),
    [(WITH_LABELS, ""), (BASE, "    labels:\n"), (BASE, "    audit: {share: 0.5}\n")],
    ids=["a source", "labels", "audit"],
)
def test_a_source_or_a_section_turns_labels_on(write: Write, base: str, more: str) -> None:
    """With the defaults."""
    assert read_config(write(more, base)).models[0].labels == LabelOptions(30 * 86400.0, 1_000_000, 0.0)


def test_every_setting_arrives(write: Write) -> None:
    source = f"{TRUTH}, models: [density], fields: {{id: uid, label: truth, time: signed, time_unit: ms}}}}\nmodels:"
    more = "    labels: {horizon: 90d, most: 5000, delay: 14d}\n    audit: {share: 0.02, keep_ids: true}\n"
    config = read_config(write(more, BASE.replace("models:", source)))
    (model,), (_, truth) = config.models, config.sources
    assert model.labels == LabelOptions(90 * 86400.0, 5000, 14 * 86400.0)
    assert model.audit == AuditOptions(0.02, keep_ids=True)
    assert truth.carries is Carries.LABELS
    fields = truth.fields
    assert (fields.id, fields.label, fields.time, fields.version) == ("uid", "truth", "signed", None)
    assert (truth.feeds("density"), truth.labels("density"), truth.labels("other")) == (False, True, False)
    assert config.remarks == ()
    assert load_models(config)


def test_a_source_of_labels_has_the_default_fields(write: Write) -> None:
    (_, truth) = read_config(write(base=WITH_LABELS)).sources
    assert truth.fields == RecordFields(version=None, label="label")


def test_the_label_is_not_the_id(write: Write) -> None:
    file = write(base=BASE.replace("models:", f"{TRUTH}, fields: {{label: id}}}}\nmodels:"))
    with pytest.raises(
        ConfigError, match=r"sources\[1\]\.fields\.label: expected a field other than that of the id, found 'id'"
    ):
        load_models(read_config(file))


@pytest.mark.parametrize(("key", "more"), [("labels", "    labels:\n"), ("audit", "    audit: {share: 0.5}\n")])
def test_labels_that_no_source_has_are_a_remark(write: Write, key: str, more: str) -> None:
    (remark,) = read_config(write(more)).remarks
    assert remark.startswith(f"models[0].{key}: no source has labels of model density")


def test_replicas_that_share_labels_are_a_remark(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless each has a group of its own, or the predictions are not shared."""
    monkeypatch.setenv("HOSTNAME", "cpcmon-0")
    for group in ("cpcmon", "labels"):
        (remark,) = read_config(write(base=KAFKA.replace("GROUP", group))).remarks
        assert remark.startswith("sources[1].group: replicas share the predictions of model density")
    own = read_config(write(base=KAFKA.replace("GROUP", "cpcmon-labels-$HOSTNAME")))
    assert (own.remarks, own.is_shared("density")) == ((), True)
    assert "as group cpcmon-labels-cpcmon-0" in own.sources[1].options.describe()
    monkeypatch.delenv("HOSTNAME")
    assert (
        read_config(write(base=KAFKA.replace("GROUP", "$HOSTNAME")))
        .sources[1]
        .options.describe()
        .endswith(f"as group {os.uname().nodename}")
    )
    files = "  - {name: stream, type: directory, path: inbox}\n"
    alone = read_config(write(base=KAFKA.replace(STREAM, files).replace("GROUP", "labels")))
    assert (alone.remarks, alone.is_shared("density")) == ((), False)


def test_a_model_without_a_reference_gets_labels_from_no_source(write: Write) -> None:
    """Beside others it may be in a source of all models."""
    assert read_config(write("  - {name: other}\n", WITH_LABELS)).models[1].reference is None
    with pytest.raises(ConfigError, match=r"sources\[1\]\.models: expected labels of models with a reference"):
        read_config(write(base=WITH_LABELS.replace("    reference: density.ref\n", "")))


def test_check_config_counts_kept_predictions(cpcmon: Callable[..., Ran], write: Write) -> None:
    plain = cpcmon("check-config", write())
    ran = cpcmon("check-config", write("    audit: {share: 0.02}\n    labels: {most: 2000000}\n", WITH_LABELS))
    assert (ran.code, ran.err) == (0, "")
    for text in (
        "  keeps at most 2,000,000 predictions for labels, for 30d; audits 2% of all records",
        "source truth: labels from directory ",
        "all labels, and predictions kept for them: 480.0 MB at most, in addition",
        "with all ids and labels too",
    ):
        assert text in ran.out
        assert text not in plain.out


def test_check_config_says_what_labels_cost_per_partition(cpcmon: Callable[..., Ran], write: Write) -> None:
    ran = cpcmon("check-config", write(base=KAFKA.replace("GROUP", "labels")))
    assert ran.out.count("per partition assigned to this process") == 1
    assert "140.0 MB of predictions kept for labels" in ran.out


def test_a_sample_of_labels_is_described(cpcmon: Callable[..., Ran], write: Write, tmp_path: Path) -> None:
    """In the folder of its source, and elsewhere; a sample of predictions is read as such."""
    config = write(base=WITH_LABELS)
    (tmp_path / "labels").mkdir()
    records = [{"id": f"ZZPATIENT-{row % 90}", "label": "abc"[row % 3], "time": 1.7e9} for row in range(99)]
    records.append({"id": "x", "label": "d", "time": 1.7e9})
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    for file in (tmp_path / "labels" / "one.jsonl", tmp_path / "one.jsonl"):
        file.write_text(text, encoding="utf-8")
        ran = cpcmon("check-config", "--sample", file, config)
        assert (ran.code, ran.err) == (0, "")
        assert "as source truth: 100 labels read, 99 accepted, 1 rejected" in ran.out
        assert "rejected as unknown_label: 1, such as record 100: expected one of the classes a, b, c" in ran.out
        assert "model density: 99 labels of 90 ids" in ran.out
        assert "classes: a (33), b (33), c (33)" in ran.out
        assert "as source results" not in ran.out
        assert "ZZPATIENT" not in ran.out
    ran = cpcmon("check-config", "--sample", sample(tmp_path), config)
    assert (ran.code, "as source truth" in ran.out) == (0, False)
    table = tmp_path / "one.csv"
    table.write_text("id,label\nx,a\n", encoding="utf-8")
    ran = cpcmon("check-config", "--sample", table, config)
    assert (ran.code, "as source truth: 1 label read" in ran.out) == (0, True)
