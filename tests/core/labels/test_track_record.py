"""The track record against a plain oracle."""

import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.estimate import share_interval
from monitor.core.labels.audit import AuditSums
from monitor.core.labels.track_record import (
    FEWEST_LABELS,
    MOST_BLOCKS,
    Answer,
    Block,
    BlockTruth,
    EstimatorRecord,
    TrackRecord,
    blocks_due,
    truths_of,
)
from monitor.core.window import Bounds

# Multiples of 1/64 are the same in single precision.
SHARES = st.integers(0, 64).map(lambda one: one / 64)
NAMES = ("adaptive", "doc_ts", "ac", "gone")


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Draw an estimate, with or without an interval."""
    lower, value, upper = sorted(draw(st.tuples(SHARES, SHARES, SHARES)))
    return (value, lower, upper) if draw(st.booleans()) else (value, None, None)


@st.composite
def truths(draw: st.DrawFn) -> BlockTruth:
    """Draw what labels say, with enough of them or not."""
    lower, value, upper = sorted(draw(st.tuples(SHARES, SHARES, SHARES)))
    return BlockTruth(
        draw(st.sampled_from([1, FEWEST_LABELS - 1, FEWEST_LABELS, 500])), value, lower, upper, draw(st.booleans())
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Block]:
    """Draw blocks, one after the other."""
    count = draw(st.integers(0, 8))
    return [
        Block(
            began_at=1e9 + 10.0 * number,
            ended_at=1e9 + 10.0 * number + 9.5,
            records=draw(st.integers(1, 1_000_000)),
            mean_confidence=draw(SHARES),
            answers=draw(st.dictionaries(st.sampled_from(NAMES), answers())),
            truth=draw(st.none() | truths()),
        )
        for number in range(count)
    ]


def record_of(blocks: list[Block]) -> TrackRecord:
    """Add block after block."""
    record = TrackRecord()
    for block in blocks:
        record = record.add(block)
    return record


def allowed(answer: Answer, truth: BlockTruth) -> float | None:
    """Return how far an estimate may be off; None without an interval."""
    value, lower, upper = answer
    if lower is None or upper is None:
        return None
    if value > truth.value:
        return math.sqrt((value - lower) ** 2 + (truth.upper - truth.value) ** 2)
    return math.sqrt((upper - value) ** 2 + (truth.value - truth.lower) ** 2)


def plain(blocks: list[Block]) -> tuple[dict[str, EstimatorRecord], list[Block], bool]:
    """Return the records of estimators, the judged blocks, and whether the headline was wrong in the last."""
    judged = [one for one in blocks if one.truth is not None and one.truth.labels >= FEWEST_LABELS]
    found: dict[str, EstimatorRecord] = {}
    wrong = False
    for name in NAMES:
        errors, held = [], []
        for one in judged:
            if name not in one.answers or one.truth is None:
                continue
            error, limit = one.answers[name][0] - one.truth.value, allowed(one.answers[name], one.truth)
            errors.append(error)
            if limit is not None:
                held.append(abs(error) <= limit)
            if name == "adaptive" and one is judged[-1]:
                wrong = limit is not None and abs(error) > 1.75 * limit
        if errors:
            coverage = fmean(held) if held else None
            found[name] = EstimatorRecord(fmean(map(abs, errors)), fmean(errors), coverage, len(errors))
    return found, judged, wrong


@given(histories())
def test_the_summary_is_that_of_a_plain_computation(blocks: list[Block]) -> None:
    record = record_of(blocks)
    summary = record.summary()
    found, judged, wrong = plain(blocks)
    assert summary.blocks == len(judged)
    assert summary.wrong == wrong
    assert summary.latest == (judged[-1] if judged else None)
    assert summary.estimators.keys() == found.keys()
    for name, one in found.items():
        assert summary.estimators[name] == pytest.approx(one)
    always = {name: one.mean_absolute_error for name, one in found.items() if one.blocks == len(judged)}
    if not always:
        assert summary.best is None
    else:
        assert summary.best is not None
        assert always[summary.best] == min(always.values())
        if always.get("adaptive") == min(always.values()):
            assert summary.best == "adaptive"


@given(histories())
def test_blocks_are_the_same_after_a_restart(blocks: list[Block]) -> None:
    record = record_of(blocks)
    content = record.to_bytes()
    again = TrackRecord.from_bytes(content)
    assert [again[i] for i in range(len(again))] == [record[i] for i in range(len(record))] == blocks
    assert again.to_bytes() == content
    if blocks:
        assert record_of([again[i] for i in range(len(again))]).summary() == record.summary()
    for damaged in (b"", content[:-1], content + b"\0", content[:-1] + bytes([content[-1] ^ 1])):
        assert len(TrackRecord.from_bytes(damaged)) == 0


def test_a_record_keeps_the_last_blocks_in_few_bytes() -> None:
    names = [f"estimator_{i}" for i in range(20)]
    blocks = [
        Block(10.0 * i, 10.0 * i + 9.0, 100, 0.5, dict.fromkeys(names, (0.5, 0.25, 0.75)))
        for i in range(MOST_BLOCKS + 5)
    ]
    record = record_of([replace(blocks[0], answers={"gone": (0.5, None, None)}), *blocks[1:]])
    assert [record[i] for i in range(len(record))] == blocks[5:]
    assert record.names == tuple(names)
    assert record.nbytes == MOST_BLOCKS * (41 + 12 * 20)
    assert len(record.to_bytes()) < 17_500


def test_blocks_that_overlap_are_refused() -> None:
    record = TrackRecord().add(Block(0.0, 10.0, 100, 0.5, {}))
    with pytest.raises(ValueError, match="expected records newer than those of the last block"):
        record.add(Block(9.0, 20.0, 100, 0.5, {}))


def test_labels_that_came_change_a_block_and_expired_ones_do_not() -> None:
    blocks = [Block(10.0 * i, 10.0 * i + 9.0, 100, 0.5, {"adaptive": (0.875, 0.75, 0.9375)}) for i in range(2)]
    record = record_of(blocks)
    assert record.judged([None, None]) is record
    truth = BlockTruth(40, 0.5, 0.375, 0.625, audited=True)
    wrong = record.judged([None, truth])
    assert wrong.summary().wrong
    assert wrong.summary().latest == replace(blocks[1], truth=truth)
    assert wrong.judged([None, None]) is wrong
    assert not wrong.judged([None, truth._replace(value=0.75, upper=0.875)]).summary().wrong


def test_the_truth_is_of_all_records_with_an_audit_and_else_of_labelled_cases() -> None:
    sums = AuditSums(
        labels=np.array([0, 40, 100]),
        right=np.array([0, 36, 80]),
        confidence=np.array([0.0, 36.0, 70.0]),
        confidence_squared=np.array([0.0, 33.0, 60.0]),
        confidence_right=np.array([0.0, 33.0, 64.0]),
        records=np.array([1000, 1000, 1000]),
        all_confidence=np.array([900.0, 900.0, 900.0]),
    )
    none, few, many = truths_of(sums, audited=False)
    assert none is None
    assert few == pytest.approx(BlockTruth(40, 0.9, *share_interval(36, 40, 0.95), audited=False))
    assert many == pytest.approx(BlockTruth(100, 0.8, *share_interval(80, 100, 0.95), audited=False))
    none, few, many = truths_of(sums, audited=True)
    assert none is None
    assert few == pytest.approx(BlockTruth(40, 0.9, *share_interval(36, 40, 0.95), audited=True))
    assert many is not None
    assert many.value > 0.85


AGE = Bounds(age_seconds=100.0)
COUNT = Bounds(records=50)
BOTH = Bounds(records=50, age_seconds=100.0)


@pytest.mark.parametrize(
    ("bounds", "ended_at", "records", "oldest_at", "due"),
    [
        pytest.param(COUNT, math.nan, 49, 0.0, False, id="not full yet"),
        pytest.param(COUNT, math.nan, 50, 0.0, True, id="full for the first time"),
        pytest.param(COUNT, 500.0, 50, 500.0, False, id="one record left of the last block"),
        pytest.param(COUNT, 500.0, 50, 501.0, True, id="all records are new"),
        pytest.param(COUNT, 500.0, 3, 900.0, False, id="emptied since"),
        pytest.param(AGE, math.nan, 0, math.nan, False, id="no records"),
        pytest.param(AGE, math.nan, 5, 920.0, False, id="age not covered yet"),
        pytest.param(AGE, math.nan, 5, 905.0, True, id="age covered"),
        pytest.param(AGE, 900.5, 5, 901.0, False, id="the last block might still be in it"),
        pytest.param(AGE, 900.0, 5, 930.0, True, id="the last block has left by age"),
        pytest.param(BOTH, 950.0, 50, 951.0, True, id="full by records before it is by age"),
        pytest.param(BOTH, 850.0, 7, 930.0, True, id="few records, full by age"),
    ],
)
def test_a_block_is_due(bounds: Bounds, ended_at: float, records: int, oldest_at: float, *, due: bool) -> None:
    """At 1,000 seconds."""
    found = blocks_due(np.array([ended_at]), np.array([records]), np.array([oldest_at]), 1000.0, bounds)
    assert found.tolist() == [due]


def test_healthy_estimates_are_rarely_called_wrong() -> None:
    """A rule fires then: of blocks with 60 random labels, whose estimate is right but for chance, hardly any."""
    chance, wrong, count = np.random.default_rng(3), 0, 1000
    for _ in range(count):
        confidence = chance.beta(8, 2, size=1000)
        right = chance.random(1000) < confidence
        picked = chance.choice(1000, 60, replace=False)
        f, y = confidence[picked], right[picked].astype(float)
        of_f, squared, of_both = (np.array([float(one)]) for one in (f.sum(), f @ f, f @ y))
        labels, of_right, records = np.array([60]), np.array([int(y.sum())]), np.array([1000])
        sums = AuditSums(labels, of_right, of_f, squared, of_both, records, np.array([confidence.sum()]))
        truth = truths_of(sums, audited=True)[0]
        # As with a reference of 1,500 records.
        said = confidence.mean() + chance.normal(0.0, math.sqrt(0.16 / 1500))
        reach = 1.96 * math.sqrt(0.16 / 1500 + float(np.mean(confidence * (1.0 - confidence))) / 1000)
        block = Block(1.0, 2.0, 1000, 0.8, {"adaptive": (said, said - reach, said + reach)}, truth)
        wrong += TrackRecord().add(block).summary().wrong
    assert wrong <= 3
