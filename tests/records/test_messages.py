"""The message decoder: forms, times, locations of rejected records."""

import json
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from monitor.records.id_hash import hash_ids
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields, TimeUnit
from monitor.records.rejections import Reason
from tests.records.messages import FIRST_OFFSET, STAMPED, message, receive, receiver
from tests.records.streams import GOOD, KEY, MODEL, RECORD, reasons_of, vectors_of

BAD = RECORD | {"probs": [0.7, 0.2]}
OTHER = RECORD | {"id": "study-2", "probs": [0, 0, 1]}
TWO = (MODEL, ModelFormat("chest", ("well", "ill"), OutputKind.LOGITS, ("scanner",)))
TWO_VECTORS = np.array([GOOD, [0, 0, 1]], dtype=np.float32).tolist()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(message([RECORD, OTHER]), id="array"),
        pytest.param(message([RECORD, OTHER], indent=2), id="indented array"),
        pytest.param(message({"records": [RECORD, OTHER]}), id="records"),
        pytest.param(message({"records": [RECORD, OTHER]}, indent=2), id="indented records"),
        pytest.param(b'{"\\u0072ecords": ' + message([RECORD, OTHER]) + b"}", id="a name in escapes"),
        pytest.param(message(RECORD) + b"\n" + message(OTHER), id="lines"),
        pytest.param(message(RECORD) + b" \r\n\r\n " + message(OTHER) + b"\r\n", id="lines of another system"),
        pytest.param(b"\xef\xbb\xbf" + message([RECORD, OTHER]) + b"\n", id="byte-order mark"),
        pytest.param(b"\n [ " + message(RECORD) + b"\n,\n" + message(OTHER) + b" ]\n\t", id="white space"),
    ],
)
def test_a_message_may_hold_many_records(value: bytes) -> None:
    decoded = receive(value)
    assert decoded.rows == 2
    assert vectors_of([decoded]).tolist() == TWO_VECTORS
    ids = decoded.models["density"].ids
    assert ids is not None
    assert ids.tolist() == hash_ids(["study-1", "study-2"], KEY).tolist()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(message(RECORD), id="one line"),
        pytest.param(message(RECORD, indent=2), id="indented"),
        pytest.param(message(RECORD, indent=2).replace(b"\n", b"\r\n"), id="indented on another system"),
        pytest.param(b"\xef\xbb\xbf" + message(RECORD) + b"\n", id="byte-order mark and newline"),
        pytest.param(message(RECORD | {"note": "Sjögren"}, ensure_ascii=False), id="letters"),
        pytest.param(message(RECORD | {"records": [1, 2]}), id="a field named records"),
        pytest.param(message(RECORD | {"probs_f32": "?"}), id="numbers twice"),
        pytest.param(message(RECORD | {"note": '}\n{"'}), id="text like the end of a line"),
    ],
)
def test_a_message_may_hold_one_record(value: bytes) -> None:
    """With any other fields."""
    for values in ((value,), (message(OTHER), value), (message([OTHER]), value)):
        decoded = receive(*values)
        assert (decoded.rows, decoded.accepted) == (len(values), len(values))
        assert vectors_of([decoded])[-1].tolist() == TWO_VECTORS[0]


@pytest.mark.parametrize("value", [b"", b" \n\t", b"\xef\xbb\xbf"])
def test_an_empty_message_is_rejected(value: bytes) -> None:
    decoded = receive(message(RECORD), value, message(RECORD))
    assert reasons_of([decoded]) == {("", "empty"): 1}
    assert (decoded.accepted, decoded.pointers[0].offset) == (2, FIRST_OFFSET + 1)


@pytest.mark.parametrize("value", [b"[]", b'{"records": []}', b'{"model": "density", "records": [ ]}'])
def test_an_empty_batch_is_ignored(value: bytes) -> None:
    decoded = receive(value, message(RECORD), value, message(BAD))
    assert (decoded.ignored, decoded.accepted, decoded.rows) == (2, 1, 4)
    assert [(one.offset, one.number) for one in decoded.pointers] == [(FIRST_OFFSET + 3, 1)]


def test_records_are_in_the_order_of_the_messages() -> None:
    """In any form."""
    ids = [f"study-{number}" for number in range(12)]
    records = [RECORD | {"id": name} for name in ids]
    packed = {"probs_f32": "AACAPwAAAAAAAAAA", "id": ids[8]}
    values = [
        message(records[0]),
        message(records[1:3]),
        message(records[3], indent=1),
        message({"records": records[4:6]}),
        b"\n".join(map(message, records[6:8])),
        message(packed),
        message([packed | {"id": ids[9]}, records[10]]),
        message(records[11]),
    ]
    one = receive(*values).models["density"]
    assert one.ids is not None
    assert one.ids.tolist() == hash_ids(ids, KEY).tolist()


def test_records_without_a_time_have_that_of_their_message() -> None:
    """Also with rejected and ignored records, and several models."""
    plain: dict[str, Any] = {"model": "density", "probs": GOOD}
    chest: dict[str, Any] = {"model": "chest", "logits": [1, 2]}
    decoded = receive(
        message(plain),
        message([]),
        message([plain | {"time": 5}, plain | {"probs": [2, 2, 2]}, plain, chest]),
        message(chest | {"time": None}),
        b"oops",
        message({"model": "chest", "records": [{"logits": [1]}, {"logits": [1, 1]}]}),
        message(plain | {"time": -1}),
        message(plain),
        decoder=receiver(*TWO),
    )
    at = {name: (one.at - STAMPED).tolist() for name, one in decoded.models.items()}
    assert at == {"density": [0, 5 - STAMPED, 2, 7], "chest": [2, 3, 5]}


@pytest.mark.parametrize("size", [1, 100])
def test_records_among_thousands_of_bad_ones_have_the_time_of_their_message(size: int) -> None:
    records = [{"probs": GOOD if place % 3 else [0.9, 0.9, 0.9]} for place in range(9_000)]
    values = [message(records[first : first + size]) for first in range(0, len(records), size)]
    decoded = receive(*values)
    wanted = [STAMPED + place // size for place in range(len(records)) if place % 3]
    assert decoded.models["density"].at.tolist() == wanted


def test_the_unit_of_times_in_records_is_not_that_of_messages() -> None:
    decoder = receiver(fields=RecordFields(time_unit=TimeUnit.NANOSECONDS))
    decoded = receive(message({"probs": GOOD}), message({"probs": GOOD, "time": 5e9}), decoder=decoder)
    assert decoded.models["density"].at.tolist() == [STAMPED, 5]


@pytest.mark.parametrize("stamp", [np.nan, -0.001, 1e12, np.inf])
def test_a_message_with_an_invalid_time_leaves_the_time_unknown(stamp: float) -> None:
    """The clock of a producer does not reject a record."""
    decoded = receive(message({"probs": GOOD}), message(RECORD), times=[stamp, stamp])
    at = decoded.models["density"].at
    assert np.isnan(at[0])
    assert at[1] == RECORD["time"]


def test_fields_of_a_batch_are_defaults_of_its_records() -> None:
    """A value of the record overrides them, even null. A shared id and unknown fields are ignored."""
    shared = {"model": "density", "version": "7", "site": "A", "time": 50, "id": "batch", "note": {"a": 1}}
    records = [{"probs": GOOD}, {"probs": GOOD, "site": "B", "version": None, "time": 60, "id": "x"}, {}, 5]
    for value in (shared | {"records": records}, {"records": records} | shared):
        decoded = receive(message(value), message({"records": [{"probs": GOOD}]}))
        one = decoded.models["density"]
        assert reasons_of([decoded]) == {("density", "missing_field"): 1, ("", "wrong_type"): 1}
        assert one.at.tolist() == [50, 60, STAMPED + 1]
        assert one.fields["site"].texts() == ["A", "B", ""]
        assert one.versions is not None
        assert one.versions.texts() == ["7", "", ""]
        ids = decoded.models["density"].ids
        assert ids is not None
        assert ids.tolist() == [0, *hash_ids(["x"], KEY).tolist(), 0]


def test_a_field_that_holds_the_id_too_is_not_shared() -> None:
    """Otherwise all records would have one id, and count once."""
    fields = RecordFields(id="meta.id", version="meta.version")
    value = {"meta": {"id": "batch", "version": "7"}, "records": [{"probs": GOOD}, {"probs": GOOD}]}
    one = receive(message(value), decoder=receiver(fields=fields)).models["density"]
    assert (len(one), one.ids, one.versions) == (2, None, None)


def test_nested_batches_are_not_read() -> None:
    inner = {"records": [RECORD]}
    for value in ({"records": inner}, {"records": [inner]}, [inner], {"records": None}, {"records": "x"}):
        assert reasons_of([receive(message(value))]) == {("density", "missing_field"): 1}


def test_one_bad_record_does_not_reject_others() -> None:
    """Also with NaN, or with invalid UTF-8."""
    nan = RECORD | {"probs": [float("nan"), 0, 1]}
    for value in (message([RECORD, nan, OTHER]), message({"version": "3", "records": [RECORD, nan, OTHER]})):
        decoded = receive(value)
        assert (decoded.accepted, reasons_of([decoded])) == (2, {("density", "not_finite"): 1})
        assert decoded.pointers[0].number == 2
    invalid = message([RECORD, RECORD | {"note": "?"}, OTHER]).replace(b'"?"', b'"\xff"')
    assert reasons_of([receive(invalid)]) == {("", "bad_encoding"): 1}


def test_a_truncated_batch_is_rejected_as_a_whole() -> None:
    for value in (message([RECORD, OTHER]), message({"records": [RECORD, OTHER]}), message(RECORD, indent=1)):
        decoded = receive(message(RECORD), value[:-3], message(RECORD))
        assert (decoded.accepted, reasons_of([decoded])) == (2, {("", "bad_json"): 1})
        assert (decoded.pointers[0].offset, decoded.pointers[0].number) == (FIRST_OFFSET + 1, 1)


@pytest.mark.parametrize("keep_raw", [False, True])
def test_a_pointer_has_the_message_and_the_position_in_it(keep_raw: bool) -> None:  # noqa: FBT001 - a variant
    """Length and hash of the whole message, the shape of the record, and no content."""
    values = [message(RECORD), message([RECORD, BAD, RECORD, BAD]), message(BAD), b"\n".join([message(BAD)] * 2)]
    decoded = receive(*values, decoder=receiver(keep_raw=keep_raw))
    places = [((one.offset or 0) - FIRST_OFFSET, one.number) for one in decoded.pointers]
    assert places == [(1, 2), (1, 4), (2, 1), (3, 1), (3, 2)]
    for (place, _), pointer in zip(places, decoded.pointers, strict=True):
        assert pointer.reason is Reason.WRONG_K
        assert pointer.length == len(values[place])
        assert pointer.digest == blake2b(values[place], digest_size=8, key=KEY).hexdigest()
        assert pointer.shape == "probs: list[2], model: str[7], version: str[3], id: str[7], time: float, site: str[1]"
        assert pointer.raw == (json.dumps(BAD).encode() if keep_raw else None)


def test_the_payload_of_a_rejected_message_is_truncated() -> None:
    value = message(BAD | {"note": "x" * 10_000})
    for one in (value, b"[" + value + b"]"):
        (pointer,) = receive(one, decoder=receiver(keep_raw=True)).pointers
        assert pointer.raw is not None
        assert len(pointer.raw) == 4096
        assert pointer.length == len(one)


def test_a_message_that_is_too_large_is_not_parsed() -> None:
    """Other messages are."""
    large, small = message(RECORD | {"note": "x" * 1_000}), message(RECORD)
    decoder = receiver(max_message_bytes=len(large) - 1)
    decoded = receive(small, large, small, b"oops", decoder=decoder)
    assert reasons_of([decoded]) == {("", "too_large"): 1, ("", "bad_json"): 1}
    assert (decoded.accepted, decoded.pointers[0].offset) == (2, FIRST_OFFSET + 1)
    assert receive(large, decoder=receiver(max_message_bytes=len(large))).accepted == 1


def test_a_topic_of_garbage_is_rejected_message_by_message() -> None:
    """Unlike a file, it is never given up."""
    decoder = receiver()
    for _ in range(3):
        decoded = receive(*[b"oops"] * 1_000, message(RECORD), decoder=decoder)
        assert (decoded.accepted, reasons_of([decoded])) == (1, {("", "bad_json"): 1_000})


def test_an_empty_poll_has_no_records() -> None:
    decoded = receive()
    assert (decoded.rows, decoded.models, decoded.pointers) == (0, {}, ())


def test_messages_cause_hints() -> None:
    percent = message(RECORD | {"probs": [70, 20, 10]})
    assert receive(*[percent] * 100).hints == {"density": ("looks like percentages: set kind: percent",)}


def test_models_with_different_outputs_are_distinguished() -> None:
    """Batches are found even if no output field is common to all models."""
    chest = {"model": "chest", "logits": [0, 0]}
    values = [message(RECORD), message({"records": [RECORD, chest]}), message(chest), message([chest])]
    values.append(message({"model": "chest", "records": [{"logits": [1, 1]}, {"probs": GOOD}]}))
    decoded = receive(*values, *[message(chest)] * 3, decoder=receiver(*TWO))
    assert {name: len(one) for name, one in decoded.models.items()} == {"density": 2, "chest": 7}
    assert reasons_of([decoded]) == {("chest", "missing_field"): 1}
    for batch in ({"records": [chest, chest]}, {"model": "chest", "logits_f32": "AAAAAAAAAAAAAAAAAAAAAA=="}):
        decoded = receive(message(RECORD), message(batch), message(chest), decoder=receiver(*TWO))
        assert {name: len(one) for name, one in decoded.models.items()} == {"density": 1, "chest": 3}


def test_nested_fields_and_class_columns_are_found_in_batches() -> None:
    """Shared objects apply as a whole."""
    nested = RecordFields(probs="prediction.scores", model="meta.model", segments={"site": "meta.site"})
    record = {"prediction": {"scores": GOOD}}
    value = {"meta": {"model": "density", "site": "B"}, "prediction": {}, "records": [record, record]}
    decoded = receive(message(value), message([record]), decoder=receiver(fields=nested))
    assert decoded.models["density"].fields["site"].texts() == ["B", "B", ""]
    columns = {"p_cat": 0.7, "p_dog": 0.2, "p_owl": 0.1}
    decoder = receiver(fields=RecordFields(class_columns=("p_*",)))
    decoded = receive(message({"records": [columns]}), message(columns), message([columns]), decoder=decoder)
    assert vectors_of([decoded]).tolist() == [TWO_VECTORS[0]] * 3
