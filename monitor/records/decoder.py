"""The decoder of files: lines of a tailed file, or a whole file, into record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from monitor.records.batch_builder import BatchBuilder, ModelRules
from monitor.records.formats.arrays import ArrayFiles
from monitor.records.formats.arrow_files import ArrowFiles
from monitor.records.formats.csv_lines import CsvLines
from monitor.records.formats.jsonl import JsonLines
from monitor.records.formats.text import GzipText, Readable, line_blocks, read_fully, without_mark
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.pointers import LinePointers, RecordShape
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.record_schema import ModelFormat, RecordFields, check_formats
from monitor.records.rejections import Reason, RejectedFile
from monitor.records.times import TimeRules

PIECE_BYTES = 1 << 20

MAX_LINE_BYTES = 1 << 20
"""Longer lines are skipped without being held in memory."""


def text_pieces(where: str, text: Readable, format_: Format, skip: int) -> Iterator[TextPiece]:
    """Yield the lines of a text after the first `skip`; the last one needs no newline."""
    head = b""
    held = b""
    offset, line = 0, 1
    continues = False
    while True:
        more = read_fully(text, PIECE_BYTES)
        data = held + more
        if format_ is Format.CSV and not offset:
            head = data
        end = data.rfind(b"\n") + 1 if more else len(data)
        if end:
            first, start, tail = line, 0, continues
            if line <= skip:
                start, lines = _after_lines(data, end, skip + 1 - line)
                first, tail = line + lines, False if start else continues
            if start < end:
                # The skipped lines have shown whether the file is JSON Lines.
                non_json_lines = 0 if first == 1 else None
                yield TextPiece(where, format_, data[start:end], offset + start, first, head, tail, non_json_lines)
            line += data.count(b"\n", 0, end)
            offset, continues = offset + end, False
        held = data[end:]
        if len(held) > MAX_LINE_BYTES:
            offset, held, continues = offset + len(held), b"", True
        if not more:
            if continues:
                yield TextPiece(where, format_, b"\n", offset, line, head, continues)
            return


def _after_lines(data: bytes, end: int, lines: int) -> tuple[int, int]:
    """Return the offset after some lines, and the number of lines before it."""
    start = 0
    for count in range(lines):
        if start >= end:
            return end, count
        start = data.find(b"\n", start, end) + 1 or end
    return start, lines


class StreamDecoder:
    """Decodes lines and files with records of some models. Keeps only the latest records, for hints. Not thread-safe.

    `hash_key`, 16 bytes, hashes ids and rejected lines. Repeated ids are recognised only under the same key.
    """

    def __init__(
        self,
        models: Sequence[ModelFormat],
        fields: RecordFields | None = None,
        *,
        hash_key: bytes,
        keep_raw: bool = False,
        wording: Wording = CONFIG_FILE,
    ) -> None:
        fields = RecordFields() if fields is None else fields
        check_formats(models, fields)
        times = TimeRules(fields.time_unit, fields.zone())
        self._rules = {model.name: ModelRules(model, times, hash_key, wording) for model in models}
        self._json = JsonLines(models, fields)
        self._csv = CsvLines(models, fields, wording)
        self._arrays = ArrayFiles(models, fields, self._rules)
        self._arrow = ArrowFiles(models, fields, self._rules)
        self._shape = RecordShape(models, fields)
        self._hash_key = hash_key
        self._keep_raw = keep_raw

    def text(self, piece: TextPiece) -> RecordBatch:
        """Decode complete lines."""
        if not piece.data:
            return RecordBatch(non_json_lines=piece.non_json_lines)
        header = None
        if piece.format is Format.CSV:
            header = self._csv.header(piece.head if piece.offset else piece.data, piece.where)
            if header is None:
                rows = piece.data.count(b"\n")
                return RecordBatch(ignored=rows, rows=rows)
        data = piece.data if piece.offset else without_mark(piece.data, piece.where)
        builder = BatchBuilder(piece.where, self._rules, piece.line, is_ascii=data.isascii())
        non_json_lines, rows = piece.non_json_lines, 0
        if piece.continues:
            builder.reject("", 0, Reason.LINE_TOO_LONG)
            rows = 1
        for block in line_blocks(data, skip_first=piece.continues):
            if header is None:
                non_json_lines = self._json.decode(block, builder, non_json_lines)
            else:
                self._csv.decode(block, builder, header)
            builder.end_block(block)
            rows += len(block)
        offset = piece.offset + len(piece.data) - len(data)
        shape = self._shape if header is None else None
        pointers = LinePointers(data, offset, self._hash_key, self._keep_raw, shape)
        return builder.finish(rows, pointers, non_json_lines)

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        """Decode a complete file in pieces of bounded size, after its first `skip` rows or lines.

        Raises `RejectedFile` before the first piece if the file is damaged or too large.
        """
        try:
            yield from self._settled(where, file, format_, skip)
        except RejectedFile as rejected:
            reason, problem = rejected.reason, rejected.problem
        else:
            return
        # Raised again without its cause: messages of other libraries may quote the file.
        raise RejectedFile(reason, problem)

    def _settled(self, where: str, file: BinaryIO, format_: Format, skip: int) -> Iterator[RecordBatch]:
        match format_:
            case Format.NPY:
                yield from self._arrays.npy(where, file, skip)
            case Format.NPZ:
                yield from self._arrays.npz(where, file, skip)
            case Format.PARQUET:
                yield from self._arrow.parquet(where, file, skip)
            case Format.ARROW:
                yield from self._arrow.ipc(where, file, skip)
            case Format.JSONL_GZ | Format.CSV_GZ:
                inside = Format.JSONL if format_ is Format.JSONL_GZ else Format.CSV
                yield from self._texts(where, GzipText(where, file), inside, skip)
            case Format.JSONL | Format.CSV:
                yield from self._texts(where, file, format_, skip)

    def _texts(self, where: str, text: Readable, format_: Format, skip: int) -> Iterator[RecordBatch]:
        batch = None
        for piece in text_pieces(where, text, format_, skip):
            batch = self.text(piece if batch is None else replace(piece, non_json_lines=batch.non_json_lines))
            yield batch
