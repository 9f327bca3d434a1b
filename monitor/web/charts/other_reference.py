"""The mark where another reference began to judge: estimates before and after it do not compare."""

from collections.abc import Iterable, Sequence

from monitor.web.charts.svg import Box, line, words

OTHER_REFERENCE = "other reference"
_WIDE = 7.0 * len(OTHER_REFERENCE)
"""How wide the words are, about."""


def other_reference(places: Sequence[float], box: Box) -> Iterable[str]:
    """Draw the marks, with words where no other mark is in the way; legend and table have them all."""
    taken = box.left
    for index, at in enumerate(places):
        yield line("replaced", at, box.top, at, box.bottom)
        after = places[index + 1] if index + 1 < len(places) else box.right
        if at + 5 + _WIDE <= after:
            yield words("why", at + 5, box.top + 13, OTHER_REFERENCE)
            taken = at + 5 + _WIDE
        else:
            if at - 5 - _WIDE >= taken:
                yield words("why", at - 5, box.top + 13, OTHER_REFERENCE, "end")
            taken = at
