"""The decoder of Kafka messages: each holds one record or many."""

from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from monitor.records.batch_builder import BlockBuilder, Candidates, ModelRules, Routes
from monitor.records.formats.json_problems import find, is_absent, read_line
from monitor.records.formats.json_struct import REFUSED
from monitor.records.formats.jsonl import JsonLines
from monitor.records.formats.text import BLOCK_BYTES, LineBlock, line_blocks
from monitor.records.hints import IN_A_FILE_OF_SETTINGS, Wording
from monitor.records.labels import Indices
from monitor.records.message_forms import PACKED, MessageForms, Text, may_name, packed_paths
from monitor.records.pointers import MessagePointers, PointerRules, RecordShape
from monitor.records.record_batch import ModelRecords, RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields, check_formats
from monitor.records.rejections import Reason
from monitor.records.times import LATEST, TimeRules
from monitor.records.vectors import Floats


class MessageGathering(BlockBuilder):
    """Takes records under numbers that count through all messages, whatever texts they were decoded from."""

    def __init__(self, where: str, rules: Mapping[str, ModelRules]) -> None:
        super().__init__(where, rules, first_number=0)
        self.first = 0
        """The number of the first record of the text that is being decoded."""
        self._taken: dict[str, list[Indices]] = {}
        self._refused: dict[str, list[int]] = {}

    def add(self, model: str, candidates: Candidates) -> None:
        """Take some records of a model, numbered as their text numbers them."""
        numbers = candidates.numbers + self.first
        self._taken.setdefault(model, []).append(numbers)
        super().add(model, replace(candidates, numbers=numbers))

    def refuse(self, model: str, place: int, reason: Reason, block: LineBlock | None = None) -> None:
        """Refuse the record at a place of the text that is being decoded, or under its own number."""
        number = place if block is None else self.first + place
        self._refused.setdefault(model, []).append(number)
        super().refuse(model, number, reason)

    def timed(self, arrived: RecordBatch, ends: Indices, times: Floats) -> RecordBatch:
        """Give records without a time that of their message; its last record has a number below the message's end."""
        # A producer's clock may say anything; what it says is no fault of the records.
        usable = np.where((times >= 0.0) & (times <= LATEST), times, np.nan)
        models = {name: self._timed(name, one, ends, usable) for name, one in arrived.models.items()}
        return replace(arrived, models=models)

    def _timed(self, model: str, accepted: ModelRecords, ends: Indices, times: Floats) -> ModelRecords:
        absent = np.isnan(accepted.records.at)
        if not absent.any():
            return accepted
        numbers = np.concatenate(self._taken[model])
        if model in self._refused:
            numbers = numbers[~np.isin(numbers, self._refused[model])]
        at = accepted.records.at.copy()
        at[absent] = times[np.searchsorted(ends, numbers[absent], side="right")]
        return replace(accepted, records=replace(accepted.records, at=at))


_NUMBER_BYTES = 4
_ENDS = PACKED.encode() + b'"'

_decode = msgspec.json.Decoder().decode


def may_be_packed(text: bytes) -> bool:
    """Tell whether a text may hold packed numbers."""
    return may_name(text, _ENDS)


@dataclass(slots=True)
class _Waiting:
    """Records of one model that wait to be handed over."""

    numbers: list[range] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    columns: tuple[list[object], ...] = ()


class PackedRecords:
    """Reads objects with packed numbers, and hands their records over as columns."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        self._routes = Routes(models)
        self._model = fields.path("model")
        self._packed_anywhere = {path for model in models for path in packed_paths(fields, model)}
        self._packed = {model.name: packed_paths(fields, model) for model in models}
        self._outputs = {path for model in models for path in fields.output_paths(model)}
        self._has_predicted = fields.predicted is not None
        single = [fields.path(name) for name in ("time", "id", "version")]
        single += [fields.path("predicted")] if self._has_predicted else []
        self._columns = {
            model.name: (*single, *(fields.segment_path(name) for name in model.segment_fields)) for model in models
        }
        self._widths = {model.name: model.width for model in models}
        self._waiting: dict[str, _Waiting] = {}

    def read(self, text: Text) -> dict[str, object] | None:
        """Return an object that has packed numbers and no others; None for anything else."""
        line = bytes(text)
        if not (line.startswith(b"{") and may_be_packed(line)):
            return None
        value: object
        try:
            value = _decode(line)
        except REFUSED:
            value = read_line(line)
        if not isinstance(value, dict) or any(not is_absent(find(value, path)) for path in self._outputs):
            return None
        return value if any(not is_absent(find(value, path)) for path in self._packed_anywhere) else None

    def take(self, value: dict[str, object], number: int, piece: MessageGathering) -> int:
        """Take an object whose first record has this number; return how many records it is, one if it is refused."""
        named = find(value, self._model)
        model = self._routes.find(None if is_absent(named) else named)
        if isinstance(model, Reason):
            piece.refuse("", number, model)
            return 1
        packed = self._unpacked(value, model)
        if isinstance(packed, Reason):
            piece.refuse(model.name, number, packed)
            return 1
        count = len(packed) // (_NUMBER_BYTES * model.width)
        columns = [_column(find(value, path), count) for path in self._columns[model.name]]
        whole = [column for column in columns if column is not None]
        if len(whole) < len(columns):
            piece.refuse(model.name, number, Reason.BAD_BATCH)
            return 1
        waiting = self._waiting.setdefault(model.name, _Waiting(columns=tuple([] for _ in columns)))
        waiting.numbers.append(range(number, number + count))
        waiting.packed.append(packed)
        for all_values, values in zip(waiting.columns, whole, strict=True):
            all_values.extend(values)
        return count

    def hand_over(self, piece: MessageGathering) -> None:
        """Hand over all that waits."""
        piece.first = 0
        for name, waiting in self._waiting.items():
            numbers = np.concatenate([np.arange(some.start, some.stop) for some in waiting.numbers])
            times, ids, versions, *others = waiting.columns
            predicted = others.pop(0) if self._has_predicted else None
            matrix = _matrix(b"".join(waiting.packed), self._widths[name])
            piece.add(name, Candidates(numbers, matrix, times, ids, versions, predicted, tuple(others)))
        self._waiting = {}

    def _unpacked(self, value: dict[str, object], model: ModelFormat) -> bytes | Reason:
        found = [find(value, path) for path in self._packed[model.name]]
        if not found or is_absent(found[0]):
            return Reason.MISSING_FIELD
        if not isinstance(found[0], str):
            return Reason.WRONG_TYPE
        try:
            packed = a2b_base64(found[0], strict_mode=True)
        except ValueError:
            return Reason.BAD_BASE64
        if not packed:
            return Reason.EMPTY
        return Reason.WRONG_K if len(packed) % (_NUMBER_BYTES * model.width) else packed


def _column(value: object, count: int) -> list[object] | None:
    """Return a value for each of some records, one for all of them being given or one for each; None if neither is."""
    if isinstance(value, list):
        return value if len(value) == count else None
    return [None if is_absent(value) else value] * count


def _matrix(packed: bytes, width: int) -> Floats:
    with np.errstate(all="ignore"):  # some NaNs make noise when they are widened
        return np.frombuffer(packed, "<f4").reshape(-1, width).astype(np.float64)


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
