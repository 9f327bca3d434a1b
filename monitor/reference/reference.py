"""The reference: the calibration of a labelled set, in one file without records."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from monitor.core.baselines.labelled_baselines import FEWEST_RECORDS, SegmentBaselines
from monitor.core.baselines.output_drift import OutputReference
from monitor.core.calibration import Calibration, calibrate, or_none
from monitor.core.change import MEMBERS, MemberValues
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators import ESTIMATORS
from monitor.core.estimators.conformal import ConformalAtConfidence
from monitor.core.estimators.ensemble import MIXED, CalibratedEstimator, adaptive_weight
from monitor.core.intervals import DEFAULT_LEVEL, LEVELS, ErrorQuantiles, IntervalTables, Progress
from monitor.core.performance import ClassCurves, ClassReference, every_target
from monitor.core.record_columns import Records
from monitor.core.scores import Integers, LabelledOutputs, Singles, label_outputs
from monitor.core.segments import Segmentation
from monitor.core.totals import Gauge, member_values
from monitor.errors import InvalidReference, Problem, UsageError
from monitor.records.columns import is_segment
from monitor.records.offline_files import accept_array, as_kind
from monitor.records.record_schema import OutputKind
from monitor.records.rejections import listed
from monitor.reference.file_format import (
    MAX_BYTES,
    READ,
    Array,
    Intervals,
    OutputTables,
    PerformanceTables,
    Quantiles,
    ReferenceDocument,
    SampleTables,
    SegmentTables,
    check_reliability,
    from_bytes,
    pack,
    to_bytes,
    unpack,
)
from monitor.reference.summary import Concern, ReferenceSummary, summarise

NO_ADAPTIVE = (
    "made by an older version of cpcmon, without what adaptive and the field interval need: the main number is the consensus"
    " until you run `cpcmon calibrate` again on the same labelled records"
)
"""What an old reference lacks, and what to do."""


_MOST_OF_A_KIND = 1_000
"""Right decisions, and wrong ones, of which the numbers are kept."""


class LabelledSample(NamedTuple):
    """What a change detector watches of some right and some wrong decisions, evenly spread over their confidences."""

    values: Singles
    """Shape (members, records); the right decisions come first."""
    right: int

    @classmethod
    def of(cls, calibration: Calibration, records: Records, labelled: LabelledOutputs) -> Self:
        """Return those of a reference."""
        order = np.argsort(labelled.outputs.scaled.confidence, kind="stable")
        chosen = [_spread(order[labelled.correct[order] == right]) for right in (True, False)]
        rows = np.concatenate(chosen)
        decided = None if records.decided is None else records.decided[rows]
        values = member_values(Gauge(calibration, ()), records.vectors[rows], decided)
        return cls(values.astype(np.float32), len(chosen[0]))


def _spread(rows: Integers) -> Integers:
    kept = min(len(rows), _MOST_OF_A_KIND)
    return rows[((np.arange(kept) + 0.5) * (len(rows) / max(1, kept))).astype(np.int64)]


@dataclasses.dataclass(frozen=True, eq=False)
class Reference:
    """The reference of a model. References with the same fingerprint are equal."""

    model: str
    version: str
    created: str
    classes: tuple[str, ...]
    calibration: Calibration
    summary: ReferenceSummary
    fingerprint: str = ""
    sample: LabelledSample | None = None
    """None for a reference of an older release."""

    @property
    def title(self) -> str:
        """The model name, and the version if known."""
        return f"{self.model} {self.version}".rstrip()

    def warnings(self) -> dict[Concern, str]:
        """Return the warnings with their messages."""
        old = {} if self.calibration.adaptive_weight is not None else {Concern.NO_ADAPTIVE: NO_ADAPTIVE}
        return {**self.summary.warnings(), **old}

    def __repr__(self) -> str:
        """Return a short description."""
        numbers = self.calibration
        return (
            f"Reference(model={self.model!r}, version={self.version!r}, classes=({listed(self.classes)}),"
            f" records={numbers.records}, accuracy={numbers.accuracy:.4f})"
        )

    def __eq__(self, other: object) -> bool:
        """Compare fingerprints."""
        return isinstance(other, Reference) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        """Hash the fingerprint."""
        return hash(self.fingerprint)

    @classmethod
    def calibrate(  # noqa: PLR0913 - most of them keyword-only
        cls,
        probabilities: ArrayLike,
        labels: ArrayLike,
        *,
        model: str,
        version: str = "",
        classes: Sequence[str] | None = None,
        kind: str = OutputKind.PROBS,
        level: float = DEFAULT_LEVEL,
        decide: str | ArrayLike = DecidedBy.ARGMAX,
        segments: Mapping[str, ArrayLike] | None = None,
        segment_by: Sequence[Sequence[str]] | None = None,
    ) -> Self:
        """Return a reference from outputs of shape (records, classes) and their labels (names or indices).

        `decide` says how the device decides: `argmax`, a threshold such as `cancer=0.13`, or its decisions themselves, as
        labels are; None for a record that it referred to a person, which is left out.

        `segments` are columns such as `{"site": ["A", "B", …], "scanner": […]}`, None where a record has no value. Each
        segment with enough records gets a labelled baseline: by each column, or by the sets of columns `segment_by`, such as
        `[["site"], ["site", "scanner"]]`.
        """
        decided, text = (None, decide) if isinstance(decide, str) else (decide, DecidedBy.FIELD)
        named = None if classes is None else tuple(str(name) for name in classes)
        batch = accept_array(
            probabilities, labels, kind=as_kind(kind), classes=named, decided=decided, segments=segments
        )
        return cls.from_accepted(
            batch.records,
            model=model,
            version=version,
            classes=batch.classes,
            level=level,
            decision=Decision.parsed("decide", text, batch.classes),
            segment_by=[(name,) for name in segments or ()] if segment_by is None else segment_by,
        )

    @classmethod
    def from_accepted(
        cls,
        records: Records,
        *,
        model: str,
        version: str = "",
        classes: tuple[str, ...],
        level: float = DEFAULT_LEVEL,
        progress: Progress | None = None,
        decision: Decision | None = None,
        segment_by: Sequence[Sequence[str]] = (),
    ) -> Self:
        """Return a reference from validated records with labels; with decisions, if they decide.

        With labelled baselines of the segments by these sets of fields.
        """
        decision, labels = decision or Decision(), records.labels
        if len(records) == 0 or labels is None:
            raise InvalidReference(Problem("reference", "at least one labelled record", "none"))
        if not str(model or "").strip():
            raise InvalidReference(Problem("model", "a name", repr(model)))
        if not LEVELS[0] <= level <= LEVELS[1]:
            raise InvalidReference(Problem("level", f"a number from {LEVELS[0]} to {LEVELS[1]}", repr(level)))
        if decision.by is DecidedBy.FIELD and records.decided is None:
            raise InvalidReference(Problem("decide", "the decision of each record", "none"))
        split_by = _split_by(records, segment_by)
        labelled = label_outputs(records.vectors, labels, decided=decision.column(records.vectors, records.decided))
        calibration = calibrate(labelled, level=level, progress=progress, decision=decision)
        if split_by:
            baselines = SegmentBaselines.of(calibration, records, split_by)
            calibration = dataclasses.replace(calibration, segments=baselines)
        reference = cls(
            model=str(model),
            version=str(version),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            classes=classes,
            calibration=calibration,
            summary=summarise(labelled),
            sample=LabelledSample.of(calibration, records, labelled),
        )
        return dataclasses.replace(reference, fingerprint=to_bytes(_document(reference))[1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the reference atomically."""
        content, _ = to_bytes(_document(self))
        target = Path(path)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp creates private files; the daemon may run as another user.
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read and verify a reference."""
        where = os.fspath(path)
        try:
            with Path(path).open("rb") as file:
                # read(n) allocates n bytes first, so n is limited to the file size.
                raw = file.read(min(os.fstat(file.fileno()).st_size, MAX_BYTES) + 1)
        except OSError as error:
            raise InvalidReference(Problem(where, "a reference file", error.strerror or str(error))) from error
        document, fingerprint = from_bytes(where, raw)
        try:
            return _reference(cls, document, fingerprint)
        except (TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise InvalidReference(Problem(where, READ, str(error))) from error


_R = TypeVar("_R", bound=Reference)


def _split_by(records: Records, segment_by: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of fields by which a reference is split; raises UsageError."""
    try:
        found = Segmentation(tuple(tuple(names) for names in segment_by)).split_by
    except ValueError as error:
        raise UsageError(str(error)) from error
    for name in dict.fromkeys(name for names in found for name in names):
        if name not in records.fields or records.fields[name].are("").all():
            raise UsageError(Problem("segments", f"records with the field {name!r}", "none"))
    return found


def _document(reference: Reference) -> ReferenceDocument:
    numbers, tables = reference.calibration, reference.calibration.intervals
    return ReferenceDocument(
        written_by=f"cpcmon {installed_version('cpcmon')}",
        model=reference.model,
        version=reference.version,
        created=reference.created,
        classes=reference.classes,
        records=numbers.records,
        right=numbers.right,
        accuracy=numbers.accuracy,
        temperature=numbers.temperature,
        summary=reference.summary,
        intervals=Intervals(
            level=tables.level,
            sizes=pack(tables.sizes),
            disagreement=pack(tables.disagreement),
            errors={name: Quantiles(e.bias, pack(e.low), pack(e.high)) for name, e in tables.errors.items()},
        ),
        estimators={one.form.name: _state(one.estimator) for one in numbers.estimators},
        decision=numbers.decision.text(reference.classes),
        performance=None if numbers.performance is None else _performance_tables(numbers.performance),
        adaptive_weight=numbers.adaptive_weight,
        outputs=None if numbers.outputs is None else _output_tables(numbers.outputs),
        segments=None if numbers.segments is None else _segment_tables(numbers.segments),
        sample=None if reference.sample is None else _sample_tables(reference.sample),
    )


def _reference(cls: type[_R], document: ReferenceDocument, fingerprint: str) -> _R:
    if not 0 <= document.right <= document.records or document.records == 0 or not document.temperature > 0.0:
        raise ValueError("impossible counts or temperature")
    if not len(document.classes) == len(document.summary.class_records) >= 2:
        raise ValueError("classes and their counts do not match")
    check_reliability(document)
    tables = document.intervals
    if not LEVELS[0] <= tables.level <= LEVELS[1]:
        raise ValueError(f"a level of {tables.level}")
    errors = {n: ErrorQuantiles(e.bias, unpack(e.low), unpack(e.high)) for n, e in tables.errors.items()}
    decision, estimators = (
        Decision.parsed("decision", document.decision, document.classes),
        _estimators(document.estimators),
    )
    weight = document.adaptive_weight
    if weight is None and (weight := _older_weight(document, decision, estimators)) is not None:
        errors[ADAPTIVE] = _wider(*(errors[name] for name in MIXED if name in errors))
    intervals = IntervalTables(
        level=tables.level,
        reference_records=document.records,
        sizes=unpack(tables.sizes),
        errors=errors,
        disagreement=unpack(tables.disagreement),
    )
    _check_intervals(intervals, weight)
    calibration = Calibration(
        records=document.records,
        right=document.right,
        classes=len(document.classes),
        temperature=document.temperature,
        estimators=estimators,
        intervals=intervals,
        decision=decision,
        performance=_class_reference(document),
        adaptive_weight=weight,
        outputs=_outputs(document, intervals.sizes),
    )
    calibration = dataclasses.replace(calibration, segments=_segment_baselines(document, calibration))
    # An edited file may have numbers that only an estimate shows to be invalid.
    calibration.estimate(np.eye(len(document.classes), dtype=np.float32), decided=np.arange(len(document.classes)))
    return cls(
        model=document.model,
        version=document.version,
        created=document.created,
        classes=document.classes,
        calibration=calibration,
        summary=document.summary,
        fingerprint=fingerprint,
        sample=_sample(document, calibration),
    )


def _sample_tables(kept: LabelledSample) -> SampleTables:
    return SampleTables(pack(kept.values.ravel()), kept.right)


def _sample(document: ReferenceDocument, calibration: Calibration) -> LabelledSample | None:
    if (tables := document.sample) is None or calibration.adaptive_weight is None:
        return None
    members, values = MemberValues(calibration), unpack(tables.values).reshape(len(MEMBERS), -1)
    if not 0 <= tables.right <= values.shape[1] <= document.records or tables.right > document.right:
        raise ValueError("a sample of another number of records")
    low, high = members.low[:, None] - 1e-6, members.high[:, None] + 1e-6
    if values.dtype != np.float32 or not np.all((low <= values) & (values <= high)):
        raise ValueError("a sample with impossible values")
    return LabelledSample(values, tables.right)


def _performance_tables(kept: ClassReference) -> PerformanceTables:
    curves = kept.curves
    return PerformanceTables(
        starts=pack(curves.starts),
        scores=pack(curves.scores),
        values=pack(curves.values),
        cases=pack(kept.cases),
        right=pack(kept.right),
        auroc=or_none(kept.auroc),
        decided=pack(kept.decided),
        edges=pack(kept.edges),
        profiles=pack(kept.profiles.ravel()),
        low=pack(kept.low),
        high=pack(kept.high),
    )


def _class_reference(document: ReferenceDocument) -> ClassReference | None:
    if (tables := document.performance) is None:
        return None
    classes, profiles = len(document.classes), unpack(tables.profiles)
    starts, scores, values = unpack(tables.starts), unpack(tables.scores), unpack(tables.values)
    kept = ClassReference(
        ClassCurves(starts, scores, values),
        unpack(tables.cases),
        unpack(tables.right),
        unpack(tables.decided),
        float("nan") if tables.auroc is None else tables.auroc,
        unpack(tables.edges),
        profiles.reshape(-1, classes) if len(profiles) else np.empty((0, 0)),
        document.intervals.level,
        unpack(tables.low),
        unpack(tables.high),
    )
    corners = np.append(starts, len(scores))
    counts = (kept.cases, kept.right, kept.decided)
    if {len(starts), *map(len, counts)} != {classes} or len(scores) != len(values):
        raise ValueError("performance tables of another number of classes")
    if starts[0] != 0 or np.any(np.diff(corners) < 1) or not np.all((values >= 0.0) & (values <= 1.0)):
        raise ValueError("invalid performance curves")
    if kept.records != document.records or kept.decided.sum() != document.records or min(map(np.min, counts)) < 0:
        raise ValueError("performance tables of another number of records")
    if len(kept.low) != len(every_target(classes)) + len(kept.profiles) or len(kept.low) != len(kept.high):
        raise ValueError("performance tables with errors of other metrics")
    return kept


def _older_weight(
    document: ReferenceDocument, decision: Decision, estimators: Sequence[CalibratedEstimator]
) -> float | None:
    """Return the weight of `adaptive` for a reference that does not have it; None if it cannot be known.

    With two classes and decisions by argmax, the probability of the true label says whether the decision is right, and how
    confident it is.
    """
    if len(document.classes) != 2 or decision.by is not DecidedBy.ARGMAX:
        return None
    ranked = next(
        one.estimator.ranked
        for one in estimators
        if one.form.scaled and isinstance(one.estimator, ConformalAtConfidence)
    )
    # A tie of both classes has the lowest confidence, right or wrong.
    right = np.arange(len(ranked)) < document.right
    confidences, ranks = np.unique(np.where(right, ranked, np.float32(1.0) - ranked), return_inverse=True)
    return adaptive_weight(*(np.bincount(ranks[some], minlength=len(confidences)) for some in (right, ~right)))


def _wider(*errors: ErrorQuantiles) -> ErrorQuantiles:
    """Return the errors of a mean of estimators without bias: at most those of the worst."""
    low, high = (np.array([getattr(one, name) for one in errors]) for name in ("low", "high"))
    return ErrorQuantiles(0.0, low.min(axis=0), high.max(axis=0))


def _output_tables(kept: OutputReference) -> OutputTables:
    return OutputTables(*map(pack, (kept.edges, kept.confidence, kept.decided, *kept.chance)))


def _outputs(document: ReferenceDocument, sizes: Integers) -> OutputReference | None:
    if (tables := document.outputs) is None:
        return None
    chance = np.array([unpack(tables.class_mix_chance), unpack(tables.confidence_chance)])
    kept = OutputReference(unpack(tables.edges), unpack(tables.confidence), unpack(tables.decided), sizes, chance)
    if len(kept.decided) != len(document.classes) or chance.shape[1] != len(sizes) or not np.all(chance >= 0.0):
        raise ValueError("output tables of another number of classes or sizes")
    if len(kept.confidence) != len(kept.edges) + 1 or np.any(np.diff(kept.edges) <= 0.0):
        raise ValueError("invalid cells of confidences")
    counts = (kept.decided, kept.confidence)
    if any(some.sum() != document.records or some.min() < 0 for some in counts):
        raise ValueError("output tables of another number of records")
    return kept


def _segment_tables(kept: SegmentBaselines) -> SegmentTables:
    return SegmentTables(
        segments=kept.segments,
        records=pack(kept.records),
        right=pack(kept.right),
        bias={name: pack(row) for name, row in zip(kept.names, kept.own_bias, strict=True)},
        decided=pack(kept.decided.ravel()),
        confidence=pack(kept.confidence.ravel()),
    )


def _segment_baselines(document: ReferenceDocument, calibration: Calibration) -> SegmentBaselines | None:
    if (tables := document.segments) is None:
        return None
    count, records, right = len(tables.segments), unpack(tables.records), unpack(tables.right)
    pairs = [pair for segment in tables.segments for pair in segment]
    if not all(tables.segments) or not all(name and value and is_segment(value) for name, value in pairs):
        raise ValueError("invalid segments")
    if len({frozenset(segment) for segment in tables.segments}) < max(1, count):
        raise ValueError("a segment twice, or none")
    # In any order of their fields, as the windows of the daemon may have another.
    if any(len({name for name, _ in segment}) < len(segment) for segment in tables.segments):
        raise ValueError("a field twice in a segment")
    if calibration.adaptive_weight is None:
        raise ValueError("segments without the weight of adaptive")
    if unknown := set(tables.bias) ^ set(calibration.names):
        raise ValueError(f"segments for a different list of estimators ({', '.join(sorted(unknown))}): calibrate again")
    bias = [unpack(one) for one in tables.bias.values()]
    if {len(records), len(right), *map(len, bias)} != {count}:
        raise ValueError("tables of another number of segments")
    decided = unpack(tables.decided).reshape(count, len(document.classes))
    cells = 1 if calibration.outputs is None else len(calibration.outputs.confidence)
    kept = SegmentBaselines(
        names=tuple(tables.bias),
        segments=tables.segments,
        records=records,
        right=right,
        own_bias=np.array(bias),
        decided=decided,
        confidence=unpack(tables.confidence).reshape(count, cells),
        reference_right=document.right,
        intervals=calibration.intervals,
    )
    _check_segments(kept)
    return kept


def _check_segments(kept: SegmentBaselines) -> None:
    whole = kept.intervals.reference_records
    counts = (kept.records, kept.right, kept.decided, kept.confidence)
    if any(one.dtype != np.int64 for one in counts) or min(one.min(initial=0) for one in counts) < 0:
        raise ValueError("segments with invalid counts")
    if np.any(kept.right > kept.records) or np.any(kept.records < FEWEST_RECORDS):
        raise ValueError("segments with impossible counts")
    if any(np.any(one.sum(axis=1) != kept.records) for one in (kept.decided, kept.confidence)):
        raise ValueError("segments with outputs of another number of records")
    for group in kept.groups:
        if kept.records[group].sum() > whole or kept.right[group].sum() > kept.reference_right:
            raise ValueError("segments of another number of records")
    if not np.all(np.abs(kept.own_bias) <= 2.0):
        raise ValueError("segments with an impossible bias")


def _check_intervals(tables: IntervalTables, weight: float | None) -> None:
    if weight is not None and not 0.0 <= weight <= 1.0:
        raise ValueError(f"a weight of {weight}")
    forms = {form.full_name for member in ESTIMATORS for form in member.forms()} | {CONSENSUS}
    forms |= set() if weight is None else {ADAPTIVE}
    if unknown := forms ^ set(tables.errors):
        raise ValueError(
            f"intervals for a different list of estimators ({', '.join(sorted(unknown))}): calibrate again"
        )
    columns = [tables.disagreement, *(column for error in tables.errors.values() for column in (error.low, error.high))]
    if any(len(column) != len(tables.sizes) for column in columns):
        raise ValueError("interval tables of unequal length")


def _estimators(states: dict[str, dict[str, float | Array]]) -> tuple[CalibratedEstimator, ...]:
    forms = [form for member in ESTIMATORS for form in member.forms() if form.variant is None]
    if unknown := {form.name for form in forms} ^ set(states):
        raise ValueError(f"a different list of estimators ({', '.join(sorted(unknown))}): calibrate again")
    ready = []
    for form in forms:
        sizes = {len(unpack(value)) for value in states[form.name].values() if isinstance(value, Array)}
        if 0 in sizes or len(sizes) > 1:
            raise ValueError(f"arrays of unequal length for {form.name}")
        fields: dict[str, Any] = {n: unpack(v) if isinstance(v, Array) else v for n, v in states[form.name].items()}
        ready.append(CalibratedEstimator(form, form.member.family(**fields)))
    return tuple(ready)


def _state(estimator: Any) -> dict[str, float | Array]:  # noqa: ANN401  any estimator
    """Return the fields of a calibrated estimator, without options, which have a default."""
    state: dict[str, float | Array] = {}
    for field in dataclasses.fields(estimator):
        if field.default is dataclasses.MISSING:
            value = getattr(estimator, field.name)
            state[field.name] = pack(value) if isinstance(value, np.ndarray) else float(value)
    return state
