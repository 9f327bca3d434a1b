"""Reports of three models in many states."""

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.estimate import Estimate, Interval, NoEstimate, Result, Why, WindowState
from monitor.core.report import InputFacts, ReferenceFacts, Report, SegmentReport

NOW = 1_763_300_000.0
HOUR = 3600.0


def estimated(value: float, half: float = 0.02) -> dict[str, Result]:
    """Results whose headline is a value with an interval around it."""
    return {"adaptive": Estimate(value, 5000, Interval(value - half, min(1.0, value + half)))}


def low(phase: AlertPhase, value: float | None = None, *, held: bool = False) -> AlertStatus:
    """An alert on low accuracy."""
    kind, severity = AlertType.ACCURACY, Severity.CRITICAL
    return AlertStatus("accuracy_low", kind, severity, phase, NOW - 5400.0, held, "adaptive", 0.80, value)


def silent(phase: AlertPhase) -> AlertStatus:
    """An alert on silence."""
    return AlertStatus("silent", AlertType.SILENT, Severity.WARNING, phase, NOW - 2 * HOUR, held=False)


def apart(phase: AlertPhase) -> AlertStatus:
    """An info alert on disagreement."""
    return AlertStatus(
        "no_agreement", AlertType.DISAGREEMENT, Severity.INFO, phase, NOW - 5400.0, False, None, 0.03, 0.04
    )


def segment(
    site: str | None,
    state: WindowState = WindowState.OK,
    results: dict[str, Result] | None = None,
    *alerts: AlertStatus,
    records: int = 5000,
    quiet: float | None = 42.0,
) -> SegmentReport:
    """One window."""
    name = () if site is None else (("site", site),)
    seen = None if quiet is None else NOW - quiet
    disagreement = None if results is None else 0.013
    return SegmentReport(name, records, state, results or {}, disagreement, 0.02, (), seen, NOW - 60.0, alerts)


def reference(accuracy: float) -> ReferenceFacts:
    """A reference of some accuracy."""
    return ReferenceFacts("2.1", "2026-10-01T00:00:00Z", "3fa2c81b", ("benign", "malignant"), 20_000, accuracy, 1.3)


def three_models() -> dict[str, Report]:
    """Three models: one fine, one with firing, pending, warming and silent sites, one without a reference."""
    density = Report(
        "density",
        NOW - 20.0,
        0.04,
        reference(0.871),
        (
            segment(None, WindowState.OK, estimated(0.846), low(AlertPhase.OK, 0.866), silent(AlertPhase.OK)),
            segment("Aachen", WindowState.OK, estimated(0.869, 0.03), low(AlertPhase.OK, 0.899)),
            segment("Bonn", WindowState.OK, estimated(0.742, 0.03), low(AlertPhase.FIRING, 0.772), records=1800),
            segment("Celle", WindowState.OK, estimated(0.775, 0.02), low(AlertPhase.PENDING, 0.795), records=3100),
            segment("Dresden", WindowState.STALE, None, low(AlertPhase.OK), silent(AlertPhase.FIRING), quiet=5 * HOUR),
            segment("Essen", WindowState.WARMING, None, low(AlertPhase.OK, held=True), records=88),
            segment("Fulda", WindowState.DEGRADED_INPUT, None, low(AlertPhase.FIRING, 0.77, held=True)),
            segment("Gera", WindowState.OK, {"adaptive": NoEstimate(Why.ALL_SETS_EMPTY, 900)}, low(AlertPhase.OK)),
        ),
        InputFacts(rejected_share=0.031, hints=("many records look like percentages",)),
    )
    triage = Report(
        "triage", NOW - 10.0, 0.01, reference(0.93), (segment(None, WindowState.OK, estimated(0.934, 0.008)),)
    )
    nodules = Report(
        "nodules", NOW - 10.0, 0.0, None, (segment(None, WindowState.NO_REFERENCE, records=0, quiet=None),)
    )
    return {report.model: report for report in (triage, density, nodules)}
