"""Messages that are one record each, on one line: decoded together, as the lines of a file are."""

from collections.abc import Sequence

import numpy as np

from monitor.decode.line_blocks import line_blocks
from monitor.decode.message_forms import may_name
from monitor.decode.message_gathering import MessageGathering
from monitor.decode.message_packed import may_be_packed
from monitor.decode.message_values import Text
from monitor.decode.record_format import ModelFormat, RecordFields
from monitor.decode.stream_json import JsonLines

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
