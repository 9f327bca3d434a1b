"""Numbers packed into base64 of little-endian float32: one record, or many whose other fields are columns."""

from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from monitor.records.batch_builder import Candidates
from monitor.records.formats.json_problems import find, is_absent, read_line
from monitor.records.formats.json_struct import REFUSED
from monitor.records.messages.message_batch import MessageGathering
from monitor.records.messages.message_forms import PACKED, Text, may_name, packed_paths
from monitor.records.record_schema import ModelFormat, RecordFields
from monitor.records.rejections import Reason
from monitor.records.routing import Routes
from monitor.records.vectors import Floats

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
