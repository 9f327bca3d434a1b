"""Vectors that were decoded from JSON: lists of numbers, or objects with one key a class, into columns."""

from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from monitor.records.labels import Indices
from monitor.records.offline.intake import Intake
from monitor.records.rejections import Reason, RejectionProblem, shown
from monitor.records.vectors import Floats

Vector = list[float] | dict[str, float]

decode_vector = msgspec.json.Decoder[Vector](Vector).decode
"""Decodes the JSON text of one vector; raises ValueError or RecursionError."""

_encode = msgspec.msgpack.Encoder().encode

_FLOAT = 0xCB
"""MessagePack's mark of a float of eight bytes."""


def add_vectors(intake: Intake, numbers: Indices, vectors: list[Vector], labels: list[object] | None) -> None:
    """Hand decoded vectors to the rules; those with one key a class are first put in the order of the classes."""
    if dict in set(map(type, vectors)):
        arranged = [arrange(vector, intake.classes) if isinstance(vector, dict) else vector for vector in vectors]
        kept = []
        vectors = []
        for place, vector in enumerate(arranged):
            if isinstance(vector, RejectionProblem):
                intake.reject(int(numbers[place]), vector)
            else:
                kept.append(place)
                vectors.append(vector)
        numbers = numbers[kept]
        labels = None if labels is None else [labels[place] for place in kept]
    flat: Floats = np.fromiter(chain.from_iterable(vectors), dtype=np.float64)
    lengths: Indices = np.fromiter(map(len, vectors), dtype=np.int64)
    intake.add(numbers, flat, lengths, labels)


def matrix_of(vectors: Sequence[object], width: int) -> Floats | None:
    """Return decoded vectors as a matrix; None when one of them is no list of this length.

    Much faster than going through Python's floats: MessagePack writes each as a mark and eight bytes, so that rows of
    equal length stand at equal distances.
    """
    count = len(vectors)
    if not count or not width:
        return None
    encoded = _encode(vectors)
    before = _size_of_head(count)
    head = _encode([None] * width)[: _size_of_head(width)]
    stride = len(head) + 9 * width
    if len(encoded) != before + count * stride:
        return None
    # A row that starts where it should, and with this length, ends where the next one should start. So if all start
    # alike, all have this length; an object with one key a class starts differently.
    heads = np.ndarray((count, len(head)), np.uint8, encoded, before, (stride, 1))
    if (heads != np.frombuffer(head, np.uint8)).any():
        return None
    numbers = np.ndarray((count, width), ">f8", encoded, before + len(head) + 1, (stride, 9))
    return numbers.astype(np.float64)


def floats_of(values: Sequence[object]) -> Floats | None:
    """Return decoded numbers as an array; None when one of them is something else than a float."""
    count = len(values)
    if not count:
        return None
    encoded = _encode(values)
    before = _size_of_head(count)
    if len(encoded) != before + 9 * count:
        return None
    # The first one stands where it should; if it is marked as a float it has nine bytes, and so the next one does too.
    if (np.ndarray(count, np.uint8, encoded, before, 9) != _FLOAT).any():
        return None
    return np.ndarray(count, ">f8", encoded, before + 1, 9).astype(np.float64)


def _size_of_head(count: int) -> int:
    # How many bytes MessagePack spends on saying how long an array is.
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5


def arrange(vector: dict[str, float], classes: tuple[str, ...] | None) -> list[float] | RejectionProblem:
    """Put the numbers of an object with one key a class in the order of the classes."""
    if classes is None:
        expected = "the class names to be known (give them with --classes)"
        return RejectionProblem(Reason.UNKNOWN_CLASS, expected, "a vector with names")
    if len(vector) == len(classes):
        in_order = [vector[name] for name in classes if name in vector]
        if len(in_order) == len(classes):
            return in_order
    known = set(classes)
    odd = next((name for name in vector if name not in known), None)
    missing = next((name for name in classes if name not in vector), None)
    found = f"no class {shown(missing)}" if odd is None else f"the class {shown(odd)}"
    return RejectionProblem(Reason.UNKNOWN_CLASS, f"one number for each of the {len(classes)} classes", found)
