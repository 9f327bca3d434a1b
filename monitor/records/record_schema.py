"""The schema of a stream's records: field paths, output kind, classes, segment fields. Declared, never inferred."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from zoneinfo import ZoneInfo

from monitor.errors import Problem, UsageError
from monitor.records.layout import MAX_CLASSES, Layout, OutputKind
from monitor.records.rejections import Reason, RejectionProblem, listed

FieldPath = tuple[str, ...]
"""Names of nested fields, from the outside in."""

_PART = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


def split_path(text: str, where: str) -> FieldPath:
    r"""Return the names on a dotted path; a dot that belongs to a name is written `\.`, a backslash `\\`."""
    parts = _PART.findall(text)
    if not parts or ".".join(parts) != text:
        raise UsageError(Problem(where, "the name of a field, or a dotted path", repr(text)))
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(path: FieldPath) -> str:
    """Return a path as a dotted string."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def check_paths(outputs: Iterable[FieldPath], others: Iterable[FieldPath], where: str) -> None:
    """Raise UsageError if a path leads through another, or a field is used for outputs and for something else."""
    wanted, rest = set(outputs), set(others)
    if both := wanted & rest:
        raise UsageError(Problem(where, "a field other than that of the outputs", join_path(min(both))))
    for path in wanted | rest:
        for length in range(1, len(path)):
            if path[:length] in wanted | rest:
                found = f"{join_path(path[:length])} and {join_path(path)}"
                raise UsageError(Problem(where, "fields that do not contain each other", found))


class TimeUnit(StrEnum):
    """The unit of numeric times, since 1970."""

    SECONDS = "seconds"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def per_second(self) -> float:
        """Units per second."""
        return {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[self.value]


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """The format of one model's records."""

    name: str
    classes: tuple[str, ...]
    """The classes of the reference, in vector order."""
    kind: OutputKind = OutputKind.PROBS
    segment_fields: tuple[str, ...] = ()
    """Names of its segment fields."""

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid format."""
        if not self.name:
            raise UsageError(Problem("model", "a name", "none"))
        Layout(self.kind, classes=self.classes)
        if not all(self.segment_fields) or len(set(self.segment_fields)) < len(self.segment_fields):
            found = listed(self.segment_fields)
            raise UsageError(Problem(f"model {self.name}", "names of different segment fields", found))

    @property
    def width(self) -> int:
        """Numbers per record."""
        return 1 if self.kind is OutputKind.SCORE else len(self.classes)


def reason_of_length(length: int, model: ModelFormat) -> Reason | None:
    """Return why a vector of this length is rejected; None if it is valid."""
    if length == model.width:
        return None
    if length == 0:
        return Reason.EMPTY
    return Reason.OUT_OF_RANGE if length > MAX_CLASSES else Reason.WRONG_K


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of a record: names, or dotted paths into nested objects."""

    probs: str | None = None
    """The vector or score; by default `probs`, `logits` or `score`, by the model's kind."""
    class_columns: tuple[str, ...] | None = None
    """One field per class instead, in class order; a single `prob_*` means `prob_` and each class name."""
    model: str = "model"
    version: str = "version"
    id: str = "id"
    time: str = "time"
    predicted: str | None = None
    """The predicted class, to compare with the vector."""
    segments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Paths of segment fields that differ from their names."""
    time_unit: TimeUnit = TimeUnit.SECONDS
    time_zone: str | None = None
    """The time zone of times without one, such as `Europe/Oslo`; None to reject them."""

    def __post_init__(self) -> None:
        """Raise UsageError for invalid fields."""
        if self.class_columns is not None:
            Layout(vector_field=self.probs, class_columns=self.class_columns)
        for name in ("probs", "model", "version", "id", "time", "predicted"):
            if (text := getattr(self, name)) is not None:
                split_path(text, f"fields.{name}")
        for name, text in self.segments.items():
            split_path(text, f"fields.segments.{name}")
        if self.time_unit not in set(TimeUnit):
            raise UsageError(Problem("fields.time_unit", f"one of {', '.join(TimeUnit)}", repr(self.time_unit)))
        self.zone()

    def zone(self) -> ZoneInfo | None:
        """Return the time zone of times without one."""
        if self.time_zone is None:
            return None
        try:
            return ZoneInfo(self.time_zone)
        except (ValueError, OSError, KeyError) as error:
            found = f"{self.time_zone!r}"
            raise UsageError(Problem("fields.time_zone", "the name of a time zone", found)) from error

    @property
    def prefix(self) -> str | None:
        """The prefix of the class columns, if they are given as a single `prefix*`."""
        return None if self.class_columns is None else Layout(class_columns=self.class_columns).prefix

    def outputs(self, model: ModelFormat) -> tuple[str, ...]:
        """Return the field of a model's outputs, or one field per class."""
        if self.class_columns is None:
            return (Layout(model.kind, self.probs).field or "",)
        prefix = self.prefix
        return self.class_columns if prefix is None else tuple(prefix + name for name in model.classes)

    def output_paths(self, model: ModelFormat) -> tuple[FieldPath, ...]:
        """Return the paths of a model's outputs."""
        where = "fields.probs" if self.class_columns is None else "fields.class_columns"
        prefix = self.prefix
        if prefix is None:
            return tuple(split_path(text, where) for text in self.outputs(model))
        # A dot in a class name does not nest.
        *above, last = split_path(f"{prefix}*", where)
        return tuple((*above, last[:-1] + name) for name in model.classes)

    def segment(self, name: str) -> str:
        """Return the field of a segment."""
        return self.segments.get(name, name)

    def segment_path(self, name: str) -> FieldPath:
        """Return the path of a segment field; without a configured path, a dot is part of the name."""
        text = self.segments.get(name)
        return (name,) if text is None else split_path(text, f"fields.segments.{name}")

    def path(self, name: str) -> FieldPath:
        """Return the path of the `model`, `version`, `id`, `time` or `predicted` field."""
        return split_path(getattr(self, name), f"fields.{name}")


def unknown_class_columns(
    models: Sequence[ModelFormat], prefix: str | None, names: Iterable[str], known: Iterable[str]
) -> RejectionProblem | None:
    """Return the problem if a file has class columns that the model does not have."""
    if prefix is None or len(models) > 1:
        return None
    strange = len({name for name in names if name.startswith(prefix)} - set(known))
    expected = f"columns {prefix}… of the {len(models[0].classes)} classes only"
    return RejectionProblem(Reason.UNKNOWN_CLASS, expected, f"{strange} more") if strange else None


def check_formats(models: Sequence[ModelFormat], fields: RecordFields) -> None:
    """Raise UsageError if models and fields do not fit together."""
    names = tuple(model.name for model in models)
    if not names or len(set(names)) < len(names):
        raise UsageError(Problem("models", "one or more, each name once", listed(names) or "none"))
    for model in models:
        if fields.class_columns is None:
            continue
        columns = fields.outputs(model)
        if model.kind is OutputKind.SCORE or len(columns) != len(model.classes):
            expected = "none, since a score is one field" if model.kind is OutputKind.SCORE else f"{len(model.classes)}"
            raise UsageError(Problem("fields.class_columns", f"{expected} for model {model.name}", listed(columns)))
    known = {name for model in models for name in model.segment_fields}
    if stray := tuple(name for name in fields.segments if name not in known):
        raise UsageError(Problem("fields.segments", "segment fields of a model", listed(stray)))
    for name in sorted(known):
        # In flat files the string is the column name.
        if fields.segment_path(name) == fields.path("id") or fields.segment(name) == fields.id:
            found = f"the id for {name}: only keyed hashes of ids are kept"
            raise UsageError(Problem("fields.segments", "fields other than the id", found))
    single = [fields.path(name) for name in ("model", "version", "id", "time")]
    if fields.predicted is not None:
        single.append(fields.path("predicted"))
    outputs = [path for model in models for path in fields.output_paths(model)]
    check_paths(outputs, [*single, *(fields.segment_path(name) for name in known)], "fields")
