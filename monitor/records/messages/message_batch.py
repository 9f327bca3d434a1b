"""The records of messages on their way to what arrived: numbered through all messages, and timed by them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from monitor.records.batch_builder import Candidates, ModelRules
from monitor.records.block_builder import BlockBuilder
from monitor.records.formats.line_blocks import LineBlock
from monitor.records.labels import Indices
from monitor.records.record_batch import ModelRecords, RecordBatch
from monitor.records.rejections import Reason
from monitor.records.times import LATEST
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
