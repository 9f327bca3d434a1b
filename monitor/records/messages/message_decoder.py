"""The decoder of Kafka messages: each holds one record or many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.records.batch_builder import ModelRules
from monitor.records.formats.jsonl import JsonLines
from monitor.records.formats.line_blocks import BLOCK_BYTES, line_blocks
from monitor.records.hints import IN_A_FILE_OF_SETTINGS, Wording
from monitor.records.labels import Indices
from monitor.records.messages.message_batch import MessageGathering
from monitor.records.messages.message_forms import MessageForms, Text, may_name
from monitor.records.messages.packed import PackedRecords, may_be_packed
from monitor.records.pointers import MessagePointers, PointerRules, RecordShape
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields, check_formats
from monitor.records.rejections import Reason
from monitor.records.times import TimeRules
from monitor.records.vectors import Floats

_OPEN = ord("{")


class MessageLines(JsonLines):
    """Decodes texts of one record each."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        super().__init__(models, fields)
        # Records of one model that must have outputs are told from messages in other forms by the decoder itself.
        self._all_have_outputs = len({fields.output_paths(model) for model in models}) == 1

    def take_plain(self, messages: Sequence[bytes], first: int, piece: MessageGathering) -> bool:
        """Take messages if each is one object on one line, and a record if anything; else do nothing, and say so."""
        if not messages[0].startswith(b"{") or _looks_other(messages[0]):
            return False
        text = b"\n".join((*messages, b""))
        if not self._all_have_outputs and _looks_other(text):
            return False
        blocks = list(line_blocks(text))
        if len(blocks) != 1 or len(blocks[0]) != len(messages):
            return False
        (block,) = blocks
        piece.is_ascii = text.isascii()
        piece.first = first
        together = self._decoded_together(block, 0, len(block), piece) if block.braced().all() else None
        if together is not None:
            self._route(np.arange(len(block)), together, block, piece)
            return True
        # A bad record is no reason to look for other forms where there can be none.
        if not (np.frombuffer(block.text, np.uint8)[block.starts] == _OPEN).all() or _looks_other(text):
            return False
        self._verdicts.clear()
        self._take_one_by_one(range(len(block)), block, piece, None)
        return True

    def take_texts(self, texts: Sequence[Text], first: int, piece: MessageGathering) -> None:
        """Hand over the records of texts without newlines inside, or refuse them."""
        text = b"\n".join((*texts, b""))
        piece.is_ascii = text.isascii()
        for block in line_blocks(text):
            piece.first = first + block.first
            self.take(block, piece, None)  # a topic is never given up as something else


def _looks_other(text: bytes) -> bool:
    """Tell whether a text may hold records, or packed ones."""
    return may_name(text, b'"records"') or may_be_packed(text)


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
        self._pointers = PointerRules(hash_key, keep_raw, RecordShape(models, fields))
        self._max_bytes = max_message_bytes

    def decode(self, where: str, messages: Messages) -> RecordBatch:
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
