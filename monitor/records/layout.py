"""The layout of a file: the fields of outputs and labels, and the output kind. Declared by the user, never guessed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from monitor.errors import Problem, UsageError
from monitor.records.rejections import Reason, RejectionProblem, listed

MAX_CLASSES = 20_000


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


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields or columns to read."""

    kind: OutputKind = OutputKind.PROBS
    vector_field: str | None = None
    """Field of the vector or score; by default `probs`, `logits` or `score`, by the kind."""
    class_columns: tuple[str, ...] | None = None
    """One column per class instead; a single `prob_*` means every column that starts with `prob_`."""
    label_field: str | None = None
    """Field of the true class; None when labels are not read."""
    classes: tuple[str, ...] | None = None
    """Class names in order; None to take them from the file."""

    def __post_init__(self) -> None:
        """Raise UsageError for invalid combinations."""
        if self.class_columns is not None:
            self._check_class_columns(self.class_columns)
        if self.classes is not None:
            self._check_classes(self.classes)
        if self.label_field is not None and self.label_field in {self.field, *(self.class_columns or ())}:
            raise UsageError(Problem("label", "a field other than that of the outputs", repr(self.label_field)))

    def _check_class_columns(self, columns: tuple[str, ...]) -> None:
        where = "class columns"
        if self.vector_field is not None:
            raise UsageError(Problem(where, "either class columns or a vector field", "both"))
        if self.kind is OutputKind.SCORE:
            raise UsageError(Problem(where, "none, since a score is a single field", listed(columns)))
        if self.prefix is None and (len(columns) < 2 or any(name.endswith("*") for name in columns)):
            raise UsageError(Problem(where, "two names or more, or a single prefix*", listed(columns)))
        if len(set(columns)) < len(columns):
            raise UsageError(Problem(where, "each name once", listed(columns)))
        if self.prefix is None and self.classes is not None and len(self.classes) != len(columns):
            raise UsageError(Problem(where, f"{len(self.classes)}, one per class", f"{len(columns)}"))

    def _check_classes(self, classes: tuple[str, ...]) -> None:
        if not 2 <= len(classes) <= MAX_CLASSES:
            raise UsageError(Problem("classes", f"2 to {MAX_CLASSES:,} names", f"{len(classes)}"))
        if not all(classes):
            raise UsageError(Problem("classes", "a name for each class", "an empty name"))
        if len(set(classes)) < len(classes):
            raise UsageError(Problem("classes", "each name once", listed(classes)))
        if self.kind is OutputKind.SCORE and len(classes) != 2:
            raise UsageError(Problem("classes", "2 names for kind score", f"{len(classes)}"))

    @property
    def field(self) -> str | None:
        """Field of the vector or score; None with class columns."""
        if self.class_columns is not None:
            return None
        if self.vector_field is not None:
            return self.vector_field
        return str(self.kind) if self.kind in {OutputKind.LOGITS, OutputKind.SCORE} else "probs"

    @property
    def prefix(self) -> str | None:
        """The prefix of the class columns, if they are given as a single `prefix*`."""
        columns = self.class_columns
        return columns[0][:-1] if columns and len(columns) == 1 and columns[0].endswith("*") else None


@dataclass(frozen=True, slots=True)
class ClassColumns:
    """The class columns of a file, in class order."""

    columns: tuple[str, ...]
    classes: tuple[str, ...] | None
    """Their class names; None if unknown."""


def find_class_columns(layout: Layout, names: Sequence[str]) -> ClassColumns | RejectionProblem:
    """Find the class columns of a layout among the column names of a file."""
    wanted = layout.class_columns or ()
    if layout.prefix is None:
        present = set(names)
        missing = tuple(column for column in wanted if column not in present)
        if missing:
            found = f"no {listed(missing)} among {listed(tuple(names))}"
            return RejectionProblem(Reason.MISSING_FIELD, f"the columns {listed(wanted)}", found)
        return ClassColumns(wanted, layout.classes)
    prefix = layout.prefix
    matching = tuple(name for name in names if name.startswith(prefix) and name != layout.label_field)
    if not 2 <= len(matching) <= MAX_CLASSES:
        found = f"{len(matching)} among {len(names)} columns"
        return RejectionProblem(Reason.MISSING_FIELD, f"2 to {MAX_CLASSES:,} columns named {prefix}…", found)
    classes = tuple(name[len(prefix) :] for name in matching)
    if not all(classes):
        return RejectionProblem(
            Reason.BAD_HEADER, f"a class name after {prefix!r} in each column", "none in one of them"
        )
    order = order_of(classes, layout.classes)
    if isinstance(order, RejectionProblem):
        return order
    return ClassColumns(tuple(matching[place] for place in order), layout.classes or classes)


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


def numbered(count: int) -> tuple[str, ...]:
    """Return the names of unnamed classes: 0, 1, 2 and so on."""
    return tuple(str(index) for index in range(count))
