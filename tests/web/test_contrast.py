"""The colours of both themes meet WCAG 2.2 AA."""

import re
from itertools import product

import pytest

from monitor.web.pages.rendering import STYLE

_BLOCKS = re.findall(r":root \{(.*?)\}", STYLE.decode(), flags=re.DOTALL)
THEMES = {
    name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block))
    for name, block in zip(("light", "dark"), _BLOCKS, strict=True)
}
TEXT = ("text", "soft", "alert", "pending", "unknown", "fine", "blue")
BACKS = ("back", "card")
MARKS = ("blue", "alert", "pending", "unknown", "fine", "mark", *(f"series-{number}" for number in range(1, 7)))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255.0 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_text_contrast(theme: str) -> None:
    """At least 4.5 to 1."""
    colours = THEMES[theme]
    pairs = [*product(TEXT, BACKS), ("on-bar", "bar"), ("text", "alert-back"), ("text", "pending-back")]
    pairs += [
        ("text", "unknown-back"),
        ("alert", "alert-back"),
        ("pending", "pending-back"),
        ("unknown", "unknown-back"),
        ("text", "info-back"),
        ("blue", "info-back"),
    ]
    weak = {(one, other): found for one, other in pairs if (found := contrast(colours[one], colours[other])) < 4.5}
    assert not weak


@pytest.mark.parametrize("theme", THEMES)
def test_mark_contrast(theme: str) -> None:
    """At least 3 to 1. The band of an interval has an outline with that contrast."""
    colours = THEMES[theme]
    weak = {
        (one, other): found
        for one, other in product(MARKS, BACKS)
        if (found := contrast(colours[one], colours[other])) < 3.0
    }
    assert not weak


def test_contrast_of_shared_colours() -> None:
    """The alert badge, and the banner of an outdated page."""
    fixed = re.findall(r"background: (#[0-9a-f]{3,6}); color: (#[0-9a-f]{3,6})", STYLE.decode())
    assert len(fixed) == 2
    assert all(contrast(back, text) >= 4.5 for back, text in fixed)


def test_both_themes_define_the_same_colours() -> None:
    assert THEMES["light"].keys() == THEMES["dark"].keys()
