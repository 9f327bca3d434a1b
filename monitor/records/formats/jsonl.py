"""JSON Lines of a stream: many lines are decoded at once where each is provably one record, else one by one."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from monitor.records.batch_builder import BlockBuilder, Candidates, Routes
from monitor.records.formats.json_problems import CarefulLook, LineVerdict
from monitor.records.formats.json_struct import REFUSED, Columns, LearnedStruct
from monitor.records.formats.text import LineBlock
from monitor.records.labels import Indices
from monitor.records.outputs import matrix_at_once, matrix_one_by_one
from monitor.records.record_schema import FieldPath, ModelFormat, RecordFields
from monitor.records.rejections import Reason, RejectionProblem

PATIENCE = 100
"""Lines without a single JSON object after which a file is given up as something else."""

_NO_OBJECTS = RejectionProblem(
    Reason.NOT_JSONL, "one JSON object a line", "none so far (pretty-printed JSON, or one array?)"
)

# Decoded objects of so many bytes stay in a core's cache until they have become columns.
_TOGETHER_BYTES = 3 << 15

# Short lines that were refused, in case that they come again and again.
_REMEMBERED_BYTES, _REMEMBERED_LINES = 256, 256


class JsonLines:
    """Decodes blocks of JSON Lines into candidates."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        self._fields = fields
        self._struct = LearnedStruct(models, fields)
        self._routes = Routes(models)
        self._careful = CarefulLook(models, self._routes, fields)
        self._verdicts: dict[bytes, LineVerdict] = {}
        self._outputs = {model.name: fields.output_paths(model) for model in models}
        self._model, self._version, self._id, self._time = map(fields.path, ("model", "version", "id", "time"))
        self._predicted = None if fields.predicted is None else fields.path("predicted")
        self._segments = {
            model.name: tuple(fields.segment_path(name) for name in model.segment_fields) for model in models
        }

    def take(self, block: LineBlock, piece: BlockBuilder, unproven: int | None) -> int | None:
        """Hand the records of a block over; return how many of the file's lines were no objects, None once one was."""
        self._verdicts.clear()  # nothing of a line outlives its block by much
        braced = block.braced()
        for first, after in _cuts(block):
            records = self._decoded_together(block, first, after, piece) if braced[first:after].all() else None
            if records is not None:
                unproven = None
                self._route(np.arange(first, after), records, block, piece)
            else:
                unproven = self._take_one_by_one(range(first, after), block, piece, unproven)
        return unproven

    def _decoded_together(self, block: LineBlock, first: int, after: int, piece: BlockBuilder) -> list[Any] | None:
        """Return the records of some lines that all start and end with a brace; None unless each is one record.

        The decoder takes any white space between records, also inside them. But it refuses a newline inside a text,
        and everywhere else a closing brace, a newline and an opening brace can only be the end of one record and the
        start of the next. So if there are as many records as lines, each line is one.
        """
        text = block.text[block.bounds(first)[0] : block.bounds(after - 1)[1]]
        try:
            records = self._struct.decode_lines(text)
            if len(records) == after - first and (piece.is_ascii or is_utf8(text)):
                return records
        except REFUSED:
            pass
        return None

    def _take_one_by_one(
        self, places: range, block: LineBlock, piece: BlockBuilder, unproven: int | None
    ) -> int | None:
        records, kept = [], []
        refused: dict[LineVerdict, list[int]] = {}
        for place, line in zip(places, block.lines(places), strict=True):
            verdict = self._verdicts.get(line)
            if verdict is None:
                if not line or line.isspace():
                    piece.ignored += 1
                    continue
                record = self._decoded(line)
                if record is not None:
                    unproven = None
                    records.append(record)
                    kept.append(place)
                    continue
                verdict = self._verdict(line)
            refused.setdefault(verdict, []).append(place)
            if verdict.is_object:
                unproven = None
            elif unproven is not None:
                unproven += 1
                if unproven >= PATIENCE:
                    raise _NO_OBJECTS.of_file(piece.where)
        for verdict, some in refused.items():
            piece.refuse_all(verdict.model, some, verdict.reason, block)
        if records:
            self._route(np.array(kept, dtype=np.int64), records, block, piece)
        return unproven

    def _verdict(self, line: bytes) -> LineVerdict:
        """Say why a line is refused, and remember it for lines that are the same."""
        verdict = self._careful.verdict(line)
        if len(line) <= _REMEMBERED_BYTES:
            if len(self._verdicts) >= _REMEMBERED_LINES:
                self._verdicts.clear()
            self._verdicts[line] = verdict
        return verdict

    def _decoded(self, line: bytes) -> Any | None:  # noqa: ANN401 - a struct made at run time
        try:
            if not line.isascii():
                line.decode()  # the typed decoder does not look at the text of fields that it skips
            return self._struct.decode(line)
        except REFUSED:
            return None

    def _route(self, numbers: Indices, records: list[Any], block: LineBlock, piece: BlockBuilder) -> None:
        columns = self._struct.columns(records)
        for model, rows in self._routes.split(columns[self._model], len(records)):
            if isinstance(model, Reason):
                for row in rows.tolist():
                    piece.refuse("", int(numbers[row]), model, block)
            elif len(rows) == len(records):
                self._hand_over(model, numbers, columns, block, piece)
            else:
                some = self._struct.columns([records[row] for row in rows.tolist()])
                self._hand_over(model, numbers[rows], some, block, piece)

    def _hand_over(
        self, model: ModelFormat, numbers: Indices, columns: Columns, block: LineBlock, piece: BlockBuilder
    ) -> None:
        outputs = [columns[path] for path in self._outputs[model.name]]
        matrix = matrix_at_once(model, outputs)
        rows: list[int] | None = None
        if matrix is None:
            refused: dict[Reason, list[int]] = {}

            def refuse(row: int, reason: Reason | None) -> None:
                place = int(numbers[row])
                refused.setdefault(reason or self._verdict(block.line(place)).reason, []).append(place)

            some = matrix_one_by_one(model, outputs, refuse)
            for reason, places in refused.items():
                piece.refuse_all(model.name, places, reason, block)
            if some is None:
                return
            matrix, kept = some
            numbers, rows = numbers[kept], kept.tolist()

        def column(path: FieldPath) -> Sequence[object]:
            return columns[path] if rows is None else [columns[path][row] for row in rows]

        segments = tuple(column(path) for path in self._segments[model.name])
        predicted = None if self._predicted is None else column(self._predicted)
        times, ids, versions = column(self._time), column(self._id), column(self._version)
        piece.add(model.name, Candidates(numbers, matrix, times, ids, versions, predicted, segments))


def is_utf8(text: memoryview) -> bool:
    """Tell whether a text is UTF-8, which the typed decoder does not check in fields that it skips."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _cuts(block: LineBlock) -> Iterator[tuple[int, int]]:
    """Yield which lines to decode together."""
    limits = np.arange(_TOGETHER_BYTES, len(block.text), _TOGETHER_BYTES)
    edges = [0, *np.unique(np.searchsorted(block.ends, limits)).tolist(), len(block)]
    for first, after in pairwise(edges):
        if first < after:
            yield first, after
