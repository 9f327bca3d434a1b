"""Where a refused record stands among messages, without anything of what it says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monitor.decode.arrived import Pointer
from monitor.decode.labels import Indices
from monitor.decode.line_pointers import LinePointers, Shape
from monitor.decode.message_values import Text
from monitor.decode.refusals import Refused
from monitor.decode.rejections import Reason


@dataclass(frozen=True, slots=True)
class PointerRules:
    """What pointers may tell."""

    hash_key: bytes
    keep_raw: bool
    shape: Shape

    def of_message(self, message: bytes, offset: int) -> Pointer:
        """Return a pointer to a message as a whole."""
        return LinePointers(message, offset, self.hash_key, False, None)(_all_of(message))

    def of_record(self, text: bytes) -> Pointer:
        """Return a pointer that tells how a record looks."""
        return LinePointers(text, 0, self.hash_key, self.keep_raw, self.shape)(_all_of(text))


class MessagePointers:
    """Makes pointers to refused records. These come in order, so that each message is looked at once."""

    def __init__(
        self,
        rules: PointerRules,
        values: Sequence[bytes],
        offsets: Sequence[int],
        ends: Indices,
        texts_of: Callable[[bytes], Sequence[Text] | Reason],
    ) -> None:
        self._rules = rules
        self._values = values
        self._offsets = offsets
        self._ends = ends
        self._texts_of = texts_of
        self._message = -1
        self._first = 0
        self._whole = Pointer(Reason.EMPTY, 0)
        self._texts: Sequence[Text] = ()

    def __call__(self, refused: Refused) -> Pointer:
        """Return where a record stands: offset, length and digest of its message, and its place there, counting from 1."""
        message = int(np.searchsorted(self._ends, refused.number, side="right"))
        if message != self._message:
            self._turn_to(message)
        place = refused.number - self._first
        looks = self._rules.of_record(bytes(self._texts[place]) if self._texts else self._values[message])
        return replace(self._whole, reason=refused.reason, number=place + 1, shape=looks.shape, raw=looks.raw)

    def _turn_to(self, message: int) -> None:
        value = self._values[message]
        self._message = message
        self._first = int(self._ends[message - 1]) if message else 0
        self._whole = self._rules.of_message(value, self._offsets[message])
        texts = self._texts_of(value)
        # A message that is refused as a whole has no texts; and many packed records share one.
        count = int(self._ends[message]) - self._first
        self._texts = () if isinstance(texts, Reason) or len(texts) != count else texts


def _all_of(text: bytes) -> Refused:
    return Refused(0, Reason.EMPTY, 0, len(text))
