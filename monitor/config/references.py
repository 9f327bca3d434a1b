"""What the configuration names is opened: the references, and with them what the windows will cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.config.config import Config, ModelConfig
from monitor.config.directory_settings import parted
from monitor.config.model_options import ModelOptions
from monitor.core.totals import Gauge
from monitor.errors import InvalidReference, UsageError
from monitor.records.record_schema import ModelFormat, check_formats
from monitor.reference.reference import Reference
from monitor.settings.quantities import SizeSetting
from monitor.settings.setting_files import problem_of
from monitor.settings.yaml_text import Problem, raise_problems

Loaded = list[tuple[ModelConfig, Reference | None]]
"""Every model with its reference; None where the configuration names none."""


def load_models(config: Config) -> Loaded:
    """Open every reference; raises ConfigError that tells all that do not fit, and windows that cost too much."""
    loading = _Loading(config)
    loaded = [(model, loading.reference(place, model)) for place, model in enumerate(config.models)]
    if not loading.problems:
        loading.check_fields(loaded)
        loading.check_memory(loaded)
    if loading.problems:
        raise_problems(config.file, loading.problems)
    return loaded


def model_options(model: ModelConfig, reference: Reference) -> ModelOptions:
    """Return a configured model with its reference, as windows are built from it."""
    return ModelOptions(
        name=model.name,
        reference=reference,
        bounds=model.bounds,
        segmentation=model.segmentation,
        kind=model.kind,
        versions_alike=model.versions_alike,
        most_ids=model.most_ids,
    )


@dataclass(slots=True, init=False)
class _Loading:
    """Opens references one by one and gathers what is wrong."""

    config: Config
    problems: list[Problem]

    def __init__(self, config: Config) -> None:
        self.config = config
        self.problems = []

    def reference(self, place: int, model: ModelConfig) -> Reference | None:
        """Return a model's reference; None when there is none, or none that fits."""
        if model.reference is None:
            return None
        path = f"models[{place}]"
        wrong = problem_of(model.reference)
        if wrong is not None:
            self._tell(f"{path}.reference", "a reference file", f"{wrong} in {str(model.reference)!r}")
            return None
        try:
            reference = Reference.load(model.reference)
        except InvalidReference as error:
            _, expected, found = parted(str(error))
            self._tell(f"{path}.reference", expected, f"{found} in {str(model.reference)!r}")
            return None
        if reference.model != model.name:
            self._tell(
                f"{path}.reference", f"a reference made for model {model.name!r}", f"one for {reference.model!r}"
            )
        if model.version is not None and reference.version != model.version:
            found = f"one of {reference.version!r}" if reference.version else "one without a version"
            self._tell(f"{path}.version", f"the reference to be of version {model.version!r}", found)
        try:
            ModelFormat(model.name, reference.classes, model.kind)
        except UsageError as error:
            self._tell(f"{path}.kind", *parted(str(error))[1:])
        for number, rule in enumerate(model.alerts):
            if rule.drop is not None and rule.drop >= reference.calibration.accuracy:
                expected = f"less than the reference's accuracy, {reference.calibration.accuracy:.3f}"
                self._tell(f"{path}.alerts[{number}].drop", expected, f"{rule.drop:g}: it could never fire")
        return reference

    def check_fields(self, loaded: Loaded) -> None:
        """Note sources whose fields do not fit the models that they feed."""
        for place, source in enumerate(self.config.sources):
            formats = [
                model_options(model, reference).format
                for model, reference in loaded
                if reference is not None and (not source.models or model.name in source.models)
            ]
            if not formats:
                continue
            try:
                check_formats(formats, source.fields)
            except UsageError as error:
                where, expected, found = parted(str(error))
                self._tell(f"sources[{place}].{where}", expected, found)

    def check_memory(self, loaded: Loaded) -> None:
        """Note windows that together may come to take more than they may."""
        costs = dict(window_costs(loaded))
        limit = self.config.limits.window_bytes
        if sum(costs.values()) <= limit:
            return
        each = ", ".join(f"{name} {_mebibytes(cost)}" for name, cost in costs.items())
        expected = f"at least {_mebibytes(sum(costs.values()))}, which the windows may come to take ({each})"
        advice = "raise it, or lower window.records, window.most_records or segments.limit of a model"
        self._tell("limits.window_bytes", expected, f"{SizeSetting(1, limit).show(limit)}: {advice}")

    def _tell(self, path: str, expected: str, found: str) -> None:
        self.problems.append(Problem(self.config.line_of(path), path, expected, found))


def window_costs(loaded: Sequence[tuple[ModelConfig, Reference | None]]) -> Iterator[tuple[str, int]]:
    """Yield the most bytes that the windows of each model may come to take."""
    for model, reference in loaded:
        if reference is not None:
            yield model.name, model_options(model, reference).windows(Gauge(reference.calibration)).most_bytes()


def _mebibytes(count: int) -> str:
    return f"{-(-count // (1 << 20)):,}MiB"
