"""The state machine of alerts: firing, recovery, held alerts, and changed rules."""

import itertools
import json
import math
from dataclasses import asdict, dataclass, replace
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.alerts import CHANCE_MARGIN, AlertPhase, AlertRule, AlertState, AlertStatus, AlertType, On, Severity
from monitor.core.estimate import HEADLINE, Estimate, Interval, NoEstimate, Result, Why, WindowState
from monitor.core.performance import Metric
from tests.one_window import AlertFacts, status, step

HALF_AN_HOUR = 1800.0
LOW = AlertRule("accuracy_low", below=0.80, for_seconds=HALF_AN_HOUR)
SILENT = AlertRule("silent", kind=AlertType.SILENT, after_seconds=7200.0, for_seconds=0.0)
DEGRADED = AlertRule("degraded", kind=AlertType.DEGRADED_INPUT, for_seconds=600.0)
UNSURE = AlertRule("unsure", kind=AlertType.DISAGREEMENT)

EVALUATION = AlertFacts(
    state=WindowState.OK,
    records=500,
    new_records=20,
    quiet_seconds=0.0,
    elapsed_seconds=300.0,
    results={},
    disagreement=0.01,
    chance_disagreement=0.04,
    reference_accuracy=0.90,
)
"""An evaluation five minutes and 20 records after the previous one."""


def with_upper_bound(upper: float, evaluation: AlertFacts = EVALUATION, *, estimator: str = HEADLINE) -> AlertFacts:
    """Return an evaluation with this upper bound of an estimator."""
    results: dict[str, Result] = {estimator: Estimate(upper - 0.03, evaluation.records, Interval(upper - 0.06, upper))}
    return replace(evaluation, results=results)


GOOD, BETWEEN, POOR = with_upper_bound(0.90), with_upper_bound(0.805), with_upper_bound(0.70)


def run(
    rule: AlertRule, evaluations: list[AlertFacts], state: AlertState | None = None, *, begin: float = 1000.0
) -> list[AlertState]:
    """Return the states after each evaluation, five minutes apart by the wall clock."""
    states = [state or AlertState()]
    for index, evaluation in enumerate(evaluations):
        states.append(step(rule, states[-1], evaluation, begin + 300.0 * index))
    return states[1:]


def phases(rule: AlertRule, evaluations: list[AlertFacts], state: AlertState | None = None) -> list[AlertPhase]:
    """Return the phases after each evaluation."""
    return [after.phase for after in run(rule, evaluations, state)]


def episodes(rule: AlertRule, evaluations: list[AlertFacts]) -> int:
    """Return how often an alert started to fire."""
    seen = [AlertPhase.OK, *phases(rule, evaluations)]
    return sum(
        after is AlertPhase.FIRING and before in {AlertPhase.OK, AlertPhase.PENDING}
        for before, after in itertools.pairwise(seen)
    )


FIRING = run(LOW, [POOR] * 7)[-1]
PENDING = run(LOW, [POOR] * 4)[-1]
RECOVERING = run(LOW, [*[POOR] * 7, *[GOOD] * 3])[-1]


# Transitions


@pytest.mark.parametrize(
    ("evaluations", "phase"),
    [
        pytest.param([], AlertPhase.OK, id="never evaluated"),
        pytest.param([GOOD], AlertPhase.OK, id="one good evaluation"),
        pytest.param([POOR], AlertPhase.PENDING, id="one poor evaluation"),
        pytest.param([POOR] * 6, AlertPhase.PENDING, id="one evaluation short"),
        pytest.param([POOR] * 7, AlertPhase.FIRING, id="half an hour after it became pending"),
        pytest.param([*[POOR] * 6, GOOD, POOR], AlertPhase.PENDING, id="one good evaluation restarts the wait"),
        pytest.param([*[POOR] * 6, BETWEEN], AlertPhase.OK, id="hysteresis is for recovery only"),
        pytest.param([*[POOR] * 7, BETWEEN], AlertPhase.FIRING, id="above the threshold, not beyond hysteresis"),
        pytest.param([*[POOR] * 7, GOOD], AlertPhase.RECOVERING, id="one good evaluation after firing"),
        pytest.param([*[POOR] * 7, *[GOOD] * 6], AlertPhase.RECOVERING, id="recovery one evaluation short"),
        pytest.param([*[POOR] * 7, *[GOOD] * 7], AlertPhase.OK, id="recovered"),
        pytest.param([*[POOR] * 7, *[GOOD] * 6, BETWEEN], AlertPhase.FIRING, id="recovery that did not last"),
        pytest.param(
            [*[POOR] * 7, *[GOOD] * 6, BETWEEN, *[GOOD] * 6], AlertPhase.RECOVERING, id="recovery starts again"
        ),
    ],
)
def test_phase_after_evaluations(evaluations: list[AlertFacts], phase: AlertPhase) -> None:
    """Half an hour below the threshold fires, half an hour above resolves."""
    state = run(LOW, evaluations)[-1] if evaluations else AlertState()
    assert state.phase is phase


@pytest.mark.parametrize("records", [0, 1, 2, 500])
def test_a_window_needs_a_fifth_of_new_records_and_at_least_one(records: int) -> None:
    """Time alone never fires."""
    needed = max(1, math.ceil(records / 5))
    slow = with_upper_bound(0.7, replace(EVALUATION, records=records, new_records=0, elapsed_seconds=86_400.0))
    last = replace(slow, new_records=1)
    begun = run(LOW, [slow] * 3)[-1]
    assert begun.phase is AlertPhase.PENDING
    assert [after.phase for after in run(LOW, [last] * needed, begun)] == [
        *[AlertPhase.PENDING] * (needed - 1),
        AlertPhase.FIRING,
    ]


def test_records_alone_never_fire() -> None:
    """A burst that refills the window several times still waits for its time."""
    burst = with_upper_bound(0.7, replace(EVALUATION, new_records=10_000, elapsed_seconds=1.0))
    assert phases(LOW, [burst] * 1800)[-1] is AlertPhase.PENDING
    assert phases(LOW, [burst] * 1801)[-1] is AlertPhase.FIRING


def test_an_accuracy_alert_needs_two_evaluations_even_without_a_wait() -> None:
    """The evaluation that makes it pending cannot also confirm it."""
    at_once = replace(LOW, for_seconds=0.0, new_records=0.0)
    assert phases(at_once, [POOR, POOR]) == [AlertPhase.PENDING, AlertPhase.FIRING]
    assert phases(at_once, [POOR, replace(POOR, new_records=0)]) == [AlertPhase.PENDING] * 2


@pytest.mark.parametrize(
    ("rule", "bad", "between", "well"),
    [
        pytest.param(AlertRule("r", below=0.8), 0.799, 0.80, 0.81, id="below, upper bound"),
        pytest.param(
            AlertRule("r", below=0.8, on=On.VALUE), 0.829, 0.83, 0.84, id="below, value 0.03 under the upper bound"
        ),
        pytest.param(
            AlertRule("r", below=0.8, on=On.LOWER), 0.859, 0.86, 0.87, id="below, lower bound 0.06 under the upper"
        ),
        pytest.param(AlertRule("r", drop=0.05), 0.849, 0.85, 0.86, id="drop under the reference's 0.90"),
        pytest.param(AlertRule("r", drop=0.0), 0.899, 0.90, 0.91, id="drop of nothing"),
        pytest.param(AlertRule("r", above=0.9), 0.901, 0.90, 0.89, id="above, upper bound"),
        pytest.param(AlertRule("r", above=0.9, on=On.LOWER), 0.961, 0.96, 0.95, id="above, lower bound"),
        pytest.param(AlertRule("r", below=0.998), 0.997, 0.998, 0.999, id="hysteresis ends half way to 1"),
        pytest.param(AlertRule("r", below=0.8, hysteresis=0.0), 0.799, None, 0.80, id="no hysteresis"),
        pytest.param(AlertRule("r", below=0.8, estimator="doc_ts"), 0.799, 0.80, 0.81, id="another estimator"),
    ],
)
def test_the_configured_bound_of_the_configured_estimator_is_compared(
    rule: AlertRule, bad: float, between: float | None, well: float
) -> None:
    """Within the hysteresis nothing changes."""
    firing = AlertState(AlertPhase.FIRING, 5.0, rule=rule.fingerprint)

    def seen(upper: float) -> AlertFacts:
        # A small margin against rounding errors.
        return with_upper_bound(upper + (1e-9 if (rule.above is None) else -1e-9), estimator=rule.estimator)

    assert step(rule, AlertState(), seen(bad), 1.0).phase is AlertPhase.PENDING
    assert step(rule, firing, seen(bad), 1.0) == firing
    assert step(rule, firing, seen(well), 1.0).phase is AlertPhase.RECOVERING
    assert step(rule, AlertState(), seen(well), 1.0).phase is AlertPhase.OK
    if between is not None:
        assert step(rule, AlertState(), seen(between), 1.0).phase is AlertPhase.OK
        assert step(rule, firing, seen(between), 1.0) == firing


@pytest.mark.parametrize(
    ("rule", "at", "recovered"),
    [
        pytest.param(AlertRule("r", below=0.75, hysteresis=0.125, on=On.VALUE), 0.75, 0.875, id="below"),
        pytest.param(AlertRule("r", above=0.75, hysteresis=0.125, on=On.VALUE), 0.75, 0.625, id="above"),
    ],
)
def test_a_value_equal_to_the_threshold_does_not_fire(rule: AlertRule, at: float, recovered: float) -> None:
    """And one equal to threshold plus hysteresis recovers."""
    firing = AlertState(AlertPhase.FIRING, 5.0, rule=rule.fingerprint)
    exactly = replace(EVALUATION, results={HEADLINE: Estimate(at, 500)})
    assert step(rule, AlertState(), exactly, 1.0).phase is AlertPhase.OK
    assert step(rule, firing, exactly, 1.0).phase is AlertPhase.FIRING
    back = replace(EVALUATION, results={HEADLINE: Estimate(recovered, 500)})
    assert step(rule, firing, back, 1.0).phase is AlertPhase.RECOVERING


def test_a_share_of_the_window_has_no_rounding_error() -> None:
    """0.07 times 100 is slightly over 7 in binary; one and a half windows are more than the window."""
    assert replace(LOW, new_records=0.07).new_records_of(100) == 7
    assert replace(LOW, new_records=0.071).new_records_of(100) == 8
    assert replace(LOW, new_records=1.5).new_records_of(500) == 750


def test_without_an_interval_the_value_is_compared() -> None:
    poor = replace(EVALUATION, results={HEADLINE: Estimate(0.79, 500)})
    assert step(LOW, AlertState(), poor, 1.0).phase is AlertPhase.PENDING
    assert status(LOW, AlertState(), poor).value == 0.79


@pytest.mark.parametrize(
    ("rule", "disagreement", "phase"),
    [
        pytest.param(UNSURE, 0.061, AlertPhase.PENDING, id="far over chance"),
        pytest.param(UNSURE, 0.059, AlertPhase.OK, id="little over chance"),
        pytest.param(replace(UNSURE, above=0.1), 0.09, AlertPhase.OK, id="over chance, under its own threshold"),
        pytest.param(replace(UNSURE, above=0.1), 0.11, AlertPhase.PENDING, id="over its own threshold"),
    ],
)
def test_disagreement(rule: AlertRule, disagreement: float, phase: AlertPhase) -> None:
    """With a threshold, or with one and a half times the chance disagreement."""
    assert step(rule, AlertState(), replace(EVALUATION, disagreement=disagreement), 1.0).phase is phase


def test_a_disagreement_near_zero_can_recover() -> None:
    """If the threshold is below the hysteresis, half of it is enough."""
    firing = AlertState(AlertPhase.FIRING, 5.0, rule=UNSURE.fingerprint)
    tight = replace(EVALUATION, chance_disagreement=0.008)
    assert step(UNSURE, firing, replace(tight, disagreement=0.0061), 1.0).phase is AlertPhase.FIRING
    assert step(UNSURE, firing, replace(tight, disagreement=0.0059), 1.0).phase is AlertPhase.RECOVERING


# Held alerts

_NOT_EVALUATED = [
    *(
        pytest.param(LOW, replace(POOR, state=state), id=f"accuracy while {state}")
        for state in WindowState
        if state not in {WindowState.OK, WindowState.ERROR}
    ),
    pytest.param(LOW, EVALUATION, id="no answer of the estimator"),
    pytest.param(LOW, replace(EVALUATION, results={HEADLINE: NoEstimate(Why.TOO_FEW_RECORDS, 3)}), id="no estimate"),
    pytest.param(LOW, replace(EVALUATION, results={HEADLINE: Estimate(math.nan, 500)}), id="not a number"),
    pytest.param(
        LOW, replace(with_upper_bound(0.7, estimator="doc_ts"), state=WindowState.ERROR), id="only another estimator"
    ),
    pytest.param(AlertRule("r", drop=0.1), replace(POOR, reference_accuracy=None), id="drop without a reference"),
    pytest.param(UNSURE, replace(EVALUATION, disagreement=None), id="no disagreement"),
    pytest.param(UNSURE, replace(EVALUATION, disagreement=0.5, chance_disagreement=None), id="chance unknown"),
    pytest.param(UNSURE, replace(EVALUATION, disagreement=0.5, state=WindowState.STALE), id="disagreement while stale"),
    pytest.param(
        SILENT, replace(EVALUATION, quiet_seconds=9e9, state=WindowState.CATCHING_UP), id="silent, catching up"
    ),
    pytest.param(
        DEGRADED, replace(EVALUATION, degraded=True, state=WindowState.CATCHING_UP), id="degraded, catching up"
    ),
]


@pytest.mark.parametrize("phase", list(AlertPhase))
@pytest.mark.parametrize(("rule", "evaluation"), _NOT_EVALUATED)
def test_an_alert_that_cannot_be_evaluated_is_held(rule: AlertRule, evaluation: AlertFacts, phase: AlertPhase) -> None:
    """Neither phase nor dwell changes, even under a changed rule; it is shown without a value."""
    for fingerprint in (rule.fingerprint, "another rule"):
        before = AlertState(phase, 5.0, 600.0, 40, fingerprint)
        assert step(rule, before, evaluation, 1e9) == before
        shown = status(rule, before, evaluation)
        assert (shown.held, shown.phase, shown.since, shown.value) == (True, phase, 5.0, None)


def test_an_error_of_one_estimator_does_not_silence_the_rules_on_others() -> None:
    """The window's state is `error`, but the consensus has an estimate, so it is evaluated."""
    assert phases(LOW, [replace(POOR, state=WindowState.ERROR)] * 7)[-1] is AlertPhase.FIRING


def test_dwell_continues_after_a_hold() -> None:
    """Time before the hold counts, time during it does not."""
    stale = replace(POOR, state=WindowState.STALE)
    assert phases(LOW, [*[POOR] * 4, *[stale] * 50, *[POOR] * 2])[-1] is AlertPhase.PENDING
    assert phases(LOW, [*[POOR] * 4, *[stale] * 50, *[POOR] * 3])[-1] is AlertPhase.FIRING


# Silence and degraded input


def quiet(seconds: float, new: int = 0) -> AlertFacts:
    """Return an evaluation of a window without records for some time."""
    return replace(EVALUATION, state=WindowState.STALE, quiet_seconds=seconds, new_records=new)


def test_silence_fires_when_its_time_is_over_and_ends_with_a_record() -> None:
    """Without `for` it fires at the first evaluation past its time."""
    evaluations = [quiet(7200.0), quiet(7201.0), quiet(9000.0), quiet(10.0, new=1)]
    assert phases(SILENT, evaluations) == [AlertPhase.OK, AlertPhase.FIRING, AlertPhase.FIRING, AlertPhase.OK]


def test_records_that_arrive_during_a_hold_end_a_silence() -> None:
    """At the first evaluation after the hold they are not new any more."""
    held = replace(quiet(0.0, new=400), state=WindowState.CATCHING_UP)
    assert phases(SILENT, [quiet(8000.0), held, quiet(60.0)]) == [AlertPhase.FIRING, AlertPhase.FIRING, AlertPhase.OK]


def test_silence_with_a_wait_waits_to_fire_and_not_to_end() -> None:
    """Its `for` counts running time only."""
    rule = replace(SILENT, for_seconds=600.0)
    evaluations = [quiet(7300.0), quiet(7600.0), quiet(7900.0), quiet(10.0, new=1)]
    assert phases(rule, evaluations) == [AlertPhase.PENDING, AlertPhase.PENDING, AlertPhase.FIRING, AlertPhase.OK]


def test_degraded_input_dwells_in_time_only() -> None:
    """If everything is rejected, no new record can confirm it."""
    bad = replace(EVALUATION, degraded=True, new_records=0)
    fine = replace(bad, degraded=False)
    assert phases(DEGRADED, [bad] * 3) == [AlertPhase.PENDING, AlertPhase.PENDING, AlertPhase.FIRING]
    assert phases(DEGRADED, [*[bad] * 3, *[fine] * 3])[3:] == [
        AlertPhase.RECOVERING,
        AlertPhase.RECOVERING,
        AlertPhase.OK,
    ]


# Status


def test_since_is_when_the_phase_began_and_recovering_keeps_when_it_fired() -> None:
    """By the wall clock, at the evaluation that changed the phase."""
    states = run(LOW, [GOOD, *[POOR] * 8, *[GOOD] * 8], begin=0.0)
    assert states[0].since == 0.0
    assert {state.since for state in states if state.phase is AlertPhase.PENDING} == {300.0}
    assert {state.since for state in states if state.phase in {AlertPhase.FIRING, AlertPhase.RECOVERING}} == {2100.0}
    assert states[-1] == AlertState(AlertPhase.OK, 4500.0, rule=LOW.fingerprint)


@pytest.mark.parametrize("phase", list(AlertPhase))
def test_firing_and_recovering_are_firing(phase: AlertPhase) -> None:
    assert status(LOW, AlertState(phase), GOOD).firing is (phase in {AlertPhase.FIRING, AlertPhase.RECOVERING})


def test_status_has_estimator_threshold_and_value() -> None:
    rule = AlertRule("fell", drop=0.05, severity=Severity.CRITICAL, estimator="doc_ts")
    shown = status(rule, AlertState(AlertPhase.FIRING, 7.0), with_upper_bound(0.7, estimator="doc_ts"))
    assert shown == AlertStatus(
        "fell",
        AlertType.ACCURACY,
        Severity.CRITICAL,
        AlertPhase.FIRING,
        7.0,
        held=False,
        estimator="doc_ts",
        threshold=0.90 - 0.05,
        value=0.7,
    )
    assert status(UNSURE, AlertState(), EVALUATION).threshold == pytest.approx(0.06)
    assert status(UNSURE, AlertState(), EVALUATION).upward
    assert status(AlertRule("rose", above=0.99), AlertState(), EVALUATION).upward
    for rule in (SILENT, DEGRADED):
        assert (status(rule, AlertState(), EVALUATION).threshold, status(rule, AlertState(), EVALUATION).estimator) == (
            None,
            None,
        )


# Against an oracle that searches the whole history


class Mood(Enum):
    """The outcome of a rule's condition at an evaluation."""

    BAD = -1
    BETWEEN = 0
    WELL = 1
    HELD = None


@dataclass(frozen=True)
class Observation:
    """An evaluation, as input of the oracle."""

    mood: Mood
    seconds: float
    new: int


def slow_machine(
    observations: list[Observation], rule: AlertRule, records: int
) -> tuple[AlertPhase, float, float, int]:
    """Return phase, since (as the number of the evaluation, -1 for never), and dwell after a whole history.

    Finds one transition after the other: the first run of evaluations, all bad (or, while firing, all good), that is
    long enough and ends with an evaluation with new records.
    """
    seen = [
        (number, observation) for number, observation in enumerate(observations) if observation.mood is not Mood.HELD
    ]
    needed = max(1, -(-round(rule.new_records * records * 1000) // 1000))
    firing, position, since = False, 0, -1.0
    while True:
        wanted = Mood.WELL if firing else Mood.BAD
        turn = None
        for last in range(position, len(seen)):
            first = last
            while first > position and seen[first - 1][1].mood is wanted and seen[last][1].mood is wanted:
                first -= 1
            after = [observation for _, observation in seen[first + 1 : last + 1]]
            seconds, new = sum(one.seconds for one in after), sum(one.new for one in after)
            confirmed = seconds >= rule.for_seconds and new >= needed and seen[last][1].new > 0
            if seen[last][1].mood is wanted and confirmed:
                turn = last
                break
            if seen[last][1].mood is wanted:
                left_off = (
                    (AlertPhase.RECOVERING, since, seconds, new)
                    if firing
                    else (AlertPhase.PENDING, float(seen[first][0]), seconds, new)
                )
            else:
                left_off = (AlertPhase.FIRING if firing else AlertPhase.OK, since, 0.0, 0)
                if not firing and last > position and seen[last - 1][1].mood is wanted:
                    since = float(seen[last][0])
                    left_off = (AlertPhase.OK, since, 0.0, 0)
        if turn is None:
            return left_off if position < len(seen) else (AlertPhase.FIRING if firing else AlertPhase.OK, since, 0.0, 0)
        firing, position, since = not firing, turn + 1, float(seen[turn][0])


_RULES = [
    AlertRule("r", below=0.8, hysteresis=0.02),
    AlertRule("r", drop=0.1, hysteresis=0.02),
    AlertRule("r", above=0.8, on=On.LOWER, hysteresis=0.02),
    AlertRule("r", kind=AlertType.DISAGREEMENT, above=0.1, hysteresis=0.02),
    AlertRule("r", kind=AlertType.DISAGREEMENT, hysteresis=0.02),
]


def facts_of(observation: Observation, rule: AlertRule, records: int) -> AlertFacts:
    """Return facts with a given outcome for a rule."""
    away = {Mood.BAD: -0.01, Mood.BETWEEN: 0.01, Mood.WELL: 0.03, Mood.HELD: -0.01}[observation.mood]
    state = WindowState.STALE if observation.mood is Mood.HELD else WindowState.OK
    upward = rule.above is not None or rule.kind is AlertType.DISAGREEMENT
    compared = 0.8 - away if upward else 0.8 + away
    return AlertFacts(
        state=state,
        records=records,
        new_records=observation.new,
        quiet_seconds=0.0,
        elapsed_seconds=observation.seconds,
        results={HEADLINE: Estimate(0.5, records, Interval(compared, compared))},
        disagreement=0.1 - away,
        chance_disagreement=0.1 / CHANCE_MARGIN,
        reference_accuracy=0.9,
    )


_GLANCES = st.lists(
    st.builds(Observation, st.sampled_from(Mood), st.sampled_from([0.0, 60.0, 300.0]), st.sampled_from([0, 1, 2, 20])),
    max_size=40,
)


@settings(max_examples=500)
@given(
    observations=_GLANCES,
    rule=st.sampled_from(_RULES),
    wait=st.sampled_from([0.0, 60.0, 300.0, 900.0]),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    records=st.sampled_from([0, 1, 2, 100]),
)
def test_any_history_equals_the_slow_machine(
    observations: list[Observation], rule: AlertRule, wait: float, share: float, records: int
) -> None:
    """The oracle searches the whole history."""
    rule = replace(rule, for_seconds=wait, new_records=share)
    state = AlertState(since=-1.0)
    for number, observation in enumerate(observations):
        state = step(rule, state, facts_of(observation, rule, records), float(number))
        found = (state.phase, state.since, state.dwell_seconds, state.dwell_records)
        assert found == slow_machine(observations[: number + 1], rule, records)


@given(observations=_GLANCES, cut=st.integers(0, 40), wait=st.sampled_from([0.0, 300.0, 900.0]))
def test_e8_any_history_survives_a_restart_at_any_evaluation(
    observations: list[Observation], cut: int, wait: float
) -> None:
    """With the state stored as plain values."""
    rule = replace(_RULES[0], for_seconds=wait)
    evaluations = [facts_of(observation, rule, 100) for observation in observations]
    whole = run(rule, evaluations)
    parts = run(rule, evaluations[:cut])
    parts += run(rule, evaluations[cut:], stored(parts[-1]) if parts else None, begin=1000.0 + 300.0 * len(parts))
    assert parts == whole


def stored(state: AlertState) -> AlertState:
    """Return a state after a round trip through plain values."""
    values = json.loads(json.dumps(asdict(state)))
    return AlertState(**{**values, "phase": AlertPhase(values["phase"])})


# Scenarios of group E that need only the state machine


def test_e1_ten_poor_records_are_no_alert() -> None:
    """A warming window is not evaluated, however poor and for however long."""
    warming = with_upper_bound(0.1, replace(EVALUATION, state=WindowState.WARMING, records=10, new_records=10))
    assert set(phases(LOW, [warming] * 100)) == {AlertPhase.OK}


def test_e2_an_empty_window_is_no_alert() -> None:
    """It is held, without a value."""
    empty = replace(
        EVALUATION, state=WindowState.WARMING, records=0, new_records=0, disagreement=None, chance_disagreement=None
    )
    for rule in (LOW, UNSURE, replace(LOW, below=None, above=0.1)):
        assert run(rule, [empty] * 10)[-1] == AlertState()
        assert (status(rule, AlertState(), empty).held, status(rule, AlertState(), empty).value) == (True, None)


def test_e5_flapping_around_the_threshold_is_one_episode() -> None:
    """A bound that crosses the threshold up and down for a day neither resolves nor fires again."""
    flapping = [with_upper_bound(0.795), with_upper_bound(0.805)] * 144
    assert episodes(LOW, [*[POOR] * 7, *flapping]) == 1
    assert episodes(LOW, flapping) == 0
    # Short swings beyond the hysteresis do not end it either.
    assert episodes(LOW, [*[POOR] * 7, *([GOOD] * 5 + [POOR]) * 40]) == 1


@pytest.mark.parametrize(
    "before", [AlertState(rule=LOW.fingerprint), PENDING, FIRING, RECOVERING], ids=lambda state: state.phase
)
def test_e6_a_silent_source_fires_its_own_alert_and_holds_the_accuracy_alert(before: AlertState) -> None:
    hours = [
        replace(POOR, state=WindowState.STALE, new_records=0, quiet_seconds=300.0 * evaluation)
        for evaluation in range(100)
    ]
    assert set(run(LOW, hours, before)) == {before}
    assert phases(SILENT, hours)[-1] is AlertPhase.FIRING


def test_e7_silence_while_pending_does_not_fire_from_age_alone() -> None:
    """Not even while the window is fresh and had enough new records: the same records confirm nothing."""
    fresh_but_quiet = replace(POOR, new_records=0)
    enough = run(LOW, [POOR] * 6)[-1]
    assert enough.dwell_records >= LOW.new_records_of(POOR.records)
    for before in (PENDING, enough):
        assert set(phases(LOW, [fresh_but_quiet] * 500, before)) == {AlertPhase.PENDING}
    assert phases(LOW, [*[fresh_but_quiet] * 500, replace(POOR, new_records=1)], enough)[-1] is AlertPhase.FIRING


def test_e7_silence_while_recovering_does_not_resolve_an_alert() -> None:
    """Resolving needs a new record too."""
    fresh_but_quiet = replace(GOOD, new_records=0)
    enough = run(LOW, [*[POOR] * 7, *[GOOD] * 6])[-1]
    assert set(phases(LOW, [fresh_but_quiet] * 500, enough)) == {AlertPhase.RECOVERING}
    assert phases(LOW, [*[fresh_but_quiet] * 500, replace(GOOD, new_records=1)], enough)[-1] is AlertPhase.OK


@pytest.mark.parametrize(
    ("rule", "before", "evaluation"),
    [
        pytest.param(LOW, run(LOW, [GOOD])[-1], GOOD, id="ok"),
        pytest.param(LOW, PENDING, POOR, id="pending"),
        pytest.param(LOW, FIRING, POOR, id="firing"),
        pytest.param(LOW, RECOVERING, GOOD, id="recovering"),
        pytest.param(SILENT, run(SILENT, [quiet(8000.0)])[-1], quiet(8000.0), id="silent, whose quiet time is kept"),
    ],
)
def test_e8_a_restart_brings_no_new_notification(rule: AlertRule, before: AlertState, evaluation: AlertFacts) -> None:
    """The first evaluation after a start has no elapsed time and changes nothing, dwell included."""
    first = replace(evaluation, elapsed_seconds=0.0, new_records=0)
    assert step(rule, stored(before), first, 9e9) == before


def test_e9_a_restart_without_state_fires_nothing() -> None:
    """The window warms up, and then the wait starts from zero."""
    warming = replace(POOR, state=WindowState.WARMING)
    first = replace(warming, elapsed_seconds=0.0)
    assert set(phases(LOW, [first, *[warming] * 50])) == {AlertPhase.OK}
    assert phases(LOW, [first, *[warming] * 50, POOR])[-1] is AlertPhase.PENDING
    assert phases(LOW, [replace(POOR, elapsed_seconds=0.0)])[-1] is AlertPhase.PENDING


@pytest.mark.parametrize("rule", [LOW, UNSURE, SILENT, DEGRADED], ids=lambda rule: rule.kind)
def test_e10_a_backlog_of_bad_records_holds_alerts_and_the_newest_records_decide(rule: AlertRule) -> None:
    backlog = replace(
        POOR, state=WindowState.CATCHING_UP, new_records=50_000, degraded=True, disagreement=0.5, quiet_seconds=9e9
    )
    assert set(run(rule, [backlog] * 100)) == {AlertState()}
    assert set(phases(rule, [*[backlog] * 100, *[GOOD] * 10])) == {AlertPhase.OK}


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
@pytest.mark.parametrize("at", range(16))
def test_e11_a_wall_clock_that_jumps_a_day_changes_only_since(jump: float, at: int) -> None:
    evaluations = [GOOD, *[POOR] * 8, *[GOOD] * 8]
    state, seen = AlertState(), []
    for number, evaluation in enumerate(evaluations):
        state = step(LOW, state, evaluation, 1e9 + 300.0 * number + (jump if number >= at else 0.0))
        seen.append(replace(state, since=0.0))
    assert seen == [replace(after, since=0.0) for after in run(LOW, evaluations)]


def test_e12_two_hours_of_suspension_are_one_stale_evaluation() -> None:
    """Running time stops meanwhile: a pending alert continues, and silence does not fire."""
    woken = replace(POOR, state=WindowState.STALE, new_records=0, elapsed_seconds=301.0, quiet_seconds=301.0)
    assert run(LOW, [woken], PENDING) == [PENDING]
    assert phases(SILENT, [woken, GOOD]) == [AlertPhase.OK, AlertPhase.OK]
    assert phases(LOW, [woken, POOR], PENDING) == [AlertPhase.PENDING] * 2


def test_e17_a_removed_segment_that_returns_has_no_alert_state() -> None:
    back = [replace(POOR, state=WindowState.WARMING, records=10 * evaluation) for evaluation in range(20)]
    assert set(phases(LOW, back)) == {AlertPhase.OK}
    assert status(LOW, AlertState(), back[0]).firing is False


def test_e18_a_lowered_threshold_takes_effect_and_restarts_the_wait() -> None:
    """An alert that fires only under the old rule ends at the first evaluation; a pending one waits from the start."""
    lowered = replace(LOW, below=0.75)
    # Just over the new threshold, and well over it.
    for between in (with_upper_bound(0.755), with_upper_bound(0.77)):
        assert step(lowered, FIRING, between, 50.0) == AlertState(AlertPhase.OK, 50.0, rule=lowered.fingerprint)
        assert step(lowered, RECOVERING, between, 50.0).phase is AlertPhase.OK
        assert step(lowered, PENDING, between, 50.0).phase is AlertPhase.OK
    assert step(lowered, PENDING, POOR, 50.0) == AlertState(AlertPhase.PENDING, 50.0, rule=lowered.fingerprint)
    assert phases(lowered, [POOR] * 7, PENDING) == [*[AlertPhase.PENDING] * 6, AlertPhase.FIRING]


def test_e18_an_alert_that_fires_under_both_rules_keeps_firing() -> None:
    """It keeps its `since`, so no notification is repeated."""
    lowered = replace(LOW, below=0.75)
    for before in (FIRING, RECOVERING):
        assert step(lowered, before, POOR, 50.0) == AlertState(
            AlertPhase.FIRING, FIRING.since, rule=lowered.fingerprint
        )


def test_e18_a_raised_threshold_waits_before_it_fires() -> None:
    """A reload alone never fires."""
    before = run(LOW, [GOOD])[-1]
    raised = replace(LOW, below=0.95)
    assert phases(raised, [GOOD] * 7, before) == [*[AlertPhase.PENDING] * 6, AlertPhase.FIRING]


def test_e20_rejected_records_fire_the_input_alert_and_not_the_accuracy_alert() -> None:
    """The accepted records may not be representative."""
    degraded = replace(POOR, state=WindowState.DEGRADED_INPUT, degraded=True)
    assert phases(DEGRADED, [degraded] * 10)[-1] is AlertPhase.FIRING
    assert set(phases(LOW, [degraded] * 10)) == {AlertPhase.OK}


# Rules


@pytest.mark.parametrize(
    ("rule", "accuracy", "threshold"),
    [
        pytest.param(AlertRule("r", below=0.8), None, 0.8, id="below"),
        pytest.param(AlertRule("r", above=0.97), 0.9, 0.97, id="above"),
        pytest.param(AlertRule("r", drop=0.05), 0.9, 0.85, id="drop"),
        pytest.param(AlertRule("r", drop=0.05), None, None, id="drop, no reference"),
        pytest.param(AlertRule("r", drop=0.5), 0.3, 0.0, id="drop to the bottom"),
        pytest.param(AlertRule("r", kind=AlertType.DISAGREEMENT, above=0.1), 0.9, 0.1, id="disagreement"),
        pytest.param(UNSURE, 0.9, 0.06, id="disagreement by chance"),
        pytest.param(SILENT, 0.9, None, id="silence"),
    ],
)
def test_threshold(rule: AlertRule, accuracy: float | None, threshold: float | None) -> None:
    """In the units of the page."""
    found = status(rule, AlertState(), replace(EVALUATION, reference_accuracy=accuracy)).threshold
    assert found == (None if threshold is None else pytest.approx(threshold))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"below": 0.81}, id="below"),
        pytest.param({"below": None, "drop": 0.80}, id="drop"),
        pytest.param({"below": None, "above": 0.80}, id="above"),
        pytest.param({"on": On.VALUE}, id="on"),
        pytest.param({"estimator": "doc_ts"}, id="estimator"),
        pytest.param({"for_seconds": 0.0}, id="for"),
        pytest.param({"hysteresis": 0.0}, id="hysteresis"),
        pytest.param({"new_records": 0.1}, id="new_records"),
    ],
)
def test_the_fingerprint_changes_with_the_meaning(other: dict[str, object]) -> None:
    """Each of these restarts the dwell."""
    assert replace(LOW, **other).fingerprint != LOW.fingerprint  # type: ignore[arg-type]


def test_the_fingerprint_ignores_name_severity_and_segments() -> None:
    """And 1 instead of 1.0."""
    reworded = replace(LOW, name="other", severity=Severity.CRITICAL, segments=("all",), for_seconds=1800)
    assert reworded.fingerprint == LOW.fingerprint
    assert replace(SILENT, after_seconds=60.0).fingerprint != SILENT.fingerprint


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        pytest.param("*", ["all", "site=A", "site=A,scanner=2"], [], id="everything"),
        pytest.param("all", ["all"], ["site=A", "site=all", "allx"], id="the whole"),
        pytest.param("site=A", ["site=A"], ["all", "site=AB", "xsite=A", "site=A,scanner=2"], id="one site"),
        pytest.param("site=*", ["site=A", "site="], ["all", "site=A,scanner=2"], id="each site"),
        pytest.param("site=*,scanner=*", ["site=A,scanner=2"], ["site=A", "all"], id="each scanner"),
        pytest.param("site=A,scanner=*", ["site=A,scanner=2"], ["site=B,scanner=2"], id="each scanner of a site"),
        pytest.param("site=North*", ["site=North 1", "site=North\n2"], ["site=South"], id="part of a value"),
        pytest.param("site=[AB].", ["site=[AB]."], ["site=A.", "site=Ax"], id="nothing but * is special"),
        pytest.param("**", ["all", "site=A"], ["site=A,scanner=2"], id="two stars are no lone star"),
    ],
)
def test_which_segments_a_rule_applies_to(pattern: str, yes: list[str], no: list[str]) -> None:
    """A star matches anything but a comma; a single star matches every segment."""
    rule = replace(LOW, segments=("other", pattern))
    assert [name for name in [*yes, *no] if rule.applies_to(name)] == yes


@pytest.mark.parametrize("pattern", ["*", "all", "site=*"])
def test_degraded_input_is_one_alert_of_the_model(pattern: str) -> None:
    """Whatever its list of segments: records are rejected before their segment is known."""
    rule = replace(DEGRADED, segments=(pattern,))
    assert [name for name in ("all", "site=A", "site=A,scanner=2") if rule.applies_to(name)] == ["all"]


def test_the_fingerprint_of_a_rule_without_a_metric_is_as_before() -> None:
    """Stored states stay valid. Another metric or class is another rule."""
    plain = AlertRule("low", drop=0.05)
    before = "accuracy estimator=adaptive on=upper drop=0.05 for=1800.0 hysteresis=0.01 new_records=0.2 after=0.0"
    assert plain.fingerprint == before
    changed = [
        replace(plain, metric=metric, of_class=of_class)
        for metric, of_class in ((Metric.SENSITIVITY, "a"), (Metric.SENSITIVITY, None), (Metric.PPV, "a"))
    ]
    assert len({rule.fingerprint for rule in (plain, *changed)}) == 4
