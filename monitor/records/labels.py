"""The rules on labels: a class name or index, as a number or a string."""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.records.record_schema import numbered
from monitor.records.rejections import Reason, RejectionProblem, listed, preview
from monitor.records.vectors import ACCEPTED, Codes, Indices, code_of

Labels = NDArray[Any] | Sequence[object]

NO_CLASS = -1
"""The index of an invalid label."""

_INTEGER = re.compile(r"-?[0-9]+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_SPELT = 20
# Some tools write an integer column with missing values as floats: 3 becomes "3.0".
_WHOLE = re.compile(r"(-?[0-9]{1,18})\.0+")


class LabelRules:
    """Converts labels into class indices."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self._unnamed = classes == numbered(len(classes))
        self._index = {name: index for index, name in enumerate(classes)}
        # With class names that are numbers, a label is always a name.
        self._may_be_index = not any(_INTEGER.fullmatch(name) for name in classes)
        self.one_past_the_last = False
        """Whether a label was K, where indices run from 0 to K - 1: a sign of labels that count from 1."""

    def index(self, label: object) -> int | RejectionProblem:
        """Return the class index of a label."""
        text = _text(label)
        if isinstance(text, RejectionProblem):
            return text
        whole = _WHOLE.fullmatch(text)
        for name in (text, whole.group(1)) if whole else (text,):
            if name in self._index:
                return self._index[name]
            if self._may_be_index and _INDEX.fullmatch(name) and int(name) < len(self.classes):
                return int(name)
            if (self._may_be_index or self._unnamed) and name == str(len(self.classes)):
                self.one_past_the_last = True
        expected = f"one of the classes {listed(self.classes)}"
        if self._unnamed and not _INTEGER.fullmatch(text):
            expected += " (set their names in vector order with --classes)"
        return RejectionProblem(Reason.LABEL_OUT_OF_RANGE, expected, preview(label))

    def indices(self, labels: Labels) -> tuple[Indices, Codes]:
        """Return the index of each label, and the code of each rejected one."""
        if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
            distinct, inverse = np.unique(labels, return_inverse=True)
            values, positions = distinct.tolist(), inverse.reshape(-1)
        else:
            values, positions = list(labels), np.arange(len(labels))
        answers = self._answers(values)
        indices = np.array([NO_CLASS if isinstance(a, RejectionProblem) else a for a in answers], dtype=np.int64)
        codes = [code_of(a.reason) if isinstance(a, RejectionProblem) else ACCEPTED for a in answers]
        return indices[positions], np.array(codes, dtype=np.uint8)[positions]

    def counted_from_one(self) -> str:
        """Return the message that labels seem to count from 1."""
        most = len(self.classes)
        numbers = ",".join(map(str, range(1, most + 1))) if most <= _MOST_SPELT else f'"$(seq -s, 1 {most})"'
        named = f"name the classes by these numbers: --classes {numbers}" if self._unnamed else "write the class names"
        return (
            f"expected labels that count from 0 to {most - 1}, found labels from 1 to {most} and no 0:"
            f" subtract 1 from each, or {named}"
        )

    def _answers(self, values: list[object]) -> list[int | RejectionProblem]:
        known: dict[tuple[type, object], int | RejectionProblem] = {}
        answers: list[int | RejectionProblem] = []
        for value in values:
            if not isinstance(value, str | int | float):
                answers.append(self.index(value))
                continue
            # True == 1, so the key includes the type.
            key = (type(value), value)
            if key not in known:
                known[key] = self.index(value)
            answers.append(known[key])
        return answers


def _text(label: object) -> str | RejectionProblem:
    """Return a label as a string."""
    expected = "a class name or index"
    if isinstance(label, np.generic):
        label = label.item()
    match label:
        case str() | bytes() if not label:
            return RejectionProblem(Reason.MISSING_FIELD, "a label", "none")
        case str():
            return label
        case bytes():
            return label.decode("utf-8", errors="replace")
        case None | bool():
            return RejectionProblem(Reason.WRONG_TYPE, expected, {None: "null", True: "true", False: "false"}[label])
        case int() | float():
            return _text_of_number(label)
        case _:
            return RejectionProblem(Reason.WRONG_TYPE, expected, f"a value of type {type(label).__name__}")


def _text_of_number(label: float) -> str | RejectionProblem:
    if isinstance(label, int):
        # Python does not convert integers of more than 4,300 digits.
        huge = label.bit_length() > 64
        return RejectionProblem(Reason.OUT_OF_RANGE, "a class index", "a huge integer") if huge else str(label)
    if not isfinite(label):
        return RejectionProblem(Reason.WRONG_TYPE, "a class name or index", preview(label))
    return str(int(label)) if label.is_integer() and abs(label) < 2**53 else str(label)
