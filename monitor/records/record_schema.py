"""The schema of records: models with their output kind and classes, field paths, segment fields, label, times.

Declared, never guessed. Only the offline commands take classes that are not given from the file.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from zoneinfo import ZoneInfo

from monitor.core.decisions import DecidedBy, Decision
from monitor.errors import Problem, UsageError
from monitor.records.rejections import Reason, RejectionProblem, listed

MAX_CLASSES = 20_000

FieldPath = tuple[str, ...]
"""Names of nested fields, from the outside in."""

_PART = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


class Carries(StrEnum):
    """What the records of a source are."""

    PREDICTIONS = "predictions"
    """Outputs of models."""
    LABELS = "labels"
    """True classes of earlier records, by id."""


class OutputKind(StrEnum):
    """The type of a model's output."""

    PROBS = "probs"
    """One probability per class."""
    LOGITS = "logits"
    """One logit per class."""
    SCORE = "score"
    """The probability of the second of two classes."""
    PERCENT = "percent"
    """One percentage per class."""
    LOGPROB = "logprob"
    """One natural log-probability per class."""


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


def split_path(text: str, where: str) -> FieldPath:
    r"""Return the names on a dotted path; a dot that belongs to a name is written `\.`, a backslash `\\`."""
    parts = _PART.findall(text)
    if not parts or ".".join(parts) != text:
        raise UsageError(Problem(where, "the name of a field, or a dotted path", repr(text)))
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(path: FieldPath) -> str:
    """Return a path as a dotted string."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def numbered(count: int) -> tuple[str, ...]:
    """Return the names of unnamed classes: 0, 1, 2 and so on."""
    return tuple(str(index) for index in range(count))


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """The format of one model's records."""

    name: str
    classes: tuple[str, ...] | None
    """The classes of the reference, in vector order; None to take them from the file."""
    kind: OutputKind = OutputKind.PROBS
    segment_fields: tuple[str, ...] = ()
    """Names of its segment fields."""
    decision: Decision = field(default_factory=Decision)
    """How its device decides."""
    group_by: str | None = None
    """The field of the group of a record, such as its exam; named like a segment field, and may be one."""
    audited_ids: float | None = None
    """The share of records that are audited, to keep the text of their ids; None to keep none."""
    width: int = field(init=False)
    """Numbers per record; 0 while the classes are unknown."""
    decided_by_record: bool = field(init=False)
    """Whether its records name the decision."""

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid format."""
        object.__setattr__(self, "decided_by_record", self.decision.by is DecidedBy.FIELD)
        object.__setattr__(self, "width", 1 if self.kind is OutputKind.SCORE else len(self.classes or ()))
        if not self.name:
            raise UsageError(Problem("model", "a name", "none"))
        if self.classes is not None:
            self._check_classes(self.classes)
        if not all(self.segment_fields) or len(set(self.segment_fields)) < len(self.segment_fields):
            found = listed(self.segment_fields)
            raise UsageError(Problem(f"model {self.name}", "names of different segment fields", found))

    def _check_classes(self, classes: tuple[str, ...]) -> None:
        if not 2 <= len(classes) <= MAX_CLASSES:
            raise UsageError(Problem("classes", f"2 to {MAX_CLASSES:,} names", str(len(classes))))
        if not all(classes):
            raise UsageError(Problem("classes", "a name for each class", "an empty name"))
        if len(set(classes)) < len(classes):
            raise UsageError(Problem("classes", "each name once", listed(classes)))
        if self.kind is OutputKind.SCORE and len(classes) != 2:
            raise UsageError(Problem("classes", "2 names for kind score", str(len(classes))))

    def problem_of_length(self, length: int) -> RejectionProblem | None:
        """Return the problem with a vector of this length; None if it is valid."""
        if length == self.width and length:
            return None
        if length == 0:
            return RejectionProblem(Reason.EMPTY, "one number per class", "an empty vector")
        if length > MAX_CLASSES:
            return RejectionProblem(Reason.OUT_OF_RANGE, f"at most {MAX_CLASSES:,} classes", f"a vector of {length:,}")
        if self.width:
            return RejectionProblem(Reason.WRONG_K, f"a vector of {self.width}", f"a vector of {length}")
        return RejectionProblem(Reason.WRONG_K, "a vector of 2 or more", "a vector of 1") if length == 1 else None


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of a record: names, or dotted paths into nested objects. In flat files, the string is the column name."""

    probs: str | None = None
    """The vector or score; by default `probs`, `logits` or `score`, by the model's kind."""
    class_columns: tuple[str, ...] | None = None
    """One field per class instead, in class order; a single `prob_*` means `prob_` and each class name."""
    model: str | None = "model"
    version: str | None = "version"
    id: str | None = "id"
    time: str | None = "time"
    predicted: str | None = None
    """The decision of the device: of models whose records decide; of others it is compared with the vector."""
    segments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Paths of segment fields that differ from their names."""
    time_unit: TimeUnit = TimeUnit.SECONDS
    time_zone: str | None = None
    """The time zone of times without one, such as `Europe/Oslo`; None to reject them."""
    label: str | None = None
    """The true class; only the offline commands and sources of labels read it."""
    any_name: bool = False
    """Whether a text that is not a path, such as `.pred`, is the name of one field; only for the offline commands."""

    def __post_init__(self) -> None:
        """Raise UsageError for invalid fields."""
        if self.class_columns is not None:
            self._check_class_columns(self.class_columns)
        for name in ("probs", *SINGLE_FIELDS):
            if (text := getattr(self, name)) is not None:
                self.split(text, f"fields.{name}")
        for name, text in self.segments.items():
            self.split(text, f"fields.segments.{name}")
        if self.time_unit not in set(TimeUnit):
            raise UsageError(Problem("fields.time_unit", f"one of {', '.join(TimeUnit)}", repr(self.time_unit)))
        self.zone()

    def _check_class_columns(self, columns: tuple[str, ...]) -> None:
        where = "class columns"
        if self.probs is not None:
            raise UsageError(Problem(where, "either class columns or a vector field", "both"))
        if self.prefix is None and (len(columns) < 2 or any(name.endswith("*") for name in columns)):
            raise UsageError(Problem(where, "two names or more, or a single prefix*", listed(columns)))
        if len(set(columns)) < len(columns):
            raise UsageError(Problem(where, "each name once", listed(columns)))

    def zone(self) -> ZoneInfo | None:
        """Return the time zone of times without one."""
        if self.time_zone is None:
            return None
        try:
            return ZoneInfo(self.time_zone)
        except (ValueError, OSError, KeyError) as error:
            raise UsageError(Problem("fields.time_zone", "the name of a time zone", repr(self.time_zone))) from error

    @property
    def prefix(self) -> str | None:
        """The prefix of the class columns, if they are given as a single `prefix*`."""
        columns = self.class_columns
        return columns[0][:-1] if columns and len(columns) == 1 and columns[0].endswith("*") else None

    def split(self, text: str, where: str) -> FieldPath:
        """Return the path that a text means; raises UsageError."""
        try:
            return split_path(text, where)
        except UsageError:
            if not self.any_name:
                raise
            return (text,)

    def path(self, name: str) -> FieldPath | None:
        """Return the path of one of SINGLE_FIELDS; None if it is not read."""
        text = getattr(self, name)
        return None if text is None else self.split(text, f"fields.{name}")

    def segment(self, name: str) -> str:
        """Return the field of a segment."""
        return self.segments.get(name, name)

    def segment_path(self, name: str) -> FieldPath:
        """Return the path of a segment field; without a configured path, a dot is part of the name."""
        text = self.segments.get(name)
        return (name,) if text is None else self.split(text, f"fields.segments.{name}")


SINGLE_FIELDS = ("model", "version", "id", "time", "predicted", "label")
"""Fields that every model has."""


@dataclass(frozen=True)
class RecordSchema:
    """Models and the fields of their records."""

    models: Sequence[ModelFormat]
    fields: RecordFields = RecordFields()
    from_file: bool = False
    """Whether classes that are not given, and the columns of a `prefix*`, are taken from the file; with one model only."""
    columns: tuple[str, ...] | None = None
    """The class columns found in the file, in class order."""
    carries: Carries = Carries.PREDICTIONS
    """Records with labels have a model, an id, a time and the label; all other fields and outputs are not read."""
    needs_columns: bool = field(init=False)
    """Whether the class columns must be found in the file."""

    def __post_init__(self) -> None:
        """Raise UsageError if models and fields do not fit together."""
        if self.carries is Carries.LABELS:
            object.__setattr__(self, "models", [ModelFormat(one.name, one.classes) for one in self.models])
            object.__setattr__(self, "fields", _fields_of_labels(self.fields))
        models, fields = self.models, self.fields
        missing = self.from_file and fields.prefix is not None and self.columns is None
        object.__setattr__(self, "needs_columns", missing)
        names = tuple(model.name for model in models)
        if not names or len(set(names)) < len(names):
            raise UsageError(Problem("models", "one or more, each name once", listed(names) or "none"))
        for model in models:
            self._check_class_columns(model)
            if model.classes is None and not (self.from_file and len(models) == 1):
                raise UsageError(Problem(f"model {model.name}", "the names of its classes", "none"))
            if model.decided_by_record and fields.predicted is None:
                found = f"none, and the records of model {model.name} decide"
                raise UsageError(Problem("fields.predicted", "the field of the decision", found))
        known = {name for model in models for name in model.segment_fields}
        named = self.named_fields()
        if stray := tuple(name for name in fields.segments if name not in named):
            raise UsageError(Problem("fields.segments", "segment fields of a model", listed(stray)))
        for name in sorted(known):
            # In flat files the string is the column name.
            if fields.segment_path(name) == fields.path("id") or fields.segment(name) == fields.id:
                found = f"the id for {name}: only keyed hashes of ids are kept"
                raise UsageError(Problem("fields.segments", "fields other than the id", found))
        outputs = {path for model in models if not self.needs_columns for path in self.output_paths(model)}
        where = ("class columns", "label") if self.from_file else ("fields", "fields")
        _check_paths(outputs, {*self.single_paths().values(), *map(fields.segment_path, named)}, *where)

    def _check_class_columns(self, model: ModelFormat) -> None:
        if self.fields.class_columns is None:
            return
        columns = self.outputs(model)
        found = listed(self.fields.class_columns if self.from_file else columns)
        if model.kind is OutputKind.SCORE:
            expected = "none, since a score is one field"
        elif model.classes is not None and len(columns) != len(model.classes):
            expected = str(len(model.classes))
            if self.from_file:
                expected, found = f"{expected}, one per class", str(len(columns))
        else:
            return
        if self.from_file:
            raise UsageError(Problem("class columns", expected, found))
        raise UsageError(Problem("fields.class_columns", f"{expected} for model {model.name}", found))

    def outputs(self, model: ModelFormat) -> tuple[str, ...]:
        """Return the column of a model's outputs in a flat file, or one column per class; none for labels."""
        fields = self.fields
        if self.carries is Carries.LABELS:
            return ()
        if self.columns is not None:
            return self.columns
        if fields.class_columns is None:
            default = str(model.kind) if model.kind in {OutputKind.LOGITS, OutputKind.SCORE} else "probs"
            return (default if fields.probs is None else fields.probs,)
        prefix = fields.prefix
        return fields.class_columns if prefix is None else tuple(prefix + name for name in model.classes or ())

    def output_paths(self, model: ModelFormat) -> tuple[FieldPath, ...]:
        """Return the paths of a model's outputs."""
        where = "fields.probs" if self.fields.class_columns is None else "fields.class_columns"
        if self.fields.prefix is None:
            return tuple(self.fields.split(text, where) for text in self.outputs(model))
        # A dot in a class name does not nest.
        above, prefix = self.prefix_path()
        if self.columns is not None:
            return tuple((*above, name) for name in self.columns)
        return tuple((*above, prefix + name) for name in model.classes or ())

    def prefix_path(self) -> tuple[FieldPath, str]:
        """Return the path of the object with the class columns, and their prefix in it."""
        *above, last = self.fields.split(f"{self.fields.prefix}*", "fields.class_columns")
        return tuple(above), last[:-1]

    def single_paths(self) -> dict[str, FieldPath]:
        """Return the paths of the fields that every model has."""
        found = {name: self.fields.path(name) for name in SINGLE_FIELDS}
        return {name: path for name, path in found.items() if path is not None}

    def segment_paths(self, model: ModelFormat) -> tuple[FieldPath, ...]:
        """Return the paths of a model's segment fields."""
        return tuple(map(self.fields.segment_path, model.segment_fields))

    def group_path(self, model: ModelFormat) -> FieldPath | None:
        """Return the path of the group of a model's records; None if it is not read."""
        return None if model.group_by is None else self.fields.segment_path(model.group_by)

    def named_fields(self) -> dict[str, Reason]:
        """Return the names of all segment fields and groups, with the reason for rejecting a value of another type."""
        found = {model.group_by: Reason.WRONG_TYPE for model in self.models if model.group_by is not None}
        return found | {name: Reason.BAD_SEGMENT for model in self.models for name in model.segment_fields}

    def with_columns(self, names: Sequence[str], above: FieldPath | None = None) -> "RecordSchema | RejectionProblem":
        """Return the schema with the class columns among the names of a flat file, or of the object at the path `above`."""
        (model,) = self.models
        if above is None:
            prefix, label = self.fields.prefix or "", self.fields.label
        else:
            prefix, path = self.prefix_path()[1], self.fields.path("label")
            label = path[-1] if path is not None and path[:-1] == above else None
        matching = tuple(name for name in names if name.startswith(prefix) and name != label)
        if not 2 <= len(matching) <= MAX_CLASSES:
            found = f"{len(matching)} among {len(names)} columns"
            return RejectionProblem(Reason.MISSING_FIELD, f"2 to {MAX_CLASSES:,} columns named {prefix}…", found)
        classes = tuple(name[len(prefix) :] for name in matching)
        if not all(classes):
            expected = f"a class name after {prefix!r} in each column"
            return RejectionProblem(Reason.BAD_HEADER, expected, "none in one of them")
        order = order_of(classes, model.classes)
        if isinstance(order, RejectionProblem):
            return order
        model = replace(model, classes=model.classes or classes)
        return replace(self, models=(model,), columns=tuple(matching[place] for place in order))

    def unknown_class_columns(
        self, prefix: str | None, names: Iterable[str], known: Iterable[str]
    ) -> RejectionProblem | None:
        """Return the problem if a file has class columns that the model does not have."""
        if prefix is None or len(self.models) > 1 or self.columns is not None:
            return None
        strange = len({name for name in names if name.startswith(prefix)} - set(known))
        expected = f"columns {prefix}… of the {len(self.models[0].classes or ())} classes only"
        return RejectionProblem(Reason.UNKNOWN_CLASS, expected, f"{strange} more") if strange else None


def _fields_of_labels(fields: RecordFields) -> RecordFields:
    """Return the fields of records with labels."""
    label = fields.label or "label"
    for name in ("model", "id", "time"):
        if getattr(fields, name) == label:
            raise UsageError(Problem("fields.label", f"a field other than that of the {name}", repr(label)))
    if fields.id is None:
        raise UsageError(Problem("fields.id", "the field of the id, which finds the prediction", "none"))
    return RecordFields(
        model=fields.model,
        version=None,
        id=fields.id,
        time=fields.time,
        time_unit=fields.time_unit,
        time_zone=fields.time_zone,
        label=label,
    )


def _check_paths(outputs: set[FieldPath], others: set[FieldPath], among_outputs: str, elsewhere: str) -> None:
    """Raise UsageError if a path leads through another, or a field is used for outputs and for something else.

    The last two are where the problem is: among the outputs only, or elsewhere.
    """
    if both := outputs & others:
        raise UsageError(Problem(elsewhere, "a field other than that of the outputs", join_path(min(both))))
    for path in outputs | others:
        for length in range(1, len(path)):
            if path[:length] in outputs | others:
                found = f"{join_path(path[:length])} and {join_path(path)}"
                where = among_outputs if {path[:length], path} <= outputs else elsewhere
                raise UsageError(Problem(where, "fields that do not contain each other", found))


def order_of(found: tuple[str, ...], classes: tuple[str, ...] | None) -> Sequence[int] | RejectionProblem:
    """Return the index of each expected class among the names found in a file."""
    if classes is None or found == classes:
        return range(len(found))
    if len(found) == len(classes) and set(found) == set(classes):
        place = {name: index for index, name in enumerate(found)}
        return [place[name] for name in classes]
    # Unnamed classes only fix their number. But names such as 1, 10, 11, 2 were sorted by some tool and are not in
    # class order.
    if len(found) == len(classes) and classes == numbered(len(classes)) and not _out_of_order(found):
        return range(len(found))
    return RejectionProblem(Reason.UNKNOWN_CLASS, f"the classes {listed(classes)}", listed(found))


def _out_of_order(names: tuple[str, ...]) -> bool:
    if not all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return False
    numbers = [int(name) for name in names]
    return numbers != sorted(numbers)
