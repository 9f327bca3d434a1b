"""No message quotes a record: a record may name a patient, and messages end up in logs and tickets."""

import json
from pathlib import Path

import pytest

from monitor.errors import CpcmonError
from monitor.records.offline import offline_schema
from monitor.records.record_schema import OutputKind, RecordSchema
from tests.records.record_files import read_bytes

MARKER = "ZZPATIENT"
VECTOR = offline_schema(classes=("cat", "dog"))
UNKNOWN = offline_schema()
LABELLED = offline_schema(label_field="label", classes=("cat", "dog"))
COLUMNS = offline_schema(class_columns=("prob_*",), label_field="label")
LISTED = offline_schema(class_columns=("prob_cat", "prob_dog"))
SCORE = offline_schema(OutputKind.SCORE)
LOGITS = offline_schema(OutputKind.LOGITS, "probs")

JSON_LINES = [
    pytest.param("ZZPATIENT", id="no JSON"),
    pytest.param("ZZPATIENT,0.5,0.5", id="CSV"),
    pytest.param('"ZZPATIENT"', id="a text"),
    pytest.param('["ZZPATIENT", 0.5]', id="an array"),
    pytest.param('[{"ZZPATIENT": [0.5, 0.5]}]', id="an array of objects"),
    pytest.param("{'name': 'ZZPATIENT'}", id="single quotes"),
    pytest.param("{ZZPATIENT: 1}", id="name without quotes"),
    pytest.param('{"name": ZZPATIENT}', id="value without quotes"),
    pytest.param('{"name": "ZZPATIENT', id="open quote"),
    pytest.param('{"name": "ZZPATIENT"', id="open brace"),
    pytest.param('{"name": "ZZPATIENT\\q", "probs": [0.5, 0.5]}', id="bad escape"),
    pytest.param('{"name": "ZZ\tPATIENT ZZPATIENT", "probs": [0.5, 0.5]}', id="control character"),
    pytest.param('{"probs": [0.5, 0.5]} ZZPATIENT', id="text behind"),
    pytest.param('{"probs": [0.5, 0.5]} {"name": "ZZPATIENT"}', id="object behind"),
    pytest.param('{"probs": [0.5, 0.5, "name": "ZZPATIENT"}', id="open bracket"),
    pytest.param('{"name": "ZZPATIENT"}', id="fields missing"),
    pytest.param('{"name": "ZZPATIENT", "label": "cat"}', id="vector missing"),
    pytest.param('{"name": "ZZPATIENT", "probs": [0.5, 0.5]}', id="label missing"),
    pytest.param('{"name": "ZZPATIENT", "prob_cat": 0.5}', id="column missing"),
    pytest.param('{"name": "ZZPATIENT", "probs": [0.5, 0.6], "label": "cat"}', id="bad sum"),
    pytest.param('{"name": "ZZPATIENT", "probs": [0.5, NaN], "label": "cat"}', id="NaN"),
    pytest.param('{"name": ["ZZPATIENT", NaN], "probs": [0.5, 0.5], "label": "cat"}', id="NaN elsewhere"),
    pytest.param('{"name": "ZZPATIENT \\ud800", "probs": [0.5, 0.5]}', id="surrogate"),
    pytest.param('{"probs": "ZZPATIENT"}', id="text for a vector"),
    pytest.param('{"probs": ["ZZPATIENT", 0.5]}', id="text for a number"),
    pytest.param('{"probs": [["ZZPATIENT"], 0.5]}', id="array for a number"),
    pytest.param('{"probs": [{"name": "ZZPATIENT"}, 0.5]}', id="object for a number"),
    pytest.param('{"probs": {"cat": "ZZPATIENT", "dog": 0.5}}', id="text in an object"),
    pytest.param('{"probs": {"cat": {"name": "ZZPATIENT"}, "dog": 0.5}}', id="object in an object"),
    pytest.param('{"prob_cat": "ZZPATIENT", "prob_dog": 0.5, "label": "cat"}', id="text in a column"),
    pytest.param('{"prob_cat": ["ZZPATIENT"], "prob_dog": 0.5, "label": "cat"}', id="array in a column"),
    pytest.param('{"score": "ZZPATIENT"}', id="text for a score"),
    pytest.param('{"score": {"name": "ZZPATIENT"}}', id="object for a score"),
    pytest.param('{"probs": [0.5, 0.5], "prob_cat": 0, "prob_dog": 1, "label": ["ZZPATIENT"]}', id="array for a label"),
    pytest.param('{"probs": [0.5, 0.5], "prob_cat": 0, "prob_dog": 1, "label": {"a": "ZZPATIENT"}}', id="object label"),
    pytest.param('{"probs": [0.5, 0.5], "label": null, "name": "ZZPATIENT"}', id="no label"),
    pytest.param('{"name": "ZZPATIENT\0", "probs": [0.5, 0.5]}', id="zero byte"),
    pytest.param("[" * 5000 + '"ZZPATIENT"', id="nested"),
]

GOOD_CELLS = '"[0.5, 0.5]",x,0.5,0.5,0.5,cat'
CSV_HEADER = "probs,name,prob_cat,prob_dog,score,label"
CSV_ROWS = [
    pytest.param("ZZPATIENT", id="one cell"),
    pytest.param("ZZPATIENT,1,2", id="too few cells"),
    pytest.param(f"{GOOD_CELLS},ZZPATIENT", id="an extra cell"),
    pytest.param(f"ZZPATIENT,{GOOD_CELLS}", id="an extra cell in front"),
    pytest.param('"ZZPATIENT,1', id="open quote"),
    pytest.param('"ZZPATIENT"x,1,1,1,1,cat', id="text behind a quote"),
    pytest.param('"[0.5, 0.5]",ZZPATIENT\0,0.5,0.5,0.5,cat', id="zero byte"),
    pytest.param("ZZPATIENT,x,0.5,0.5,0.5,cat", id="text for a vector"),
    pytest.param('"""ZZPATIENT""",x,0.5,0.5,0.5,cat', id="JSON text for a vector"),
    pytest.param('"[""ZZPATIENT"", 0.5]",x,0.5,0.5,0.5,cat', id="text in a vector"),
    pytest.param('"[ZZPATIENT, 0.5]",x,0.5,0.5,0.5,cat', id="bad JSON in a vector"),
    pytest.param('"[[""ZZPATIENT""], 0.5]",x,0.5,0.5,0.5,cat', id="array in a vector"),
    pytest.param('"{""cat"": ""ZZPATIENT"", ""dog"": 1}",x,0.5,0.5,0.5,cat', id="text in an object"),
    pytest.param('"[0.5, 0.5]",x,ZZPATIENT,0.5,0.5,cat', id="text for a probability"),
    pytest.param('"[0.5, 0.5]",x,0.5,"0,5 ZZPATIENT",0.5,cat', id="text behind a decimal comma"),
    pytest.param('"[0.5, 0.5]",x,0.5,0.5,ZZPATIENT,cat', id="text for a score"),
    pytest.param('"[0.5, 0.9]",ZZPATIENT,0.5,0.9,9,cat', id="bad numbers"),
    pytest.param(",ZZPATIENT,,,,cat", id="empty cells"),
    pytest.param('"[0.5, 0.5]",ZZPATIENT,0.5,0.5,0.5,', id="no label"),
    pytest.param('"[0.5, 0.5]",ZZPATIENT,0.5,0.5,0.5,emu', id="another label"),
    pytest.param('"[0.5, 0.5]","ZZPATIENT\nZZPATIENT",7,7,7,emu', id="two lines"),
    pytest.param(f'"{"[" * 5000}ZZPATIENT",x,0.5,0.5,0.5,cat', id="nested"),
]

CSV_FILES = [
    pytest.param("ZZPATIENT\n", id="one cell"),
    pytest.param('ZZPATIENT,"[0.5, 0.5]"\nZZPATIENT,"[0.5, 0.5]"\n', id="no header"),
    pytest.param("ZZPATIENT,0.5,0.5\n", id="no header, columns"),
    pytest.param("0.5,0.5,ZZPATIENT,cat\n", id="no header, label"),
    pytest.param("ZZPATIENT;0.5;0.5\n", id="no header, semicolons"),
    pytest.param("ZZPATIENT\t0.5\t0.5\n", id="no header, tabs"),
    pytest.param("ZZPATIENT|0.5|0.5\n", id="no header, bars"),
    pytest.param('{"name": "ZZPATIENT", "probs": [0.5, 0.5]}\n', id="JSON Lines"),
    pytest.param('"ZZPATIENT,0.5\n', id="open quote"),
    pytest.param('"ZZPATIENT"x,0.5\n', id="text behind a quote"),
    pytest.param("ZZPATIENT\0,0.5\n", id="zero byte"),
    pytest.param("ZZPATIENT,ZZPATIENT\n", id="twice"),
    pytest.param("probs,probs,ZZPATIENT\n", id="vector twice"),
    pytest.param("prob_cat,prob_cat,prob_dog,ZZPATIENT\n", id="column twice"),
    pytest.param("prob_cat,ZZPATIENT\n", id="one column"),
    pytest.param("prob_cat,prob_dog,ZZPATIENT\n", id="columns for a vector"),
    pytest.param("probs,ZZPATIENT\n", id="no label"),
]


def _output(folder: Path, name: str, text: str, layout: RecordSchema) -> str:
    """Return all text that reading a file produces."""
    try:
        decoded = read_bytes(folder, name, text.encode(), layout)
    except CpcmonError as error:
        return _chain(error)
    return "\n".join(
        [str(decoded.rejections), repr(decoded.rejections), decoded.rejections.by_reason(), *decoded.hints]
    )


def _chain(error: BaseException | None) -> str:
    # A logged traceback includes the causes.
    return "" if error is None else f"{error}\n{error!r}\n{_chain(error.__cause__)}{_chain(error.__context__)}"


LAYOUTS = (VECTOR, UNKNOWN, LABELLED, COLUMNS, LISTED, SCORE, LOGITS)


@pytest.mark.parametrize("line", JSON_LINES)
def test_a_bad_line_of_json_is_not_quoted(line: str, tmp_path: Path) -> None:
    """Alone, among good lines, and often enough for hints or for the file to fail."""
    good = json.dumps({"probs": [0.5, 0.5], "prob_cat": 0.5, "prob_dog": 0.5, "score": 0.5, "label": "cat"})
    assert MARKER in line
    for lines in ([line], [good, line, good], [line] * 120, [good] + [line] * 30):
        for layout in LAYOUTS:
            assert MARKER not in _output(tmp_path, "a.jsonl", "\n".join(lines), layout)


@pytest.mark.parametrize("row", CSV_ROWS)
def test_a_bad_row_of_csv_is_not_quoted(row: str, tmp_path: Path) -> None:
    """Alone, among good rows, and often enough for hints."""
    assert MARKER in row
    for rows in ([row], [GOOD_CELLS, row, GOOD_CELLS], [row] * 120, [GOOD_CELLS] + [row] * 30):
        for layout in LAYOUTS:
            assert MARKER not in _output(tmp_path, "a.csv", "\n".join([CSV_HEADER, *rows]), layout)


@pytest.mark.parametrize("text", CSV_FILES)
def test_a_first_line_that_is_no_header_is_not_quoted(text: str, tmp_path: Path) -> None:
    """Without a header, the first line may name a patient."""
    assert MARKER in text
    for layout in LAYOUTS:
        assert MARKER not in _output(tmp_path, "a.csv", text, layout)


def test_each_bad_line_is_rejected_by_some_layout(tmp_path: Path) -> None:
    """The tables above have no valid records."""
    layouts = (VECTOR, LABELLED, COLUMNS, SCORE)
    files = [("a.jsonl", str(param.values[0])) for param in JSON_LINES]
    files += [("a.csv", f"{CSV_HEADER}\n{param.values[0]}") for param in CSV_ROWS]
    for name, text in files:
        assert any(read_bytes(tmp_path, name, text.encode(), layout).rejections.total for layout in layouts), text


def test_labels_are_quoted(tmp_path: Path) -> None:
    """A label is one of a few words chosen by the user, needed to find the mistake."""
    line = '{"probs": [0.5, 0.5], "label": "emu"}'
    assert "found 'emu'" in _output(tmp_path, "a.jsonl", line, LABELLED)
    assert "found 'emu'" in _output(tmp_path, "a.csv", 'probs,label\n"[0.5, 0.5]",emu', LABELLED)
