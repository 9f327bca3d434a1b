"""The rules on vectors, through `accept`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from monitor.errors import InvalidInput
from monitor.records.offline import accept, offline_schema
from monitor.records.record_schema import MAX_CLASSES, OutputKind, RecordSchema
from tests.records.record_files import reported

LOGITS = np.array([[2.0, 1.0, -3.0], [0.0, 0.0, 0.0], [900.0, -900.0, 5.0]])
PROBS = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _many(rows: np.ndarray, count: int = 20) -> np.ndarray:
    return np.resize(rows, (count, rows.shape[1]))


@given(
    matrix=arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int64]),
        st.tuples(st.integers(0, 6), st.integers(1, 5)),
        elements=st.one_of(st.sampled_from([0, 1]), st.nothing()),
    )
    | arrays.arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=st.floats(width=64))
    | arrays.arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(2, 5)), elements=st.floats(0.15, 0.35)),
    kind=st.sampled_from([kind for kind in OutputKind if kind is not OutputKind.SCORE]),
)
def test_every_row_is_accepted_or_rejected(matrix: np.ndarray, kind: OutputKind) -> None:
    """Accepted rows are probabilities that sum to 1, and no row is lost."""
    before = matrix.copy()
    matrix.flags.writeable = False
    decoded = accept(matrix, offline_schema(kind))
    probabilities = decoded.records.vectors
    assert len(probabilities) + decoded.rejections.total == len(matrix)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1, dtype=np.float64), 1, atol=1e-6)
    assert probabilities.dtype == np.float32
    assert probabilities.flags.c_contiguous
    np.testing.assert_array_equal(matrix, before)


@given(matrix=arrays.arrays(np.float64, st.integers(0, 8), elements=st.floats(width=64)))
def test_every_score_is_accepted_or_rejected(matrix: np.ndarray) -> None:
    """By the same rules."""
    decoded = accept(matrix, offline_schema(OutputKind.SCORE))
    assert len(decoded.records.vectors) + decoded.rejections.total == len(matrix)
    assert decoded.records.vectors.shape[1] == 2
    np.testing.assert_allclose(decoded.records.vectors.sum(axis=1), 1, atol=1e-6)


def test_an_accepted_vector_is_divided_by_its_sum_in_float64_then_rounded() -> None:
    """The order of operations is part of the method, to the last bit."""
    raw = np.random.default_rng(1).dirichlet(np.ones(7), 200).round(4)
    expected = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
    np.testing.assert_array_equal(accept(raw, offline_schema()).records.vectors, expected)


@pytest.mark.parametrize("kind", [OutputKind.LOGITS, OutputKind.LOGPROB, OutputKind.PERCENT, OutputKind.PROBS])
def test_all_kinds_of_the_same_outputs_agree(kind: OutputKind) -> None:
    """Logits, log-probabilities, percentages and probabilities."""
    probabilities = _softmax(LOGITS)
    with np.errstate(divide="ignore"):
        given_as = {
            OutputKind.LOGITS: LOGITS,
            OutputKind.LOGPROB: np.log(probabilities),
            OutputKind.PERCENT: probabilities * 100,
            OutputKind.PROBS: probabilities,
        }[kind]
    decoded = accept(given_as, offline_schema(kind))
    assert decoded.rejections.total == 0
    np.testing.assert_allclose(decoded.records.vectors, probabilities, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "row", "sentence"),
    [
        pytest.param(OutputKind.LOGITS, [np.inf, 0.0], "finite numbers, found inf (not_finite)", id="infinite logit"),
        pytest.param(
            OutputKind.LOGPROB, [-np.inf, np.nan], "finite numbers, found nan (not_finite)", id="nan logarithm"
        ),
        pytest.param(
            OutputKind.LOGPROB, [0.5, -1.0], "log-probabilities of at most 0, found 0.5 (above_one)", id="p above 1"
        ),
        pytest.param(
            OutputKind.LOGPROB,
            [-0.1, -0.1],
            "probabilities that sum to 1, found a sum of 1.80967 (bad_sum)",
            id="log sum",
        ),
        pytest.param(
            OutputKind.PERCENT,
            [150.0, -50.0],
            "percentages of at least 0, found -50 (negative)",
            id="negative percentage",
        ),
        pytest.param(
            OutputKind.PERCENT, [101.0, 0.0], "percentages of at most 100, found 101 (above_one)", id="over 100 percent"
        ),
        pytest.param(
            OutputKind.PERCENT,
            [50.0, 40.0],
            "percentages that sum to 100, found a sum of 90 (bad_sum)",
            id="percent sum",
        ),
    ],
)
def test_messages_name_the_declared_kind(kind: OutputKind, row: list[float], sentence: str) -> None:
    assert reported(accept(np.array([row]), offline_schema(kind))) == [f"row 1: expected {sentence}"]


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_vectors_rounded_to_three_decimals_are_accepted_and_counted(classes: int) -> None:
    """The tolerance covers rounding for any number of classes."""
    raw = np.random.default_rng(classes).dirichlet(np.ones(classes), 300)
    assert accept(raw.astype(np.float32), offline_schema()).records.normalised == 0
    decoded = accept(raw.round(3), offline_schema())
    assert decoded.rejections.total == 0
    assert (decoded.records.normalised > 0) == (classes > 2)


@pytest.mark.parametrize(("total", "accepted"), [(1.0099, 1), (1.0101, 0), (0.9901, 1), (0.9899, 0)])
def test_the_sum_may_be_off_by_one_percent(total: float, accepted: int) -> None:
    """Up to 25 classes."""
    assert len(accept(np.array([[total / 2, total / 2]]), offline_schema()).records.vectors) == accepted


def test_byte_order_memory_order_and_type_do_not_matter() -> None:
    """Big-endian, Fortran-ordered, sliced and narrow floats."""
    raw = np.random.default_rng(3).dirichlet(np.ones(4), 50).astype(np.float32)
    expected = accept(raw, offline_schema()).records.vectors
    for same in (raw.astype(">f4"), np.asfortranarray(raw), np.repeat(raw, 2, axis=0)[::2], raw.astype(np.longdouble)):
        np.testing.assert_array_equal(accept(same, offline_schema()).records.vectors, expected)
    assert accept(raw.astype(np.float16), offline_schema()).rejections.total == 0
    assert accept(np.eye(3, dtype=np.int8), offline_schema()).records.vectors.tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        pytest.param(np.array([[True, False]]), "an array of real numbers, found an array of type bool", id="booleans"),
        pytest.param(np.array([["1", "0"]]), "an array of real numbers, found an array of type <U1", id="texts"),
        pytest.param(np.array([[1j, 0]]), "an array of real numbers, found an array of type complex128", id="complex"),
        pytest.param(np.array([[1, None]]), "an array of numbers, found an array of Python objects", id="objects"),
        pytest.param(np.array([0.5, 0.5]), r"\(or kind score\), found an array of shape \(2,\)", id="one row"),
        pytest.param(np.array(0.5), r"one column per class, found an array of shape \(\)", id="a number"),
        pytest.param(np.ones((1, 2, 2)), r"one column per class, found an array of shape \(1, 2, 2\)", id="three axes"),
        pytest.param(np.zeros((0, MAX_CLASSES + 1)), "at most 20,000 classes, found", id="too many classes"),
    ],
)
def test_an_array_of_another_type_or_shape_fails_as_a_whole(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        accept(matrix, offline_schema())


def test_a_matrix_is_no_score() -> None:
    """A column vector of scores is accepted."""
    assert accept(np.array([[0.5], [1.0]]), offline_schema(OutputKind.SCORE)).records.vectors.tolist() == [
        [0.5, 0.5],
        [0, 1],
    ]
    with pytest.raises(InvalidInput, match=r"expected one score per row, found an array of shape \(1, 2\)"):
        accept(np.array([[0.5, 0.5]]), offline_schema(OutputKind.SCORE))


def test_the_number_of_classes_is_limited() -> None:
    """From 2 to 20,000."""
    assert reported(accept(np.array([[1.0]]), offline_schema())) == [
        "row 1: expected a vector of 2 or more, found a vector of 1 (wrong_k)"
    ]
    widest = np.full((2, MAX_CLASSES), 1 / MAX_CLASSES)
    assert accept(widest, offline_schema()).records.vectors.shape == (2, MAX_CLASSES)


@pytest.mark.parametrize("records", [0, 1, 2])
def test_few_records_are_returned_without_hints(records: int) -> None:
    """None, one and two."""
    decoded = accept(np.full((records, 2), 0.5), offline_schema(classes=("a", "b")), [0] * records)
    assert decoded.records.vectors.shape == (records, 2)
    assert decoded.records.labels is not None
    assert decoded.records.labels.shape == (records,)
    assert (decoded.classes, decoded.hints) == (("a", "b"), ())


def test_only_the_first_five_rejections_are_reported_in_order() -> None:
    """The others are counted, so memory is bounded."""
    matrix = np.full((5000, 300), 1 / 300)
    matrix[[4999, 17, 4000, 3, 90, 2500, 8]] = 0.0
    matrix[[17, 4000]] = np.nan
    decoded = accept(matrix, offline_schema())
    assert [rejection.place for rejection in decoded.rejections.first] == [
        "row 4",
        "row 9",
        "row 18",
        "row 91",
        "row 2501",
    ]
    assert dict(decoded.rejections.reasons) == {"bad_sum": 5, "not_finite": 2}
    assert len(decoded.records.vectors) == 4993


@pytest.mark.parametrize(
    ("matrix", "layout", "hint"),
    [
        pytest.param(_many(LOGITS, 60), offline_schema(), "looks like logits: add --kind logits", id="9 logits"),
        pytest.param(
            _many(_softmax(LOGITS) * 100),
            offline_schema(),
            "looks like percentages: add --kind percent",
            id="10 percent",
        ),
        pytest.param(
            _many(np.log([[0.5, 0.5], [0.9, 0.1]])),
            offline_schema(),
            "looks like log-probabilities: add --kind logprob",
            id="11",
        ),
        pytest.param(
            _many(PROBS),
            offline_schema(OutputKind.LOGITS),
            "looks like probabilities: add --kind probs",
            id="not logits",
        ),
        pytest.param(
            _many(PROBS),
            offline_schema(OutputKind.PERCENT),
            "looks like probabilities: add --kind probs",
            id="not percent",
        ),
        pytest.param(
            np.eye(3)[[0, 1, 2] * 20], offline_schema(), "an argmax seems to have been logged", id="13 one-hot"
        ),
        pytest.param(np.full((30, 2), 0.5), offline_schema(), "constant output", id="14 constant"),
    ],
)
def test_a_common_error_gets_a_hint(matrix: np.ndarray, layout: RecordSchema, hint: str) -> None:
    """Nothing is converted automatically."""
    hints = accept(matrix, layout).hints
    assert len(hints) == 1
    assert hints[0].startswith(hint)


@pytest.mark.parametrize(
    ("rows", "kind", "hint"),
    [
        pytest.param(LOGITS[[0, 2]], OutputKind.PROBS, "looks like logits", id="9 logits"),
        pytest.param(PROBS * 100, OutputKind.PROBS, "looks like percentages", id="10 percent"),
        pytest.param(np.log(PROBS), OutputKind.PROBS, "looks like log-probabilities", id="11"),
        pytest.param(PROBS, OutputKind.LOGITS, "looks like probabilities", id="not logits"),
        pytest.param(PROBS, OutputKind.PERCENT, "looks like probabilities", id="not percent"),
        pytest.param(np.eye(3), OutputKind.PROBS, "an argmax", id="13 one-hot"),
        pytest.param(PROBS[:1], OutputKind.PROBS, "constant output", id="14 constant"),
    ],
)
def test_a_hint_needs_twenty_records(rows: np.ndarray, kind: OutputKind, hint: str) -> None:
    """Of one file."""
    assert accept(_many(rows, 19), offline_schema(kind)).hints == ()
    (given_hint,) = accept(_many(rows, 20), offline_schema(kind)).hints
    assert given_hint.startswith(hint)


def test_a_hint_counts_invalid_records_only() -> None:
    """Valid records do not count towards the twenty."""
    good = _many(PROBS, 30)
    assert accept(np.concatenate([good, _many(PROBS * 100, 19)]), offline_schema()).hints == ()
    assert accept(np.concatenate([good, _many(PROBS * 100, 20)]), offline_schema()).hints == (
        "looks like percentages: add --kind percent",
    )


def test_ordinary_outputs_get_no_hint() -> None:
    """Nor do a few bad records among many good ones."""
    raw = np.random.default_rng(5).dirichlet(np.ones(5), 100)
    raw[7] = [-1, 2, 3, 4, 5]
    decoded = accept(raw, offline_schema())
    assert (decoded.rejections.total, decoded.hints) == (1, ())
