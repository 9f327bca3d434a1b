"""Rules on labels, and combinations of layout options that are invalid."""

from typing import Any

import numpy as np
import pytest

from monitor.errors import InvalidInput, UsageError
from monitor.records.offline_files import accept, offline_schema
from monitor.records.record_schema import OutputKind
from tests.records.record_files import reasons, reported

ANIMALS = ("cat", "dog", "owl")


def _labels(given: Any, classes: tuple[str, ...] | None = None) -> list[int]:
    decoded = accept(np.full((len(given), 3), 1 / 3), offline_schema(classes=classes), given)
    assert decoded.rejections.total == 0, reported(decoded)
    assert decoded.records.labels is not None
    assert decoded.records.labels.dtype == np.int64
    return [int(label) for label in decoded.records.labels]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param([0, 2, 1], id="integers"),
        pytest.param([0.0, 2.0, 1.0], id="whole floats"),
        pytest.param(["0", "2", "1"], id="texts"),
        pytest.param(["0.0", "2.0", "1.0"], id="texts of whole floats"),
        pytest.param([0, "2", 1.0], id="a mixture"),
        pytest.param(np.array([0, 2, 1], dtype=">i2"), id="array of integers"),
        pytest.param(np.array([0, 2, 1], dtype=np.float32), id="array of floats"),
        pytest.param(np.array(["0", "2", "1"]), id="array of texts"),
        pytest.param(np.array([b"0", b"2", b"1"]), id="array of bytes"),
        pytest.param(np.array([0, "2", np.int8(1)], dtype=object), id="array of objects"),
    ],
)
def test_a_number_and_its_text_mean_the_same_class(given: Any) -> None:
    """Labels 3, 3.0 and "3", with or without class names."""
    assert _labels(given) == [0, 2, 1]
    assert _labels(given, ANIMALS) == [0, 2, 1]


def test_a_label_may_be_a_class_name() -> None:
    """Names and indices may be mixed if no name is an integer."""
    assert _labels(["owl", "cat", 1], ANIMALS) == [2, 0, 1]


def test_integer_names_override_indices() -> None:
    """Among classes named 3, 1, 2 the label 1 is the second class, and 0 is invalid."""
    assert _labels([3, "1", 2.0], ("3", "1", "2")) == [0, 1, 2]
    decoded = accept(np.full((1, 3), 1 / 3), offline_schema(classes=("3", "1", "2")), [0])
    assert reported(decoded) == ["row 1: expected one of the classes 3, 1, 2, found 0 (label_out_of_range)"]


def test_labels_that_are_no_class_are_distinguished() -> None:
    """A boolean is not 1, and an invalid vector is reported before an invalid label."""
    given = [True, None, float("nan"), 3, "", ["cat"], b"\xff", "01"]
    decoded = accept(np.full((8, 3), 1 / 3), offline_schema(classes=ANIMALS), given)
    assert dict(decoded.rejections.reasons) == {"wrong_type": 4, "label_out_of_range": 3, "missing_field": 1}
    assert reasons(decoded) == ["wrong_type", "wrong_type", "wrong_type", "label_out_of_range", "missing_field"]
    assert reasons(accept(np.zeros((1, 3)), offline_schema(), [7])) == ["bad_sum"]


def test_a_record_with_a_bad_label_does_not_set_the_number_of_classes() -> None:
    """The list of classes in a message is truncated."""
    decoded = accept(np.full((1, 100), 0.01), offline_schema(), [100])
    assert reported(decoded) == [
        "row 1: expected one of the classes 0, 1, 2, 3, 4 and 95 more, found 100 (label_out_of_range)"
    ]
    assert decoded.classes == ()


@pytest.mark.parametrize("classes", [None, ("0", "1", "2")], ids=["unnamed", "numbered"])
@pytest.mark.parametrize(
    ("label", "advised"),
    [("cat", True), (1.5, True), ("1.5", True), (3, False), (-1, False), ("3", False), ("007", False)],
)
def test_a_name_without_class_names_gets_advice(
    classes: tuple[str, ...] | None,
    label: object,
    advised: bool,  # noqa: FBT001
) -> None:
    """The message shows how to name the classes; an integer out of range has another message."""
    advice = " (set their names in vector order with --classes)" if advised else ""
    (message,) = reported(accept(np.full((1, 3), 1 / 3), offline_schema(classes=classes), [label]))
    assert message == f"row 1: expected one of the classes 0, 1, 2{advice}, found {label!r} (label_out_of_range)"


def test_named_classes_need_no_advice() -> None:
    (message,) = reported(accept(np.full((1, 3), 1 / 3), offline_schema(classes=ANIMALS), ["emu"]))
    assert message == "row 1: expected one of the classes cat, dog, owl, found 'emu' (label_out_of_range)"


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([3, 2, 1, 1], id="the one past the last comes first"),
        pytest.param(["1", "2", "3.0", "1"], id="texts"),
        pytest.param(np.array([1.0, 2.0, 3.0, 1.0]), id="floats"),
    ],
)
def test_labels_that_count_from_one_reject_the_file(labels: Any) -> None:
    """In any order and form: as indices they would be off by one."""
    order = [int(float(label)) - 1 for label in labels]
    found = accept(0.1 + 0.7 * np.eye(3)[order], offline_schema(), labels)
    assert found.unusable is not None
    assert "found labels from 1 to 3 and no 0" in found.unusable


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        pytest.param(None, [0, 2, 2, 3], id="there is a 0"),
        pytest.param(None, [2, 2, 1, 2], id="none past the last"),
        pytest.param(None, [1, 3, 1, 1], id="they fit as they are"),
        pytest.param(("7", "8", "9"), [9, 9, 9, 3], id="classes are named by numbers"),
    ],
)
def test_other_labels_do_not_reject_the_file(classes: tuple[str, ...] | None, labels: list[int]) -> None:
    """A class without records, or an invalid label, does not mean counting from 1."""
    outputs = 0.1 + 0.7 * np.eye(3)[[1, 1, 1, 1]]
    assert accept(outputs, offline_schema(classes=classes), labels).unusable is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param([0], "outputs: expected 2 labels, one per row, found 1", id="too few"),
        pytest.param(
            np.zeros((2, 1), dtype=int), r"expected one label per row, found labels of shape \(2, 1\)", id="a matrix"
        ),
        pytest.param(
            np.array([True, False]), "expected labels that are integers or strings, found .* bool", id="booleans"
        ),
    ],
)
def test_labels_must_be_one_per_row(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        accept(np.full((2, 3), 1 / 3), offline_schema(), labels)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"classes": ("a",)}, "classes: expected 2 to 20,000 names, found 1", id="one class"),
        pytest.param(
            {"classes": ("a", "")},
            "classes: expected a name for each class, found an empty name",
            id="class without a name",
        ),
        pytest.param({"classes": ("a", "b", "a")}, "classes: expected each name once, found a, b, a", id="class twice"),
        pytest.param(
            {"classes": ANIMALS, "kind": OutputKind.SCORE},
            "classes: expected 2 names for kind score, found 3",
            id="score of three",
        ),
        pytest.param(
            {"class_columns": ("a", "b"), "vector_field": "p"}, "either class columns or a vector field", id="both"
        ),
        pytest.param(
            {"class_columns": ("p_*",), "kind": OutputKind.SCORE},
            r"class columns: expected none, since a score is one field, found p_\*$",
            id="columns of scores",
        ),
        pytest.param({"class_columns": ("a",)}, "expected two names or more, or a single prefix", id="one column"),
        pytest.param(
            {"class_columns": ("a*", "b*")}, "expected two names or more, or a single prefix", id="two prefixes"
        ),
        pytest.param(
            {"class_columns": ("a", "a")}, "class columns: expected each name once, found a, a", id="column twice"
        ),
        pytest.param(
            {"class_columns": ("a", "b"), "classes": ANIMALS},
            "^class columns: expected 3, one per class, found 2$",
            id="too few",
        ),
        pytest.param(
            {"class_columns": ("a", "a.b")},
            "^class columns: expected fields that do not contain each other, found a and a.b$",
            id="column in another",
        ),
        pytest.param(
            {"vector_field": "y", "label_field": "y"}, "^label: expected a field other than", id="label is the vector"
        ),
        pytest.param(
            {"label_field": "probs.y"},
            "^label: expected fields that do not contain each other, found probs and probs.y$",
            id="label in the vector",
        ),
        pytest.param(
            {"class_columns": ("a", "b"), "label_field": "b"},
            "expected a field other than",
            id="label is a class",
        ),
    ],
)
def test_contradictory_layouts_are_rejected(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        offline_schema(**words)
