"""A rich site: a model whose accuracy fell at one scanner, with history, late labels and a real reference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.baselines.comparison import Baseline, BaselineKind, ClassChange, OutputDrift, Verdict
from monitor.core.baselines.output_drift import Measure
from monitor.core.change import FEWEST_BLOCKS, ChangeStatus, Direction
from monitor.core.estimate import Estimate, NoEstimate, Result, Why, WindowState
from monitor.core.history import Series, Span
from monitor.core.labels.realised import KeptRows, LabelColumns, LabelScope, label_sums
from monitor.core.labels.track_record import Answer, Block, BlockTruth, TrackRecord
from monitor.core.report import InputFacts, ReferenceFacts, Report, SegmentReport, WindowReports
from monitor.core.scores import Floats
from monitor.core.segments import Segment
from monitor.core.totals import Gauge, totals_of
from monitor.evaluation.alert_history import Transition
from monitor.reference.reference import Reference
from monitor.reference.summary import ReliabilityBin
from monitor.web.site import Site
from tests.web.sample_reports import HOUR, NOW, three_models

CLASSES = ("almost fatty", "scattered", "heterogeneous", "extremely dense")
MODEL = "density"
STEPS = {Span.RECENT: 30.0, Span.DAYS: 900.0, Span.MONTH: 14_400.0}
BUDGET = 7.4
"""The evidence at which the alert on a change fires, as a logarithm to base 10."""
FALL_AT = 0.6
"""When the accuracy begins to fall, as a share of the span."""
SITES: tuple[Segment, ...] = (
    (),
    *((("site", site),) for site in ("Aachen", "Bonn", "Celle")),
    *((("site", site), ("scanner", str(scanner))) for site in ("Aachen", "Bonn", "Celle") for scanner in (1, 2)),
)
SHIFTED: Segment = (("site", "Bonn"), ("scanner", "2"))
DRIFTED: Segment = (("site", "Celle"), ("scanner", "1"))
COLLECTING: Segment = (("site", "Celle"), ("scanner", "2"))
LABELLED: Segment = (("site", "Aachen"),)
CONFIRMED: Segment = (("site", "Bonn"),)


def outputs(records: int, seed: int, *, noise: float = 1.0) -> tuple[Floats, np.ndarray]:
    """Outputs of an overconfident model with their labels; more noise means worse images."""
    random = np.random.default_rng(seed)
    truth = random.choice(4, records, p=(0.1, 0.4, 0.4, 0.1))
    logits = -0.9 * (np.arange(4)[None] - truth[:, None] - random.normal(0.0, 0.33 * noise, records)[:, None]) ** 2
    logits *= 7.0 / noise
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    return likely / likely.sum(axis=1, keepdims=True), truth


@cache
def sample_reference() -> Reference:
    """A reference of that model, with its reliability over 15 bins."""
    likely, truth = outputs(600, 1)
    sites = {"site": ["Aachen", "Bonn", "Bonn"] * 200}
    made = Reference.calibrate(likely, truth, model=MODEL, version="2.1", classes=CLASSES, segments=sites)
    if made.summary.reliability:
        return made
    confidence = likely.max(axis=1)
    right = likely.argmax(axis=1) == truth
    scaled = likely ** (1.0 / made.calibration.temperature)
    scaled_confidence = (scaled / scaled.sum(axis=1, keepdims=True)).max(axis=1)
    summary = replace(
        made.summary,
        reliability=_bins(confidence, right),
        reliability_scaled=_bins(scaled_confidence, right),
    )
    return replace(made, summary=summary)


def _bins(confidence: Floats, right: np.ndarray) -> tuple[ReliabilityBin, ...]:
    places = np.minimum((confidence * 15).astype(int), 14)
    return tuple(
        ReliabilityBin(
            int((places == one).sum()), int(right[places == one].sum()), float(confidence[places == one].mean())
        )
        if (places == one).any()
        else ReliabilityBin(0, 0, 0.0)
        for one in range(15)
    )


def facts_of(reference: Reference) -> ReferenceFacts:
    """The facts of a reference in a report."""
    return ReferenceFacts(
        reference.version,
        reference.created,
        reference.fingerprint,
        reference.classes,
        reference.calibration.records,
        reference.calibration.accuracy,
        reference.calibration.temperature,
        reference.calibration.confidence,
        reference.summary.class_predicted,
    )


@cache
def sample_report() -> Report:
    """The last evaluation: every estimator of every window, from real outputs."""
    reference = sample_reference()
    facts = facts_of(reference)
    segments = [_window(segment, reference, index) for index, segment in enumerate(SITES)]
    dead = SegmentReport(
        (("site", "Dresden"),), 88, WindowState.WARMING, last_record_at=NOW - 20.0, state_since=NOW - HOUR
    )
    problems = InputFacts(
        rejected_share=0.012, hints=("12 rejected records look like percentages: divide by 100",), referred=1_234
    )
    return Report(MODEL, NOW - 4.0, 0.031, facts, (*segments, dead), problems, 200, {}, 500)


def _window(segment: Segment, reference: Reference, seed: int) -> SegmentReport:
    shifted = segment == SHIFTED
    likely, _ = outputs(2000, 100 + seed, noise=1.65 if shifted else 1.15 if segment == SHIFTED[:1] else 1.0)
    found = reference.calibration.estimate(likely.astype(np.float32))
    results: dict[str, Result] = dict(found.estimators)
    if not shifted:
        results["cpc_ac"] = NoEstimate(Why.ALL_SETS_EMPTY, 2000)
    headline = results["adaptive"]
    assert isinstance(headline, Estimate)
    upper = headline.interval.upper if headline.interval else None
    measured = totals_of(Gauge(reference.calibration), likely.astype(np.float32)).performance()
    assert measured is not None
    threshold = reference.calibration.accuracy - 0.05
    low = AlertStatus(
        "accuracy_low",
        AlertType.ACCURACY,
        Severity.CRITICAL,
        AlertPhase.FIRING if shifted else AlertPhase.OK,
        NOW - 2100.0 if shifted else 0.0,
        held=False,
        estimator="adaptive",
        threshold=threshold,
        value=upper,
        baseline=_baseline(segment, reference).kind,
    )
    apart = AlertStatus(
        "estimators_disagree", AlertType.DISAGREEMENT, Severity.INFO, AlertPhase.PENDING if shifted else AlertPhase.OK,
        NOW - 900.0 if shifted else 0.0, held=False, threshold=found.chance_disagreement, value=found.disagreement,
    )  # fmt: skip
    change = _change(segment)
    drop = AlertStatus(
        "accuracy_drop", AlertType.CHANGE, Severity.CRITICAL, AlertPhase.FIRING if shifted else AlertPhase.OK,
        NOW - 2700.0 if shifted else 0.0, held=False, threshold=change.threshold, value=change.evidence, upward=True,
        direction=change.direction,
    )  # fmt: skip
    silent = AlertStatus("silent", AlertType.SILENT, Severity.WARNING, AlertPhase.OK, 0.0, held=False)
    drift, changed = _drift(segment)
    drifting = AlertStatus(
        "output_drift", AlertType.OUTPUT_DRIFT, Severity.WARNING,
        AlertPhase.PENDING if segment == DRIFTED else AlertPhase.OK, NOW - 1200.0 if segment == DRIFTED else 0.0,
        held=not drift, threshold=drift[0].limit if drift else None, value=drift[0].distance if drift else None,
        upward=True, baseline=_baseline(segment, reference).kind,
    )  # fmt: skip
    return SegmentReport(
        segment,
        2000,
        WindowState.OK,
        results,
        found.disagreement,
        found.chance_disagreement,
        tuple(int(count) for count in np.bincount(likely.argmax(axis=1), minlength=4)),
        NOW - 9.0,
        NOW - 4.0,
        (drop, low, apart, drifting, silent),
        baseline=_baseline(segment, reference),
        drift=drift,
        changed_class=changed,
        verdict=None
        if segment == COLLECTING
        else Verdict.FELL
        if shifted
        else Verdict.DRIFTED
        if segment == DRIFTED
        else Verdict.HOLDS,
        state_since=NOW - 3 * HOUR,
        field=found.field,
        performance=measured.estimates().window(0),
        class_mix=measured.class_mix().window(0),
        changes=(change,),
    )


def _baseline(segment: Segment, reference: Reference) -> Baseline:
    """What a window is compared with: the reference, labelled records, or its own, complete or not."""
    accuracy, records = reference.calibration.accuracy, reference.calibration.records
    if not segment:
        return Baseline(BaselineKind.REFERENCE, accuracy, records, 2000, None, None, verified=True)
    if segment == LABELLED:
        return Baseline(BaselineKind.LABELLED, accuracy - 0.03, 1234, 2000, None, None, verified=True)
    own = BaselineKind.OWN
    if segment == COLLECTING:
        return Baseline(own, None, 1200, 2000, NOW - 5 * HOUR, NOW - 4 * HOUR, verified=False)
    began, ended = NOW - 240 * HOUR, NOW - 200 * HOUR
    return Baseline(own, accuracy - 0.01, 2000, 2000, began, ended, verified=segment == CONFIRMED)


def _drift(segment: Segment) -> tuple[tuple[OutputDrift, ...], ClassChange | None]:
    """How far the outputs of a window are from its baseline; unknown while that is collected."""
    if segment == COLLECTING:
        return (), None
    mix, confidence = (0.31, 0.06) if segment == DRIFTED else (0.04, 0.19) if segment == SHIFTED else (0.03, 0.02)
    found = OutputDrift(Measure.CLASS_MIX, mix, 0.06, 0.1), OutputDrift(Measure.CONFIDENCE, confidence, 0.05, 0.1)
    return found, ClassChange(2, 0.182, 0.0) if segment == DRIFTED else ClassChange(1, 0.41, 0.39)


def _change(segment: Segment) -> ChangeStatus:
    """The evidence of a drop: passed the budget, none, or none yet; a labelled baseline leaves much unknown."""
    if segment == COLLECTING:
        return ChangeStatus(Direction.DOWN, None, BUDGET, None, None, None, 23)
    tolerance = 0.081 if segment == LABELLED else 0.02
    if segment == SHIFTED:
        return ChangeStatus(Direction.DOWN, 12.4, BUDGET, tolerance, NOW - 3420.0, 340, FEWEST_BLOCKS)
    return ChangeStatus(Direction.DOWN, 0.3, BUDGET, tolerance, NOW - 200.0, 12, FEWEST_BLOCKS)


DETECTOR = "detector"


def detected(records: int, seed: int, *, prevalence: float = 0.04) -> tuple[Floats, np.ndarray]:
    """Outputs of a cancer detector with their labels."""
    random = np.random.default_rng(seed)
    cases = random.random(records) < prevalence
    likely = 1.0 / (1.0 + np.exp(8.3 - 3.2 * random.normal(3.2 * cases, 1.0)))
    return np.stack([1.0 - likely, likely], axis=1), cases.astype(np.int64)


@cache
def detector_reference() -> Reference:
    """A reference of the detector, which decides cancer at 0.13 or above."""
    likely, truth = detected(4000, 1)
    return Reference.calibrate(likely, truth, model=DETECTOR, classes=("benign", "cancer"), decide="cancer=0.13")


def detector_report(records: int = 2000, reference: Reference | None = None, likely: Floats | None = None) -> Report:
    """The last evaluation of the detector, as columns, with performance as far as the reference has it."""
    reference = reference or detector_reference()
    if likely is None:
        likely, _ = detected(records, 2, prevalence=0.08)
    measured = totals_of(Gauge(reference.calibration), likely.astype(np.float32))
    found = measured.estimate()
    window = SegmentReport(
        (), records, WindowState.OK, dict(found.estimators), found.disagreement, found.chance_disagreement,
        tuple(measured.predicted[0].tolist()), NOW - 9.0, NOW - 4.0, field=found.field,
    )  # fmt: skip
    windows = replace(WindowReports.of([window]), performance=measured.performance())
    return Report(DETECTOR, NOW - 4.0, 0.01, facts_of(reference), windows, most_segments=200)


AUDITED = "audited"
DAY = 86400.0
_SHARE, _LABELLED_RECORDS = 0.02, 5000
AUDITED_SITES = ("Aachen", "Bonn", "Celle", "Dresden")
"""The audit says that estimates hold; that they are wrong, with labels missing; biased labels disagree; no labels."""


@cache
def audited_report() -> Report:
    """A model whose labels come late, as columns: of an audit, and of cases that doctors chose."""
    reference = sample_reference()
    windows = []
    for segment in ((), *((("site", site),) for site in AUDITED_SITES)):
        found = reference.calibration.estimate(outputs(2000, 300)[0].astype(np.float32))
        low = AlertStatus(
            "accuracy_low", AlertType.ACCURACY, Severity.CRITICAL, AlertPhase.OK, 0.0,
            held=False, estimator="adaptive", threshold=reference.calibration.accuracy - 0.05,
        )  # fmt: skip
        windows.append(
            SegmentReport(
                segment,
                2000,
                WindowState.OK,
                dict(found.estimators),
                found.disagreement,
                found.chance_disagreement,
                (),
                NOW - 9.0,
                NOW - 4.0,
                (low,),
                state_since=NOW - 9 * DAY,
                field=found.field,
            )
        )
    rows = [_kept(place, site) for place, site in enumerate(AUDITED_SITES)]
    places = np.zeros(len(rows), dtype=np.int64), np.arange(1, len(rows) + 1)
    sums = label_sums(rows, places, len(windows), len(CLASSES), LabelScope(30 * DAY, 0.0, _SHARE), NOW)
    columns = replace(
        WindowReports.of(windows),
        labels=LabelColumns.of(sums, held=1234, joined=1200, share=_SHARE),
        track_records=(
            track_record([0.86, 0.88, 0.85, 0.87, 0.86]),
            track_record([0.86, 0.88, 0.85, 0.87, 0.86]),
            track_record([0.87, 0.86, 0.84, 0.70]),
            track_record([0.87, 0.71], audited=False),
            track_record([None, None, 0.5], labels=4),
        ),
    )
    facts = InputFacts(rejected_share=0.0, unmatched_labels=34)
    return Report(AUDITED, NOW - 4.0, 0.02, facts_of(reference), columns, facts, 200, {}, 500)


def _kept(place: int, site: str) -> KeptRows:
    """The kept predictions of a site."""
    random = np.random.default_rng(place)
    count = _LABELLED_RECORDS
    likely, truth = outputs(count, 400 + place, noise=1.65 if site == "Bonn" else 1.0)
    at = np.sort(NOW - 30 * DAY + random.random(count) * 30 * DAY)
    picked = random.random(count) < _SHARE
    ids = random.integers(1 << 60, 1 << 63, count, dtype=np.uint64)
    ids[picked] = 2 + np.arange(picked.sum(), dtype=np.uint64)
    came = (random.random(count) < (0.7 if site == "Bonn" else 1.0)) & (at < NOW - 8 * DAY)
    unsure = likely.max(axis=1) < 0.7
    chosen = unsure & (random.random(count) < 0.2)
    labelled = came & {"Celle": chosen & ~picked, "Dresden": np.zeros(count, dtype=np.bool_)}.get(site, picked | chosen)
    oldest, inside = np.full((2, 1 + len(AUDITED_SITES)), np.nan)
    oldest[[0, place + 1]], inside[[0, place + 1]] = at[count - 2000], 2000
    return KeptRows(
        ids, at, likely.max(axis=1), likely.argmax(axis=1), np.full(count, place), np.where(labelled, truth, -1),
        np.full(count, 4.5 * DAY), oldest, np.nan_to_num(inside).astype(np.int64),
    )  # fmt: skip


def track_record(
    truths: Sequence[float | None], *, audited: bool = True, labels: int = 180, said: float = 0.868
) -> TrackRecord:
    """Blocks of four days; `truths` are what labels say of each."""
    record, long = TrackRecord(), 4 * DAY
    for index, value in enumerate(truths):
        began = NOW - 8 * DAY - long * (len(truths) - index)
        wiggle = 0.006 * (-1) ** index
        answers: dict[str, Answer] = {
            "adaptive": (said + wiggle, said - 0.02, said + 0.022),
            "doc_ts": (said + 2 * wiggle - 0.01, said - 0.03, said + 0.012),
            "ac_ts": (0.91, None, None),
        }
        truth = None if value is None else BlockTruth(labels, value, value - 0.06, value + 0.05, audited)
        record = record.add(Block(began, began + long - 600.0, 2000, 0.87, answers, truth))
    return record


def sample_series(span: Span, *, fall: float = 0.165, points: int = 288, seed: int = 7) -> Series:
    """A history: warming, ok, then falling, with a gap and a span of degraded input."""
    random = np.random.default_rng(seed)
    step = STEPS[span]
    at: Floats = np.arange(1 - points, 1, dtype=np.float64) * step + (NOW - 4.0)
    share = np.linspace(0.0, 1.0, points)
    accuracy = 0.872 - fall / (1.0 + np.exp(-40.0 * (share - FALL_AT - 0.05))) + random.normal(0.0, 0.004, points)
    half = 0.021 + 0.05 * np.exp(-share * 30.0)
    states = [WindowState.WARMING if one < 0.04 else WindowState.OK for one in share]
    for index in np.flatnonzero((share > 0.4) & (share < 0.52)):
        states[index] = WindowState.DEGRADED_INPUT
    kept = (share < 0.22) | (share > 0.29)
    known = np.array([state is WindowState.OK for state in states])

    def column(values: Floats) -> Floats:
        return np.where(known, values, np.nan)[kept]

    return Series(
        at[kept],
        tuple(state for state, keep in zip(states, kept.tolist(), strict=True) if keep),
        column(accuracy),
        column(accuracy - half),
        column(np.minimum(accuracy + half, 1.0)),
        column(accuracy - np.abs(random.normal(0.0, 0.012, points))),
        column(np.where(share > FALL_AT, 0.04, 0.01)),
        np.full(points, 2000)[kept],
        None if span is Span.RECENT else step,
        (sample_reference().fingerprint[:12],) * int(kept.sum()),
        (
            np.cumsum(random.normal(0.0, 0.12, points)) * 0.4
            + np.where(fall * share > fall * FALL_AT, 111, 0) * (share - FALL_AT)
        )[kept].clip(-1.0, 12.4 if fall else 1.5),
    )


def sample_rows() -> tuple[Transition, ...]:
    """An alert history: one resolved and two gone alerts, and those that fire."""
    ok, pending, firing, recovering = AlertPhase
    kind = AlertType.ACCURACY, Severity.CRITICAL
    began, bonn = NOW - 30 * HOUR, "site=Bonn"
    return (
        Transition(NOW - 70 * HOUR, "site=Essen", "accuracy_low", ok, firing, 0.0, *kind, 0.7, 0.8, 0.69, 1500),
        Transition(NOW - 60 * HOUR, "site=Essen", "accuracy_low", firing, None, NOW - 70 * HOUR),
        Transition(began - HOUR, bonn, "accuracy_low", ok, pending, 0.0, *kind, 0.78, 0.8, 0.77, 2000),
        Transition(began, bonn, "accuracy_low", pending, firing, began - HOUR, *kind, 0.75, 0.8, 0.741, 2000),
        Transition(NOW - 6 * HOUR, bonn, "accuracy_low", firing, recovering, began, *kind, 0.83, 0.8, 0.82, 2000),
        Transition(NOW - 5 * HOUR, bonn, "accuracy_low", recovering, ok, began, *kind, 0.85, 0.8, 0.843, 2000),
        Transition(NOW - 2 * HOUR, "site=Essen", "silent", firing, None, NOW - 9 * HOUR),
    )


def sample_site(reports: Mapping[str, Report] | None = None) -> Site:
    """The site, with the three models of the other pages."""
    shown = {**three_models(), MODEL: sample_report()} if reports is None else dict(reports)
    references = {MODEL: sample_reference, AUDITED: sample_reference, DETECTOR: detector_reference}

    def history(model: str, segment: str, span: Span) -> Series | None:
        if model != MODEL or all(one.name != segment for one in shown[MODEL].segments):
            return None
        return sample_series(span, fall=0.165 if segment == "site=Bonn,scanner=2" else 0.0)

    return Site(
        reports=lambda: shown,
        now=lambda: NOW,
        version="1.2.3",
        history=history,
        alert_rows=lambda: {MODEL: sample_rows()},
        reference=lambda model: references[model]() if model in references else None,
    )
