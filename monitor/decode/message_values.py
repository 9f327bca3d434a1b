"""The values inside an array or object of JSON, as texts: each can then be judged by itself.

The fast way takes no NaN and no Infinity, which Python writes into JSON. One such number must not cost a record its
neighbours, so there is a slow way beside it that does.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from monitor.decode.json_learned import REFUSED

Text = bytes | msgspec.Raw
"""The text of one JSON value."""

MOST_ITEMS = 1 << 18
"""Items of one array that are told apart; no message of records comes near this."""

_AT_ONCE_BYTES = 2 << 20
_AT_ONCE_COMMAS = 1 << 20
"""Up to which an array is taken apart at once. That makes an object for each item: of two bytes, and with a comma."""

_items_at_once = msgspec.json.Decoder(list[msgspec.Raw]).decode

_SPACE = re.compile(r"[ \t\r\n]*")

# Numbers are passed over, not read: a huge one costs as much as its digits.
_pass_over = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len).raw_decode


class NotJson(ValueError):
    """A text that is not the array or object it should be."""


def items_of(text: bytes) -> Sequence[Text]:
    """Return the items of an array, or the first few more than MOST_ITEMS; raise NotJson where there is none."""
    if len(text) <= _AT_ONCE_BYTES or text.count(b",") <= _AT_ONCE_COMMAS:
        try:
            return _items_at_once(text)
        except REFUSED:
            pass
    return [item.encode() for _, item in zip(range(MOST_ITEMS + 1), _each_item(_decoded(text)), strict=False)]


class Members:
    """Finds some members of objects by their names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {f"member_{place}": name for place, name in enumerate(dict.fromkeys(names))}
        nothing = msgspec.Raw()
        fields: list[tuple[str, Any, Any]] = [(own, msgspec.Raw, nothing) for own in self._names]
        struct = msgspec.defstruct("Members", fields, rename=self._names, gc=False)
        self._at_once: Callable[[bytes], Any] = msgspec.json.Decoder(struct).decode

    def of(self, text: bytes) -> dict[str, bytes]:
        """Return the members that are there; raise NotJson where there is no object. Of equal names the last counts."""
        try:
            found = msgspec.structs.asdict(self._at_once(text))
        except REFUSED:
            wanted = set(self._names.values())
            return {name: value.encode() for name, value in _each_member(_decoded(text)) if name in wanted}
        return {self._names[own]: bytes(value) for own, value in found.items() if len(value)}


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise NotJson from None


def _each_item(text: str) -> Iterator[str]:
    """Yield the items of an array."""
    place = _after(text, 0, "[")
    if text[place : place + 1] == "]":
        _expect_end(text, place + 1)
        return
    while True:
        end = _end_of_value(text, place)
        yield text[place:end]
        place = _after_space(text, end)
        if text[place : place + 1] == "]":
            _expect_end(text, place + 1)
            return
        place = _after(text, place, ",")


def _each_member(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an object."""
    place = _after(text, 0, "{")
    if text[place : place + 1] == "}":
        _expect_end(text, place + 1)
        return
    while True:
        end = _end_of_value(text, place)
        name = json.loads(text[place:end]) if text[place] == '"' else None
        if not isinstance(name, str):
            raise NotJson
        place = _after(text, _after_space(text, end), ":")
        end = _end_of_value(text, place)
        yield name, text[place:end]
        place = _after_space(text, end)
        if text[place : place + 1] == "}":
            _expect_end(text, place + 1)
            return
        place = _after(text, place, ",")


def _end_of_value(text: str, place: int) -> int:
    try:
        return _pass_over(text, place)[1]
    except REFUSED:
        raise NotJson from None


def _after(text: str, place: int, sign: str) -> int:
    """Return where the next thing after a sign starts."""
    if not text.startswith(sign, place):
        raise NotJson
    return _after_space(text, place + 1)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _expect_end(text: str, place: int) -> None:
    if place != len(text):
        raise NotJson
