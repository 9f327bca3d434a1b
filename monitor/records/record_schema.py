"""The schema of a stream's records: field paths, output kind, classes, segment fields. Declared, never inferred."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from zoneinfo import ZoneInfo

from monitor.errors import UsageError
from monitor.records.layout import MAX_CLASSES, Layout, OutputKind
from monitor.records.rejections import Reason, RejectionProblem, listed

FieldPath = tuple[str, ...]
"""Names of fields, each inside the object that the one before it holds."""

_PART = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


def split_path(text: str, where: str) -> FieldPath:
    r"""Return the names on a dotted path; a dot that belongs to a name is written `\.`, a backslash `\\`."""
    parts = _PART.findall(text)
    if not parts or ".".join(parts) != text:
        raise UsageError(f"{where}: expected a field's name or a dotted path, found {text!r}")
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(path: FieldPath) -> str:
    """Return a path as users write it."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def check_paths(outputs: Iterable[FieldPath], others: Iterable[FieldPath], where: str) -> None:
    """Refuse paths of which one goes through a value that another one reads, and outputs that are read as something else."""
    wanted, rest = set(outputs), set(others)
    if both := wanted & rest:
        raise UsageError(f"{where}: expected another field than that of the outputs, found {join_path(min(both))}")
    for path in wanted | rest:
        for length in range(1, len(path)):
            if path[:length] in wanted | rest:
                found = f"{join_path(path[:length])} and {join_path(path)}"
                raise UsageError(f"{where}: expected fields outside one another, found {found}")


class TimeUnit(StrEnum):
    """What the numbers in a time field count, since 1970."""

    SECONDS = "seconds"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def per_second(self) -> float:
        """How many of it make a second."""
        return {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[self.value]


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """What the records of one model look like."""

    name: str
    classes: tuple[str, ...]
    """The classes of the reference; they fix how long a vector is, and in which order its numbers stand."""
    kind: OutputKind = OutputKind.PROBS
    segment_fields: tuple[str, ...] = ()
    """Names of the fields that split its records."""

    def __post_init__(self) -> None:
        """Refuse formats that make no sense."""
        if not self.name:
            raise UsageError("model: expected a name, found none")
        Layout(self.kind, classes=self.classes)
        if not all(self.segment_fields) or len(set(self.segment_fields)) < len(self.segment_fields):
            found = listed(self.segment_fields)
            raise UsageError(f"model {self.name}: expected names of different segment fields, found {found}")

    @property
    def width(self) -> int:
        """How many numbers a record holds."""
        return 1 if self.kind is OutputKind.SCORE else len(self.classes)


def reason_of_length(length: int, model: ModelFormat) -> Reason | None:
    """Say why a vector of this length is no output of a model; None when it is one."""
    if length == model.width:
        return None
    if length == 0:
        return Reason.EMPTY
    return Reason.OUT_OF_RANGE if length > MAX_CLASSES else Reason.WRONG_K


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Where things stand in a record: names, or dotted paths into nested objects."""

    probs: str | None = None
    """The vector or score; by default `probs`, `logits` or `score`, as the model's kind says."""
    class_columns: tuple[str, ...] | None = None
    """One field a class instead, in the order of the classes; a single `prob_*` means `prob_` and each class's name."""
    model: str = "model"
    version: str = "version"
    id: str = "id"
    time: str = "time"
    predicted: str | None = None
    """The model's own predicted class; None when there is none to compare with the vector."""
    segments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the fields that split records stand, for those that do not stand under their own name."""
    time_unit: TimeUnit = TimeUnit.SECONDS
    time_zone: str | None = None
    """The zone of times that are written without one, as `Europe/Oslo`; None to refuse them."""

    def __post_init__(self) -> None:
        """Refuse fields that make no sense."""
        if self.class_columns is not None:
            Layout(vector_field=self.probs, class_columns=self.class_columns)
        for name in ("probs", "model", "version", "id", "time", "predicted"):
            if (text := getattr(self, name)) is not None:
                split_path(text, f"fields.{name}")
        for name, text in self.segments.items():
            split_path(text, f"fields.segments.{name}")
        if self.time_unit not in set(TimeUnit):
            raise UsageError(f"fields.time_unit: expected one of {', '.join(TimeUnit)}, found {self.time_unit!r}")
        self.zone()

    def zone(self) -> ZoneInfo | None:
        """Return the zone of times without one."""
        if self.time_zone is None:
            return None
        try:
            return ZoneInfo(self.time_zone)
        except (ValueError, OSError, KeyError) as error:
            found = f"{self.time_zone!r}"
            raise UsageError(f"fields.time_zone: expected the name of a time zone, found {found}") from error

    @property
    def prefix(self) -> str | None:
        """How the names of the class columns start, when they are given as a single `prefix*`."""
        return None if self.class_columns is None else Layout(class_columns=self.class_columns).prefix

    def outputs(self, model: ModelFormat) -> tuple[str, ...]:
        """Return where the numbers of a model's record stand: one place for all of them, or one a class."""
        if self.class_columns is None:
            return (Layout(model.kind, self.probs).field or "",)
        prefix = self.prefix
        return self.class_columns if prefix is None else tuple(prefix + name for name in model.classes)

    def output_paths(self, model: ModelFormat) -> tuple[FieldPath, ...]:
        """Return the paths to the numbers of a model's record."""
        where = "fields.probs" if self.class_columns is None else "fields.class_columns"
        prefix = self.prefix
        if prefix is None:
            return tuple(split_path(text, where) for text in self.outputs(model))
        # A dot in the name of a class is no step into an object.
        *above, last = split_path(f"{prefix}*", where)
        return tuple((*above, last[:-1] + name) for name in model.classes)

    def segment(self, name: str) -> str:
        """Return where a field that splits records stands."""
        return self.segments.get(name, name)

    def segment_path(self, name: str) -> FieldPath:
        """Return the path to a field that splits records; under its own name, a dot is part of the name."""
        text = self.segments.get(name)
        return (name,) if text is None else split_path(text, f"fields.segments.{name}")

    def path(self, name: str) -> FieldPath:
        """Return the path to the `model`, `version`, `id`, `time` or `predicted` of a record."""
        return split_path(getattr(self, name), f"fields.{name}")


def strange_classes(
    models: Sequence[ModelFormat], prefix: str | None, names: Iterable[str], known: Iterable[str]
) -> RejectionProblem | None:
    """Say that a file has columns named like those of classes, but of none that the model has."""
    if prefix is None or len(models) > 1:
        return None
    strange = len({name for name in names if name.startswith(prefix)} - set(known))
    expected = f"columns {prefix}… of the {len(models[0].classes)} classes only"
    return RejectionProblem(Reason.UNKNOWN_CLASS, expected, f"{strange} more") if strange else None


def check_formats(models: Sequence[ModelFormat], fields: RecordFields) -> None:
    """Refuse models and fields that do not fit together."""
    names = tuple(model.name for model in models)
    if not names or len(set(names)) < len(names):
        raise UsageError(f"models: expected one or more, each name once, found {listed(names) or 'none'}")
    for model in models:
        if fields.class_columns is None:
            continue
        columns = fields.outputs(model)
        if model.kind is OutputKind.SCORE or len(columns) != len(model.classes):
            expected = "none, since a score is one field" if model.kind is OutputKind.SCORE else f"{len(model.classes)}"
            raise UsageError(
                f"fields.class_columns: expected {expected} for model {model.name}, found {listed(columns)}"
            )
    known = {name for model in models for name in model.segment_fields}
    if stray := tuple(name for name in fields.segments if name not in known):
        raise UsageError(f"fields.segments: expected fields that split some model's records, found {listed(stray)}")
    for name in sorted(known):
        # In files without nesting the text is the name of the column.
        if fields.segment_path(name) == fields.path("id") or fields.segment(name) == fields.id:
            found = f"the id for {name}: only keyed hashes of ids are kept"
            raise UsageError(f"fields.segments: expected fields that are no ids, found {found}")
    single = [fields.path(name) for name in ("model", "version", "id", "time")]
    if fields.predicted is not None:
        single.append(fields.path("predicted"))
    outputs = [path for model in models for path in fields.output_paths(model)]
    check_paths(outputs, [*single, *(fields.segment_path(name) for name in known)], "fields")
