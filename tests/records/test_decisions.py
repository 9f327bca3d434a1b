"""Decisions that records name: a class, null for a person, or a rejection."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.core.decisions import DecidedBy, Decision
from monitor.core.record_columns import REFERRED, Records
from monitor.errors import UsageError
from monitor.records.offline_files import offline_schema, read_file
from monitor.records.record_batch import Format
from monitor.records.record_schema import ModelFormat, RecordFields
from tests.records.messages import message, receive
from tests.records.streams import CLASSES, GOOD, MODEL, decode_file, decode_text, npz, reasons_of, stream, table, write

FIELDS = RecordFields(predicted="top")
MODEL_DECIDES = replace(MODEL, decision=Decision(DecidedBy.FIELD))
VALID: list[Any] = ["dog", 2, None, "1", 0]
DECIDED = [1, 2, REFERRED, 1, 0]
INVALID: list[Any] = ["emu", 3, -1, True, [1], {"a": 1}, 0.5, "", 10**30]


def decided_of(records: Records) -> list[int]:
    """Return the decisions."""
    return [] if records.decided is None else [int(one) for one in records.decided]


def test_a_decision_is_a_class_by_name_or_index_or_null() -> None:
    """Anything else is rejected; a decision that is missing is not one that is null."""
    lines = [{"probs": GOOD, "top": one} for one in (*VALID, *INVALID)]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, {"probs": GOOD}])
    decoded = decode_text(text, decoder=stream(MODEL_DECIDES, fields=FIELDS))
    assert decided_of(decoded.models["density"]) == DECIDED
    assert reasons_of([decoded]) == {("density", "unknown_class"): len(INVALID), ("density", "missing_field"): 1}
    assert decoded.models["density"].argmax_mismatches == 0
    assert decoded.pointers[0].expected == "a decision for one of the classes cat, dog, owl, or null"
    assert decoded.pointers[-1].expected == "the decision of the device"


def test_a_decision_may_be_nested_and_a_segment_too() -> None:
    fields = RecordFields(predicted="answer.class", segments={"site": "answer.class"})
    lines = [{"probs": GOOD, "answer": {"class": "dog"}}, {"probs": GOOD, "answer": {}}, {"probs": GOOD}]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    decoded = decode_text(text, decoder=stream(MODEL_DECIDES, fields=fields))
    assert decided_of(decoded.models["density"]) == [1]
    assert reasons_of([decoded]) == {("density", "missing_field"): 2}


def test_column_files_have_no_null_but_an_empty_cell_or_nan() -> None:
    texts = [{"probs": GOOD, "top": one} for one in ("dog", "2", None, "emu")]
    numbers = npz(probs=np.array([GOOD] * 4), top=np.array([1.0, 2.0, np.nan, 7.0]))
    contents = [(write(texts, Format.CSV), Format.CSV), (write(texts, Format.PARQUET), Format.PARQUET)]
    for content, format_ in [*contents, (numbers, Format.NPZ)]:
        blocks = decode_file(content, format_, stream(MODEL_DECIDES, fields=FIELDS))
        assert decided_of(blocks[0].models["density"]) == [1, 2, REFERRED]
        assert reasons_of(blocks) == {("density", "unknown_class"): 1}


def test_a_column_that_is_missing_is_missing_in_every_record() -> None:
    plain = [{"probs": GOOD}] * 2
    for content, format_ in [
        (write(plain, Format.CSV), Format.CSV),
        (npz(probs=np.array([GOOD] * 2)), Format.NPZ),
        (table({"probs": pa.array([GOOD] * 2)}), Format.PARQUET),
    ]:
        blocks = decode_file(content, format_, stream(MODEL_DECIDES, fields=FIELDS))
        assert reasons_of(blocks) == {("density", "missing_field"): 2}


def test_packed_messages_name_decisions_in_a_list_or_one_for_all() -> None:
    packed = {"probs_f32": "AACAPwAAAAAAAAAA" * 3}
    decoder = stream(MODEL_DECIDES, fields=FIELDS)
    values = [packed | {"top": ["dog", None, 7]}, packed | {"top": "owl"}, packed]
    decoded = receive(*map(message, values), decoder=decoder)
    assert decided_of(decoded.models["density"]) == [1, REFERRED, 2, 2, 2]
    assert reasons_of([decoded]) == {("density", "unknown_class"): 1, ("density", "missing_field"): 3}


def test_at_a_threshold_the_named_class_is_compared_with_the_decided_one() -> None:
    model = ModelFormat("density", ("well", "ill"), decision=Decision.at(1, 0.3))
    named = [("ill", 0.3), ("well", 0.3), ("well", 0.2), ("ill", 0.2), ("other", 0.2), (None, 0.9)]
    lines = [{"probs": [1 - p, p]} | ({} if top is None else {"top": top}) for top, p in named]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    records = decode_text(text, decoder=stream(model, fields=FIELDS)).models["density"]
    assert (len(records), records.argmax_mismatches, records.decided) == (6, 3, None)


def test_records_that_decide_need_the_field() -> None:
    with pytest.raises(
        UsageError, match=r"fields\.predicted: expected the field .*, found none, and the records of .*"
    ):
        stream(MODEL_DECIDES)


def test_offline_files_leave_out_what_was_referred_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [{"probs": GOOD, "top": one, "label": "cat"} for one in VALID]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for classes in (CLASSES, None):
        decoded = read_file(path, offline_schema(label_field=None, classes=classes, decision_field="top"))
        # Without names, a name is no decision.
        wanted = ([1, 2, 1, 0], 1) if classes else ([2, 1, 0], 1)
        assert (decided_of(decoded.records), decoded.referred) == wanted
        assert decoded.rejections.total == (0 if classes else 1)
