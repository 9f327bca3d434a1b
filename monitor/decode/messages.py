"""The decoder of messages: each holds one record or many, and becomes columns for each model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.decode.arrived import Arrived
from monitor.decode.gathering import ModelRules
from monitor.decode.hints import IN_A_FILE_OF_SETTINGS, Wording
from monitor.decode.labels import Indices
from monitor.decode.line_blocks import BLOCK_BYTES
from monitor.decode.line_pointers import Shape
from monitor.decode.message_forms import MessageForms
from monitor.decode.message_gathering import MessageGathering
from monitor.decode.message_lines import MessageLines
from monitor.decode.message_packed import PackedRecords, may_be_packed
from monitor.decode.message_pointers import MessagePointers, PointerRules
from monitor.decode.message_values import Text
from monitor.decode.record_format import ModelFormat, RecordFields, check_formats
from monitor.decode.rejections import Reason
from monitor.decode.times import TimeRules
from monitor.decode.vectors import Floats

MAX_MESSAGE_BYTES = 8 << 20

# Decoded objects of so many bytes stay in a core's cache until they have become columns.
_TOGETHER_BYTES = 3 << 15


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one partition, in the order of their offsets; no tombstones among them."""

    values: Sequence[bytes]
    offsets: Sequence[int]
    times: Floats
    """Unix seconds as the broker or producer stamped them; NaN where there is none."""


class MessageDecoder:
    """Decodes the messages of some models; remembers nothing but how the latest records looked. Not shared by threads.

    The key hashes ids and refused messages; it has 16 bytes, and the same ids are known again only under the same key.
    """

    def __init__(
        self,
        models: Sequence[ModelFormat],
        fields: RecordFields | None = None,
        *,
        hash_key: bytes,
        keep_raw: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        wording: Wording = IN_A_FILE_OF_SETTINGS,
    ) -> None:
        fields = RecordFields() if fields is None else fields
        check_formats(models, fields)
        times = TimeRules(fields.time_unit, fields.zone())
        self._rules = {model.name: ModelRules(model, times, hash_key, wording) for model in models}
        self._forms = MessageForms(models, fields, max_message_bytes)
        self._lines = MessageLines(models, fields)
        self._packed = PackedRecords(models, fields)
        self._pointers = PointerRules(hash_key, keep_raw, Shape(models, fields))
        self._max_bytes = max_message_bytes

    def decode(self, where: str, messages: Messages) -> Arrived:
        """Decode messages; never raises, whatever they hold."""
        gathering = MessageGathering(where, self._rules)
        counts: list[Indices] = []
        number = waiting = 0
        for some, size in _groups(messages.values):
            fits = size <= self._max_bytes or max(map(len, some)) <= self._max_bytes
            if fits and self._lines.take_plain(some, number, gathering):
                counts.append(np.ones(len(some), dtype=np.int64))
                number += len(some)
            else:
                each = self._taken_apart(some, number, gathering)
                counts.append(np.array(each, dtype=np.int64))
                number += sum(each)
            waiting += size
            if waiting >= BLOCK_BYTES:
                gathering.end_block()
                waiting = 0
        gathering.end_block()
        ends: Indices = np.cumsum(np.concatenate(counts)) if counts else np.zeros(0, dtype=np.int64)
        pointers = MessagePointers(self._pointers, messages.values, messages.offsets, ends, self._forms.texts)
        arrived = gathering.finish(number + gathering.ignored, pointers)
        return gathering.timed(arrived, ends, messages.times)

    def _taken_apart(self, values: Sequence[bytes], first: int, gathering: MessageGathering) -> list[int]:
        """Take messages of any form, the first record of which has this number; return how many records each is."""
        counts: list[int] = []
        lines: list[Text] = []
        number = first

        def take_lines() -> None:
            if lines:
                self._lines.take_texts(lines, number - len(lines), gathering)
                lines.clear()

        for value in values:
            start = number
            texts = self._forms.texts(value)
            if isinstance(texts, Reason):
                take_lines()
                gathering.refuse("", number, texts)
                number += 1
            elif not texts:
                gathering.ignored += 1
            elif not may_be_packed(value):
                self._packed.hand_over(gathering)
                lines.extend(texts)
                number += len(texts)
            else:
                for text in texts:
                    if (packed := self._packed.read(text)) is None:
                        self._packed.hand_over(gathering)
                        lines.append(text)
                        number += 1
                    else:
                        take_lines()
                        number += self._packed.take(packed, number, gathering)
            counts.append(number - start)
        take_lines()
        self._packed.hand_over(gathering)
        return counts


def _groups(values: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Yield consecutive messages that are decoded together, and their bytes: few enough, or those of a single message."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    first = before = 0
    while first < len(values):
        after = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER_BYTES, side="right")))
        end = int(ends[after - 1])
        yield values[first:after], end - before
        first, before = after, end
