"""Where the outputs stand in a file and what their numbers are: declared by the user, never guessed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from monitor.errors import UsageError
from monitor.records.rejections import Reason, RejectionProblem, listed

MAX_CLASSES = 20_000


class OutputKind(StrEnum):
    """What the numbers of a record are."""

    PROBS = "probs"
    """One probability a class."""
    LOGITS = "logits"
    """One logit a class; softmax turns them into probabilities."""
    SCORE = "score"
    """A single number, the probability of the second of two classes."""
    PERCENT = "percent"
    """One percentage a class."""
    LOGPROB = "logprob"
    """The natural logarithm of one probability a class."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields or columns to read, and how."""

    kind: OutputKind = OutputKind.PROBS
    vector_field: str | None = None
    """Field of the vector or score; by default `probs`, `logits` or `score`, as the kind says."""
    class_columns: tuple[str, ...] | None = None
    """One column a class instead of one vector; a single `prob_*` means every column that starts with `prob_`."""
    label_field: str | None = None
    """Field of the true class; None when labels are not read."""
    classes: tuple[str, ...] | None = None
    """Names of the classes in order; None to take them from the file."""

    def __post_init__(self) -> None:
        """Refuse combinations that make no sense."""
        if self.class_columns is not None:
            self._check_class_columns(self.class_columns)
        if self.classes is not None:
            self._check_classes(self.classes)
        if self.label_field is not None and self.label_field in {self.field, *(self.class_columns or ())}:
            raise UsageError(f"label: expected another field than that of the outputs, found {self.label_field!r}")

    def _check_class_columns(self, columns: tuple[str, ...]) -> None:
        where = "class columns"
        if self.vector_field is not None:
            raise UsageError(f"{where}: expected either them or a vector field, found both")
        if self.kind is OutputKind.SCORE:
            raise UsageError(f"{where}: expected none, since a score is a single field, found {listed(columns)}")
        if self.prefix is None and (len(columns) < 2 or any(name.endswith("*") for name in columns)):
            raise UsageError(f"{where}: expected two names or more, or a single prefix*, found {listed(columns)}")
        if len(set(columns)) < len(columns):
            raise UsageError(f"{where}: expected each name once, found {listed(columns)}")
        if self.prefix is None and self.classes is not None and len(self.classes) != len(columns):
            raise UsageError(f"{where}: expected {len(self.classes)}, one a class, found {len(columns)}")

    def _check_classes(self, classes: tuple[str, ...]) -> None:
        if not 2 <= len(classes) <= MAX_CLASSES:
            raise UsageError(f"classes: expected 2 to {MAX_CLASSES:,} names, found {len(classes)}")
        if not all(classes):
            raise UsageError("classes: expected a name for each, found an empty one")
        if len(set(classes)) < len(classes):
            raise UsageError(f"classes: expected each name once, found {listed(classes)}")
        if self.kind is OutputKind.SCORE and len(classes) != 2:
            raise UsageError(f"classes: expected 2 names, since a score is that of the second, found {len(classes)}")

    @property
    def field(self) -> str | None:
        """Name of the field that holds the vector or score; None when each class has its own column."""
        if self.class_columns is not None:
            return None
        if self.vector_field is not None:
            return self.vector_field
        return str(self.kind) if self.kind in {OutputKind.LOGITS, OutputKind.SCORE} else "probs"

    @property
    def prefix(self) -> str | None:
        """How the names of the class columns start, when they are given as a single `prefix*`."""
        columns = self.class_columns
        return columns[0][:-1] if columns and len(columns) == 1 and columns[0].endswith("*") else None


@dataclass(frozen=True, slots=True)
class ClassColumns:
    """The class columns of one file, in the order of the classes."""

    columns: tuple[str, ...]
    classes: tuple[str, ...] | None
    """Their classes; None when nothing names them."""


def find_class_columns(layout: Layout, names: Sequence[str]) -> ClassColumns | RejectionProblem:
    """Find the class columns that a layout asks for among the names in a file."""
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
    """Return where each expected class stands among the names found in a file."""
    if classes is None or found == classes:
        return range(len(found))
    if len(found) == len(classes) and set(found) == set(classes):
        place = {name: index for index, name in enumerate(found)}
        return [place[name] for name in classes]
    # Classes without names of their own say how many there are, and nothing else; but numbers in a strange order
    # (1, 10, 11, 2 …) are an order that somebody's tool made, and no order of classes.
    if len(found) == len(classes) and classes == numbered(len(classes)) and not _out_of_order(found):
        return range(len(found))
    return RejectionProblem(Reason.UNKNOWN_CLASS, f"the classes {listed(classes)}", listed(found))


def _out_of_order(names: tuple[str, ...]) -> bool:
    if not all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return False
    numbers = [int(name) for name in names]
    return numbers != sorted(numbers)


def numbered(count: int) -> tuple[str, ...]:
    """Return the names of classes that have none: 0, 1, 2 and so on."""
    return tuple(str(index) for index in range(count))
