"""Vectors that were decoded from JSON: lists of numbers, or objects with one key a class, into columns."""

from itertools import chain

import msgspec
import numpy as np

from monitor.decode.intake import Intake
from monitor.decode.labels import Indices
from monitor.decode.rejections import Problem, Reason, shown
from monitor.decode.vectors import Floats

Vector = list[float] | dict[str, float]

decode_vector = msgspec.json.Decoder[Vector](Vector).decode
"""Decodes the JSON text of one vector; raises ValueError or RecursionError."""


def add_vectors(intake: Intake, numbers: Indices, vectors: list[Vector], labels: list[object] | None) -> None:
    """Hand decoded vectors to the rules; those with one key a class are first put in the order of the classes."""
    if dict in set(map(type, vectors)):
        arranged = [_arrange(vector, intake.classes) if isinstance(vector, dict) else vector for vector in vectors]
        kept = []
        vectors = []
        for place, vector in enumerate(arranged):
            if isinstance(vector, Problem):
                intake.reject(int(numbers[place]), vector)
            else:
                kept.append(place)
                vectors.append(vector)
        numbers = numbers[kept]
        labels = None if labels is None else [labels[place] for place in kept]
    flat: Floats = np.fromiter(chain.from_iterable(vectors), dtype=np.float64)
    lengths: Indices = np.fromiter(map(len, vectors), dtype=np.int64)
    intake.add(numbers, flat, lengths, labels)


def _arrange(vector: dict[str, float], classes: tuple[str, ...] | None) -> list[float] | Problem:
    if classes is None:
        expected = "the class names to be known (give them with --classes)"
        return Problem(Reason.UNKNOWN_CLASS, expected, "a vector with names")
    if len(vector) == len(classes):
        in_order = [vector[name] for name in classes if name in vector]
        if len(in_order) == len(classes):
            return in_order
    known = set(classes)
    odd = next((name for name in vector if name not in known), None)
    missing = next((name for name in classes if name not in vector), None)
    found = f"no class {shown(missing)}" if odd is None else f"the class {shown(odd)}"
    return Problem(Reason.UNKNOWN_CLASS, f"one number for each of the {len(classes)} classes", found)
