"""The decoder: lines of a tailed file, whole files and Kafka messages into record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from monitor.records.batch_builder import BatchBuilder, model_rules
from monitor.records.formats.arrow import ArrowFiles
from monitor.records.formats.csv_reader import CsvLines
from monitor.records.formats.jsonl import JsonLines
from monitor.records.formats.npy import ArrayFiles
from monitor.records.formats.text import (
    MAX_OFFLINE_LINE_BYTES,
    TOO_LONG,
    GzipText,
    Readable,
    line_blocks,
    text_pieces,
    without_mark,
)
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.messages import MessageFrames, Messages
from monitor.records.pointers import PointerRules, RecordShape
from monitor.records.record_batch import MAX_LINE_BYTES, MAX_MESSAGE_BYTES, Format, RecordBatch, TextPiece
from monitor.records.record_schema import Carries, ModelFormat, RecordFields, RecordSchema
from monitor.records.rejections import Reason, RejectedFile


class RecordDecoder:
    """Decodes records of some models. Keeps only the latest records, for hints. Not thread-safe.

    `hash_key`, 16 bytes, hashes ids and rejected lines. Repeated ids are recognised only under the same key. A decoder
    with `offline` is for one file of an offline command: it takes classes that are not given from the file, explains
    rejections, and accepts rows of CSV over several lines.
    """

    def __init__(
        self,
        models: Sequence[ModelFormat],
        fields: RecordFields | None = None,
        *,
        hash_key: bytes,
        keep_raw: bool = False,
        max_message_bytes: int | None = None,
        wording: Wording = CONFIG_FILE,
        offline: bool = False,
        carries: Carries = Carries.PREDICTIONS,
    ) -> None:
        schema = RecordSchema(models, fields or RecordFields(), from_file=offline, carries=carries)
        self.rules = model_rules(schema, hash_key, wording)
        self._arrays = ArrayFiles(schema, self.rules)
        self._offline = offline
        self._json = JsonLines(schema, self.rules)
        self._csv = CsvLines(schema, self.rules, wording)
        self._arrow = ArrowFiles(schema, self.rules)
        self._pointers = PointerRules(hash_key, keep_raw, RecordShape(schema))
        self._messages = MessageFrames(
            schema, self.rules, self._json, self._pointers, max_message_bytes or MAX_MESSAGE_BYTES
        )

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
        explained = "line" if self._offline else None
        builder = BatchBuilder(piece.where, self.rules, piece.line, is_ascii=data.isascii(), explained=explained)
        non_json_lines, rows = piece.non_json_lines, 0
        if piece.continues:
            builder.reject("", 0, TOO_LONG if self._offline else Reason.LINE_TOO_LONG)
            rows = 1
        for block in line_blocks(data, skip_first=piece.continues):
            if header is None:
                non_json_lines = self._json.decode(block, builder, non_json_lines)
            else:
                self._csv.decode(block, builder, header)
            builder.end_block(block)
            rows += len(block)
        offset = piece.offset + len(piece.data) - len(data)
        return builder.finish(
            rows, lambda: self._pointers.of_lines(data, offset, is_json=header is None), non_json_lines
        )

    def messages(self, where: str, messages: Messages) -> RecordBatch:
        """Decode messages; never raises, whatever their content."""
        return self._messages.decode(where, messages)

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
        most = MAX_OFFLINE_LINE_BYTES if self._offline else MAX_LINE_BYTES
        pieces = text_pieces(where, text, format_, skip, most)
        if self._offline and format_ is Format.CSV:
            yield from self._csv.whole_file(where, pieces)
            return
        batch = None
        for piece in pieces:
            batch = self.text(piece if batch is None else replace(piece, non_json_lines=batch.non_json_lines))
            yield batch
