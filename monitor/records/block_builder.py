"""One piece of a stream on its way from candidates to what arrived."""

from collections.abc import Callable, Mapping, Sequence

from monitor.records.batch_builder import BatchBuilder, Candidates, Gathered, ModelRules
from monitor.records.formats.line_blocks import LineBlock
from monitor.records.record_batch import Pointer, RecordBatch
from monitor.records.rejections import Reason
from monitor.records.stream_rejections import MOST_POINTERS, RejectedRecord, StreamRejections


class BlockBuilder:
    """Takes the candidates of one piece, block by block, and what its reader refuses by itself."""

    def __init__(
        self, where: str, rules: Mapping[str, ModelRules], first_number: int, *, is_ascii: bool = False
    ) -> None:
        self.where = where
        self.rules = rules
        self.is_ascii = is_ascii
        self.ignored = 0
        self._first = first_number
        self._refusals = StreamRejections()
        self._waiting: dict[str, BatchBuilder] = {}
        self._gathered: dict[str, Gathered] = {}

    def add(self, model: str, candidates: Candidates) -> None:
        """Take some records of a model; they are judged when the block ends."""
        if model not in self._waiting:
            self._waiting[model] = BatchBuilder(self.rules[model])
        self._waiting[model].add(candidates)

    def refuse(self, model: str, place: int, reason: Reason, block: LineBlock | None = None) -> None:
        """Refuse the record at a place of a block of lines, or at a row of the piece."""
        if block is None:
            refused = RejectedRecord(self._first + place, reason)
        else:
            start, end = block.bounds(place)
            number = self._first + block.first + place
            refused = RejectedRecord(number, reason, block.start + start, block.start + end)
        self._refusals.add(model, refused)

    def refuse_all(self, model: str, places: Sequence[int], reason: Reason, block: LineBlock | None = None) -> None:
        """Refuse the records at several places, which stand in order, for one reason."""
        self._refusals.count(model, reason, len(places) - MOST_POINTERS)
        for place in places[-MOST_POINTERS:]:
            self.refuse(model, place, reason, block)

    def end_block(self, block: LineBlock | None = None) -> None:
        """Judge what waits; places are those of this block."""
        for name, waiting in self._waiting.items():
            accepted, refused = waiting.judged()
            self._gathered.setdefault(name, Gathered()).blocks.append(accepted)
            for place, reason in refused:
                self.refuse(name, place, reason, block)
        self._waiting = {}

    def finish(
        self, rows: int, pointer: Callable[[RejectedRecord], Pointer], unproven: int | None = None
    ) -> RecordBatch:
        """Return what the piece held."""
        joined = {name: gathered.joined() for name, gathered in self._gathered.items()}
        hints = {name: rules.recent.hints() for name, rules in self.rules.items()}
        return RecordBatch(
            {name: records for name, records in joined.items() if records is not None},
            self._refusals.counts,
            self._refusals.pointers(pointer),
            self.ignored,
            rows,
            unproven,
            {name: told for name, told in hints.items() if told},
        )
