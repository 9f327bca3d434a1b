"""The decoder of streams: lines that a source read, or files that are complete, into columns for each model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from monitor.decode.arrived import Arrived
from monitor.decode.gathering import ModelRules
from monitor.decode.gzip_text import GzipText
from monitor.decode.hints import IN_A_FILE_OF_SETTINGS, Wording
from monitor.decode.line_blocks import line_blocks
from monitor.decode.line_pointers import LinePointers, Shape
from monitor.decode.piece import PieceGathering
from monitor.decode.pieces import Format, TextPiece
from monitor.decode.record_format import ModelFormat, RecordFields, check_formats
from monitor.decode.rejections import Reason, RefusedFile
from monitor.decode.settled_text import text_pieces
from monitor.decode.stream_arrays import ArrayFiles
from monitor.decode.stream_arrow import ArrowFiles
from monitor.decode.stream_csv import CsvLines
from monitor.decode.stream_json import JsonLines
from monitor.decode.text import Readable, without_mark
from monitor.decode.times import TimeRules


class StreamDecoder:
    """Decodes the records of some models; remembers nothing but how the latest of them looked. Not shared by threads.

    The key hashes ids and refused lines; it has 16 bytes, and the same ids are known again only under the same key.
    The wording of hints is that of a file of settings, unless another is given.
    """

    def __init__(
        self,
        models: Sequence[ModelFormat],
        fields: RecordFields | None = None,
        *,
        hash_key: bytes,
        keep_raw: bool = False,
        wording: Wording = IN_A_FILE_OF_SETTINGS,
    ) -> None:
        fields = RecordFields() if fields is None else fields
        check_formats(models, fields)
        times = TimeRules(fields.time_unit, fields.zone())
        self._rules = {model.name: ModelRules(model, times, hash_key, wording) for model in models}
        self._json = JsonLines(models, fields)
        self._csv = CsvLines(models, fields, wording)
        self._arrays = ArrayFiles(models, fields, self._rules)
        self._arrow = ArrowFiles(models, fields, self._rules)
        self._shape = Shape(models, fields)
        self._hash_key = hash_key
        self._keep_raw = keep_raw

    def text(self, piece: TextPiece) -> Arrived:
        """Decode whole lines."""
        if not piece.data:
            return Arrived(unproven=piece.unproven)
        header = None
        if piece.format is Format.CSV:
            header = self._csv.header(piece.head if piece.offset else piece.data, piece.where)
            if header is None:
                rows = piece.data.count(b"\n")
                return Arrived(ignored=rows, rows=rows)
        data = piece.data if piece.offset else without_mark(piece.data, piece.where)
        gathering = PieceGathering(piece.where, self._rules, piece.line, is_ascii=data.isascii())
        unproven, rows = piece.unproven, 0
        if piece.continues:
            gathering.refuse("", 0, Reason.LINE_TOO_LONG)
            rows = 1
        for block in line_blocks(data, skip_first=piece.continues):
            if header is None:
                unproven = self._json.take(block, gathering, unproven)
            else:
                self._csv.take(block, gathering, header)
            gathering.end_block(block)
            rows += len(block)
        offset = piece.offset + len(piece.data) - len(data)
        shape = self._shape if header is None else None
        pointers = LinePointers(data, offset, self._hash_key, self._keep_raw, shape)
        return gathering.finish(rows, pointers, unproven)

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[Arrived]:
        """Decode a file that is complete, in pieces of bounded size, leaving out its first `skip` rows or lines.

        A file that is damaged or too large raises `RefusedFile` before its first piece.
        """
        try:
            yield from self._settled(where, file, format_, skip)
        except RefusedFile as refused:
            reason, message = refused.reason, str(refused)
        else:
            return
        # Anew, without what other libraries said: they may quote the file, and a traceback would quote them.
        raise RefusedFile(reason, message)

    def _settled(self, where: str, file: BinaryIO, format_: Format, skip: int) -> Iterator[Arrived]:
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

    def _texts(self, where: str, text: Readable, format_: Format, skip: int) -> Iterator[Arrived]:
        arrived = None
        for piece in text_pieces(where, text, format_, skip):
            arrived = self.text(piece if arrived is None else replace(piece, unproven=arrived.unproven))
            yield arrived
