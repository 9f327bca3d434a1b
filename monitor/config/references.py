"""Opens the references of a configuration, and computes the memory that its windows will need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from monitor.config.config import CLASS_MIX, Config, ModelConfig, SourceConfig, model_options, target_of
from monitor.core.alerts import AlertRule
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.labels.kept_predictions import BYTES_PER_LABEL, BYTES_PER_PREDICTION
from monitor.core.performance import FEWEST_CASES, MOST_MIXED, MOST_SHOWN, Metric
from monitor.core.recent_ids import bytes_at_most
from monitor.core.window import bytes_per_record
from monitor.errors import CpcmonError, InvalidReference, UsageError
from monitor.records.record_schema import ModelFormat, RecordSchema
from monitor.reference.reference import Reference
from monitor.settings.kinds import SizeSetting
from monitor.settings.setting_files import problem_of
from monitor.settings.yaml_text import SettingProblem, raise_problems

_MOST_LISTED = 12

Loaded = list[tuple[ModelConfig, Reference | None]]
"""Every model with its reference; None where the configuration names none."""


def load_models(config: Config) -> Loaded:
    """Open every reference; raises ConfigError with all that do not fit, or if windows need too much memory."""
    loading = _Loading(config)
    loaded = [(model, loading.reference(index, model)) for index, model in enumerate(config.models)]
    if not loading.problems:
        loading.check_fields(loaded)
        loading.check_memory(loaded)
    if loading.problems:
        raise_problems(config.file, loading.problems)
    return loaded


@dataclass(slots=True)
class _Loading:
    config: Config
    problems: list[SettingProblem] = field(default_factory=list)

    def reference(self, index: int, model: ModelConfig) -> Reference | None:
        """Return the reference of a model; None if there is none, or it does not fit."""
        if model.reference is None:
            return None
        path = f"models[{index}]"
        wrong = problem_of(model.reference)
        if wrong is not None:
            self._report(f"{path}.reference", "a reference file", f"{wrong} in {str(model.reference)!r}")
            return None
        try:
            reference = Reference.load(model.reference)
        except InvalidReference as error:
            self._report_error(f"{path}.reference", error, f" in {str(model.reference)!r}")
            return None
        if reference.model != model.name:
            expected = f"a reference made for model {model.name!r}"
            self._report(f"{path}.reference", expected, f"one for {reference.model!r}")
        if model.version is not None and reference.version != model.version:
            found = f"version {reference.version!r}" if reference.version else "one without a version"
            self._report(f"{path}.version", f"a reference of version {model.version!r}", found)
        try:
            ModelFormat(model.name, reference.classes, model.kind)
        except UsageError as error:
            self._report_error(f"{path}.kind", error)
        self._check_decision(f"{path}.decide", model, reference)
        self._check_performance(path, model, reference)
        for number, rule in enumerate(model.alerts):
            self._check_alert(f"{path}.alerts[{number}]", rule, model, reference)
        return reference

    def _check_decision(self, path: str, model: ModelConfig, reference: Reference) -> None:
        """Report if the device decides in another way than when the reference was made."""
        if model.decide is None:
            return
        try:
            wanted = Decision.parsed(path, model.decide, reference.classes)
        except UsageError as error:
            self._report_error(path, error)
            return
        found = reference.calibration.decision
        if wanted == found:
            return
        option = {
            DecidedBy.ARGMAX: "--decide argmax",
            DecidedBy.THRESHOLD: f"--decide-at {model.decide}",
            DecidedBy.FIELD: "--decide-field FIELD",
        }[wanted.by]
        text = found.text(reference.classes)
        advice = f"run `cpcmon calibrate` again with {option}, or set decide to {text}"
        self._report(path, f"{text!r}, as the reference was made", f"{model.decide!r}: {advice}")

    def _check_performance(self, path: str, model: ModelConfig, reference: Reference) -> None:
        """Report what the reference cannot estimate beyond accuracy."""
        classes = reference.classes
        if model.performance and self._has_tables(f"{path}.performance", reference):
            if Metric.AUROC in model.performance:
                self._check_auroc(f"{path}.performance", classes)
            if CLASS_MIX in model.performance and len(classes) > MOST_MIXED:
                expected = f"class_mix only for at most {MOST_MIXED} classes"
                self._report(f"{path}.performance", expected, f"a reference with {len(classes):,}")
        if model.watch_classes and self._has_tables(f"{path}.watch_classes", reference):
            for number, name in enumerate(model.watch_classes):
                self._check_class(f"{path}.watch_classes[{number}]", name, classes)

    def _check_alert(self, path: str, rule: AlertRule, model: ModelConfig, reference: Reference) -> None:
        """Report an alert that could never fire with the reference."""
        if rule.on.of_field and reference.calibration.adaptive_weight is None:
            self._report(f"{path}.on", "a reference with a field interval", "one of an older cpcmon: calibrate again")
        own: float | None = reference.calibration.accuracy
        if rule.metric is not None:
            own = self._own_metric(path, rule, model, reference)
        if own is not None and rule.drop is not None and rule.drop >= own:
            expected = f"less than the reference's {rule.compared}, {own:.3f}"
            self._report(f"{path}.drop", expected, f"{rule.drop:g}: it could never fire")

    def _own_metric(self, path: str, rule: AlertRule, model: ModelConfig, reference: Reference) -> float | None:
        """Return the reference's own value of an alert's metric; None after a problem."""
        performance, classes = reference.calibration.performance, reference.classes
        if not self._has_tables(f"{path}.metric", reference) or performance is None:
            return None
        before = len(self.problems)
        if rule.metric is Metric.AUROC:
            self._check_auroc(f"{path}.metric", classes)
        if rule.of_class is not None:
            self._check_class(f"{path}.class", rule.of_class, classes)
            if len(classes) > MOST_SHOWN and rule.of_class not in model.watch_classes:
                expected = f"a class of watch_classes, since the model has more than {MOST_SHOWN}"
                self._report(f"{path}.class", expected, f"{rule.of_class!r}: add it to watch_classes")
        target = target_of(rule, classes)
        if target is None or len(self.problems) > before:
            return None
        own = performance.value(target)
        if own is None:
            expected = f"a metric with at least {FEWEST_CASES} cases in the reference"
            self._report(f"{path}.metric", expected, "one with fewer: it could never fire")
        return own

    def _has_tables(self, path: str, reference: Reference) -> bool:
        if reference.calibration.performance is None:
            expected = "a reference that estimates more than accuracy"
            self._report(path, expected, "one of an older cpcmon: calibrate again")
        return reference.calibration.performance is not None

    def _check_auroc(self, path: str, classes: Sequence[str]) -> None:
        if len(classes) != 2:
            self._report(path, "auroc only for two classes", f"a reference with {len(classes):,}")

    def _check_class(self, path: str, name: str, classes: Sequence[str]) -> None:
        if name not in classes:
            listed = ", ".join(classes[:_MOST_LISTED]) + (", …" if len(classes) > _MOST_LISTED else "")
            self._report(path, f"a class of the reference: {listed}", repr(name[:80]))

    def check_fields(self, loaded: Loaded) -> None:
        """Report sources whose fields do not fit the models that they feed."""
        for index, source in enumerate(self.config.sources):
            formats = [
                model_options(model, reference).format
                for model, reference in loaded
                if reference is not None and source.reads(model.name)
            ]
            if not formats:
                continue
            try:
                RecordSchema(formats, source.fields, carries=source.carries)
            except UsageError as error:
                self._report_error(f"sources[{index}].", error)

    def check_memory(self, loaded: Loaded) -> None:
        """Report windows that together may exceed the memory limit."""
        costs = dict(window_costs(loaded))
        limit = self.config.limits.window_bytes
        if sum(costs.values()) <= limit:
            return
        each = ", ".join(f"{name} {_mebibytes(cost)}" for name, cost in costs.items())
        expected = f"at least {_mebibytes(sum(costs.values()))}, the size of all windows when full ({each})"
        advice = "raise it, or lower window.records, window.most_records or segments.limit of a model"
        self._report("limits.window_bytes", expected, f"{SizeSetting(1, limit).show(limit)}: {advice}")

    def _report_error(self, path: str, error: CpcmonError, where: str = "") -> None:
        """Report an error; a path that ends in a dot is continued by the place that the error names."""
        if error.problem is None:
            raise error
        problem = error.problem
        self._report(path + problem.where * path.endswith("."), problem.expected, problem.found + where)

    def _report(self, path: str, expected: str, found: str) -> None:
        self.problems.append(SettingProblem(path, expected, found, self.config.line_of(path)))


def window_costs(loaded: Sequence[tuple[ModelConfig, Reference | None]]) -> Iterator[tuple[str, int]]:
    """Yield the maximum size of each model's windows, in bytes."""
    for model, reference in loaded:
        if reference is not None:
            options = model_options(model, reference)
            yield model.name, options.windows(options.gauge()).most_bytes()


def _mebibytes(count: int) -> str:
    return f"{-(-count // (1 << 20)):,}MiB"


FEW_PARTITIONS = 16
"""With room for fewer, window.records was probably meant for all partitions together."""


def partition_cost(source: SourceConfig, loaded: Loaded) -> tuple[int, int, int]:
    """Return the maximum size of the windows, remembered ids and kept predictions of one partition, in bytes."""
    fed = [(model, reference) for model, reference in loaded if reference is not None and source.feeds(model.name)]
    windows = sum(cost for _, cost in window_costs(fed))
    return windows, sum(_id_bytes(model) for model, _ in fed), sum(_kept_bytes(model, 0) for model, _ in fed)


def room_for(source: SourceConfig, config: Config, loaded: Loaded) -> int | None:
    """Return how many shards of a source fit beside the windows of sources without; None without windows."""
    windows, _, _ = partition_cost(source, loaded)
    shared = [
        (model, reference)
        for model, reference in loaded
        if any(not one.options.sharded and one.feeds(model.name) for one in config.sources)
    ]
    left = config.limits.window_bytes - sum(cost for _, cost in window_costs(shared))
    return max(0, left) // windows if windows else None


# The constants below were measured as the peak of processes with full windows; `python -m benchmarks.memory` compares them
# again.

_PROGRAM_BYTES = 84e6
"""The interpreter, the libraries and SQLite's cache."""
_BATCH_BYTES, _BATCH_RECORDS = 300, 200_000
"""Per record that is read but not in windows yet, and how many there are at most."""
_SPARE_ROOM = 1.2
"""Room for records over what is used."""
_SERIES_BYTES = 900
"""Per series of a window: the estimates of two evaluations, and the rendered pages."""
_SERIES, _SERIES_PER_ALERT, _SERIES_PER_TARGET, _MOST_CLASSES = 124, 4, 3, 50
_SERIES_OF_LABELS, _TRACK_RECORD_BYTES = 70, 17_000
"""Of a window of a model that takes labels."""
_HISTORY_BYTES = 22_570
"""The history of a window: its points in three resolutions, after thirty days."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The memory of the process with every possible window, all full, in bytes."""

    windows: int
    """At most: no record is in two windows."""
    filled: int
    """When each segment has just been filled: its records are in other windows too."""
    ids: int
    """With as many remembered ids as allowed."""
    first_ids: int
    """When the windows have just been filled."""
    kept: int
    """With as many predictions kept for labels, and labels, as allowed."""
    evaluation: int
    """Snapshots, reports, pages and history."""
    program: int
    """The program, and a batch of records."""

    @property
    def process(self) -> int:
        """The total when the windows have just been filled."""
        return self.filled + self.first_ids + self.evaluation + self.program

    @property
    def later(self) -> int:
        """The total with all remembered ids and kept predictions."""
        return self.filled + self.ids + self.kept + self.evaluation + self.program


def forecast(loaded: Loaded) -> Forecast:
    """Return the memory forecast. For Kafka sources, one partition is counted."""
    with_reference = [(model, reference) for model, reference in loaded if reference is not None]
    records = sum(_records(model) for model, _ in with_reference)
    return Forecast(
        windows=sum(cost for _, cost in window_costs(loaded)),
        filled=sum(_filled_bytes(model, reference) for model, reference in with_reference),
        ids=sum(_id_bytes(model) for model, _ in with_reference),
        first_ids=sum(_id_bytes(model, _records(model)) for model, _ in with_reference),
        kept=sum(_kept_bytes(model, BYTES_PER_LABEL) for model, _ in with_reference),
        evaluation=sum(_evaluation_bytes(model, reference) for model, reference in with_reference),
        program=round(_PROGRAM_BYTES) + _BATCH_BYTES * min(records, _BATCH_RECORDS),
    )


def _id_bytes(model: ModelConfig, records: int | None = None) -> int:
    """Return the memory for ids, and for groups if there are any; after so many records, or at most."""
    most = model.most_ids if records is None else min(model.most_ids, records)
    return bytes_at_most(most) * (1 if model.group_by is None else 2)


def _kept_bytes(model: ModelConfig, label_bytes: int) -> int:
    """Return the memory for predictions that are kept for labels, and for as many labels of this size."""
    return 0 if model.labels is None else (BYTES_PER_PREDICTION + label_bytes) * model.labels.most


def _records(model: ModelConfig) -> int:
    """Return how many records fill all windows of a model; each is in one window of every split."""
    splits = len(model.segmentation.split_by)
    return model.bounds.capacity * max(1, model.segmentation.most_segments // splits if splits else 1)


def _filled_bytes(model: ModelConfig, reference: Reference) -> int:
    gauge = model_options(model, reference).gauge()
    records = _records(model) * bytes_per_record(reference.calibration, len(model.segmentation.split_by))
    return gauge.bytes_shared + model.most_windows * gauge.bytes_per_window + round(_SPARE_ROOM * records)


def _evaluation_bytes(model: ModelConfig, reference: Reference) -> int:
    series = _SERIES + min(len(reference.classes), _MOST_CLASSES) + _SERIES_PER_ALERT * len(model.alerts)
    series += _SERIES_PER_TARGET * len(model.exported(reference.classes))
    series += _SERIES_PER_TARGET * len(reference.classes) * (CLASS_MIX in model.performance)
    of_labels = 0 if model.labels is None else _SERIES_BYTES * _SERIES_OF_LABELS + _TRACK_RECORD_BYTES
    return model.most_windows * (_HISTORY_BYTES + _SERIES_BYTES * series + of_labels)
