"""Packed numbers in messages: base64 of little-endian float32, one record or many."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monitor.records.id_hash import hash_ids
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields
from tests.records.messages import FIRST_OFFSET, STAMPED, message, receive, receiver
from tests.records.streams import CLASSES, GOOD, KEY, MODEL, RECORD, reasons_of, vectors_of

ROWS = [GOOD, [0.25, 0.5, 0.25], [0, 0, 1]]


def packed(rows: Any) -> str:
    """Return packed numbers."""
    return base64.b64encode(np.array(rows, dtype="<f4").tobytes()).decode()


def _batch(**others: Any) -> dict[str, Any]:
    return {"probs_f32": packed(ROWS), **others}


def _judged_as_lists(kind: OutputKind, rows: Any) -> Any:
    field = {OutputKind.LOGITS: "logits", OutputKind.SCORE: "score"}.get(kind, "probs")
    singles = np.array(rows, dtype=np.float32).astype(float).tolist()
    records = [{field: row[0] if kind is OutputKind.SCORE else row} for row in singles]
    return vectors_of([receive(message(records), decoder=_of_kind(kind))])


def _of_kind(kind: OutputKind) -> Any:
    return receiver(ModelFormat("density", CLASSES[:2] if kind is OutputKind.SCORE else CLASSES, kind))


@pytest.mark.parametrize(
    ("kind", "field", "rows"),
    [
        pytest.param(OutputKind.PROBS, "probs_f32", ROWS, id="probs"),
        pytest.param(OutputKind.LOGITS, "logits_f32", [[3, 2, -1], [0, 0, 0]], id="logits"),
        pytest.param(OutputKind.PERCENT, "probs_f32", [[70, 20, 10], [0, 50, 50]], id="percent"),
        pytest.param(OutputKind.LOGPROB, "probs_f32", [np.log(GOOD), [0, -np.inf, -np.inf]], id="logprob"),
        pytest.param(OutputKind.SCORE, "score_f32", [[0.25], [0.75]], id="score"),
    ],
)
def test_packed_numbers_equal_those_of_a_list(kind: OutputKind, field: str, rows: Any) -> None:
    """In a batch, per record, and in arrays; of any kind."""
    if kind is OutputKind.LOGPROB:
        expected = np.exp(np.array(rows, dtype=np.float32).astype(float))
        expected = (expected / expected.sum(axis=1, keepdims=True)).astype(np.float32)
    else:
        expected = _judged_as_lists(kind, rows)
    one_by_one = [{field: packed(row)} for row in rows]
    for values in (
        [{field: packed(rows)}],
        one_by_one,
        [one_by_one],
        [{"records": one_by_one}],
        [{"records": [{field: packed(rows[:1])}, {field: packed(rows[1:])}]}],
    ):
        decoded = receive(*map(message, values), decoder=_of_kind(kind))
        assert vectors_of([decoded]).tolist() == expected.tolist()
        assert decoded.rejected.total() == 0


def test_other_fields_are_columns_or_shared() -> None:
    decoder = receiver(fields=RecordFields(predicted="top"))
    times = [5, None, "1970-01-01T00:00:07Z"]
    batch = _batch(id=["a", 7, None], time=times, version="2", site=["A", None, "B"], top=["cat", "cat", 2])
    decoded = receive(message({}), message(batch), message(_batch(site="C", time=9)), decoder=decoder)
    one = decoded.models["density"]
    assert one.at.tolist() == [5, STAMPED + 1, 7, 9, 9, 9]
    assert one.fields["site"].texts() == ["A", "", "B", "C", "C", "C"]
    assert one.versions is not None
    assert one.versions.texts() == ["2"] * 3 + [""] * 3
    assert one.ids is not None
    assert one.ids.tolist() == [*hash_ids(["a", "7"], KEY).tolist(), 0, 0, 0, 0]
    assert one.argmax_mismatches == 1


def test_the_group_of_a_message_is_that_of_its_records() -> None:
    """As when an exam is one message: in a list, packed, and in a packed list."""
    decoder, (first, other) = receiver(replace(MODEL, group_by="exam")), hash_ids(["e1", "e2"], KEY).tolist()
    listed = {"exam": "e1", "records": [RECORD, RECORD | {"exam": "e2"}, RECORD | {"exam": None}]}
    values = (listed, _batch(exam="e1", site="A"), {"exam": "e2", "records": [_batch(), _batch(exam=["e1", 7, None])]})
    one = receive(*map(message, values), decoder=decoder).models["density"]
    assert one.groups is not None
    (seven,) = hash_ids(["7"], KEY).tolist()
    assert one.groups.tolist() == [first, other, 0, *[first] * 3, *[other] * 3, first, seven, 0]


def test_fields_of_a_batch_are_defaults_of_packed_records() -> None:
    value = {"site": "A", "records": [_batch(), {"probs_f32": packed(GOOD), "site": "B"}, RECORD]}
    one = receive(message(value)).models["density"]
    assert one.fields["site"].texts() == ["A", "A", "A", "B", "A"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param({"probs_f32": "?" * 16}, "bad_base64", id="no base64"),
        pytest.param({"probs_f32": packed(GOOD)[:-1]}, "bad_base64", id="base64 cut short"),
        pytest.param({"probs_f32": packed(GOOD) + "\n"}, "bad_base64", id="base64 on lines"),
        pytest.param({"probs_f32": packed(GOOD) + "é"}, "bad_base64", id="letters"),
        pytest.param({"probs_f32": ""}, "empty", id="nothing"),
        pytest.param({"probs_f32": packed([*GOOD, 1])}, "wrong_k", id="four numbers"),
        pytest.param({"probs_f32": base64.b64encode(b"12345").decode()}, "wrong_k", id="half a number"),
        pytest.param({"probs_f32": base64.b64encode(bytes(13)).decode()}, "wrong_k", id="a byte more"),
        pytest.param({"probs_f32": GOOD}, "wrong_type", id="a list"),
        pytest.param({"probs_f32": None}, "wrong_type", id="null"),
        pytest.param({"probs_f32": [packed(GOOD)]}, "wrong_type", id="a list of texts"),
        pytest.param(_batch(id=["a", "b"]), "bad_batch", id="two ids of three"),
        pytest.param(_batch(time=[]), "bad_batch", id="no times"),
        pytest.param(_batch(site=["A"] * 4), "bad_batch", id="four sites of three"),
        pytest.param({"probs_f32": packed(GOOD), "version": ["1", "2"]}, "bad_batch", id="two versions of one"),
    ],
)
def test_an_inconsistent_batch_is_rejected_as_a_whole(value: dict[str, Any], reason: str) -> None:
    """Other batches are not affected."""
    decoded = receive(message(_batch()), message(value), message(_batch(id=["a", "b", "c"])), message(RECORD))
    assert reasons_of([decoded]) == {("density", reason): 1}
    assert (decoded.accepted, decoded.rows) == (7, 8)
    (pointer,) = decoded.pointers
    assert (pointer.offset, pointer.number, pointer.length) == (FIRST_OFFSET + 1, 1, len(message(value)))


def test_records_of_a_batch_are_validated_separately() -> None:
    """Each has its own position in the message."""
    rows = [GOOD, [2, 2, 2], [np.nan, 0, 1], GOOD, GOOD, GOOD, GOOD]
    batch = {
        "probs_f32": packed(rows),
        "id": ["a", "b", "c", ["d"], 1.5, "f", "g"],
        "site": ["A", "A", "A", "A", "A", "Jane Doe!", "A"],
        "time": [1, 2, 3, 4, 5, 6, True],
    }
    decoded = receive(message(RECORD), message(batch))
    assert decoded.models["density"].at.tolist() == [RECORD["time"], 1]
    found = [(pointer.number, str(pointer.reason)) for pointer in decoded.pointers]
    assert found == [
        (2, "above_one"),
        (3, "not_finite"),
        (4, "wrong_type"),
        (5, "wrong_type"),
        (6, "bad_segment"),
        (7, "bad_timestamp"),
    ]


def test_any_float_is_read_without_a_warning() -> None:
    """Also signalling NaNs and huge values."""
    numbers = np.array([0x7FA00000, 0xFFC00001, 0x7F7FFFFF], dtype="<u4")
    value = {"probs_f32": base64.b64encode(numbers.tobytes()).decode()}
    assert reasons_of([receive(message(value))]) == {("density", "not_finite"): 1}


def test_the_model_of_a_batch_is_named_once() -> None:
    """A list of names is invalid; the packed field is that of the batch's model."""
    models = (MODEL, ModelFormat("chest", ("well", "ill"), OutputKind.LOGITS))
    logits = packed([[0, 0], [1, 1]])
    decoded = receive(
        message(_batch(model="density")),
        message({"model": "chest", "logits_f32": logits}),
        message({"model": "chest", "probs_f32": logits}),
        message(_batch(model=["density"] * 3)),
        message(_batch()),
        message(_batch(model="other")),
        decoder=receiver(*models),
    )
    assert {name: len(one) for name, one in decoded.models.items()} == {"density": 3, "chest": 2}
    assert reasons_of([decoded]) == {("chest", "missing_field"): 1, ("", "unknown_model"): 2, ("", "missing_field"): 1}


def test_packed_numbers_are_in_the_field_of_the_vector() -> None:
    """Nested names included; with one field per class there is no such field."""
    decoder = receiver(fields=RecordFields(probs="out.scores"))
    assert receive(message({"out": {"scores_f32": packed(ROWS)}}), decoder=decoder).accepted == 3
    decoder = receiver(fields=RecordFields(class_columns=("p_*",)))
    assert reasons_of([receive(message(_batch()), decoder=decoder)]) == {("density", "missing_field"): 1}


def test_nan_rejects_one_record_of_a_batch() -> None:
    """Python writes NaN into JSON."""
    decoded = receive(message(_batch(time=[1, float("nan"), 3])))
    assert reasons_of([decoded]) == {("density", "bad_timestamp"): 1}
    assert decoded.models["density"].at.tolist() == [1, 3]
