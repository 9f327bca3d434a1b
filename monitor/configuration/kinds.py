"""What a setting may be: the contract, and how a value that is something else is told."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from monitor.configuration.yaml_text import Items, Node, Scalar, Settings, kept_back, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value."""

    expected: str
    found: str
    line: int
    below: str = ""
    """Which part of the setting, as `[2]`."""

    def under(self, place: str) -> "Fault":
        """Return the fault as one of a part of something larger."""
        return replace(self, below=place + self.below)


class Unfit(Exception):
    """A value that is not of the kind that a setting needs."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*(fault.expected for fault in faults))
        self.faults = faults


def unfit(node: Node, expected: str, advice: str = "") -> Unfit:
    """Return what to raise for a value that is something else than expected."""
    return Unfit(Fault(expected, shown(node) + (f": {advice}" if advice else ""), node.line))


def is_nothing(node: Node) -> bool:
    """Tell whether a key stands there without a value."""
    return isinstance(node, Scalar) and shown(node) == "nothing"


class Kind(ABC, Generic[T]):
    """What a setting may be."""

    @property
    @abstractmethod
    def word(self) -> str:
        """What the page on the configuration calls it."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What messages call it, with its bounds."""

    @property
    @abstractmethod
    def stand_in(self) -> T:
        """Any value of the kind, to go on with after a mistake was found."""

    @abstractmethod
    def read(self, node: Node) -> T:
        """Return the value; raises Unfit."""

    def show(self, value: T) -> str:
        """Return a value as it is written in a file."""
        return str(value)


@dataclass(frozen=True)
class ListOf(Kind[tuple[T, ...]], Generic[T]):
    """A list of values of one kind."""

    kind: Kind[T]
    what: str
    """What is expected, as "a list of names"."""
    fewest: int = 0

    @property
    def word(self) -> str:
        """Of what it is a list."""
        return f"list of {self.kind.word}s"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    @property
    def stand_in(self) -> tuple[T, ...]:
        """The empty list."""
        return ()

    def read(self, node: Node) -> tuple[T, ...]:
        """Return the values."""
        if not isinstance(node, Items):
            raise unfit(node, self.what)
        if len(node.nodes) < self.fewest:
            raise Unfit(Fault(self.what, "an empty one", node.line))
        values, faults = list[T](), list[Fault]()
        for place, item in enumerate(node.nodes):
            try:
                values.append(self.kind.read(item))
            except Unfit as error:
                faults.extend(fault.under(f"[{place}]") for fault in error.faults)
        if faults:
            raise Unfit(*faults)
        return tuple(values)

    def show(self, value: tuple[T, ...]) -> str:
        """Return the values in brackets."""
        return f"[{', '.join(self.kind.show(one) for one in value)}]"


@dataclass(frozen=True)
class ByName(Kind[dict[str, T]], Generic[T]):
    """Values of one kind under names that the operator chooses."""

    kind: Kind[T]
    name: Kind[str]
    """Of what kind the names are: only how they are written matters."""
    what: str

    @property
    def word(self) -> str:
        """What stands under the names."""
        return f"{self.kind.word}s by name"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    @property
    def stand_in(self) -> dict[str, T]:
        """No names."""
        return {}

    def read(self, node: Node) -> dict[str, T]:
        """Return the values by their names."""
        if not isinstance(node, Settings):
            raise Unfit(Fault(self.what, kept_back(node), node.line))
        values, faults = dict[str, T](), list[Fault]()
        for name, entry in node.entries.items():
            try:
                values[name] = self.kind.read(entry.node)
            except Unfit as error:
                faults.extend(fault.under(f".{name}") for fault in error.faults)
        if faults:
            raise Unfit(*faults)
        return values

    def show(self, value: dict[str, T]) -> str:
        """Return the values in braces."""
        return "{" + ", ".join(f"{self.name.show(name)}: {self.kind.show(one)}" for name, one in value.items()) + "}"
