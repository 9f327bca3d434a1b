"""Values are written in one way, and what is shown of a default can be read again."""

import math
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from monitor.settings.kinds import Duration, Integer, Number, SizeSetting, Text
from monitor.settings.yaml_text import InvalidValue, Scalar, YamlMap, compose

_TIME = Duration(0.0, 1e9)
_BYTES = SizeSetting(1, 1 << 50)


def _plain(text: str) -> Scalar:
    return Scalar(text, plain=True, line=1)


@given(st.integers(0, 10**8))
def test_a_duration_round_trips(seconds: int) -> None:
    """Without loss."""
    assert _TIME.read(_plain(_TIME.show(float(seconds)))) == seconds


@given(st.integers(1, 1 << 49))
def test_a_size_round_trips(count: int) -> None:
    """Without loss."""
    assert _BYTES.read(_plain(_BYTES.show(count))) == count


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.2, "0.2s"), (60.0, "60s"), (90.0, "90s"), (120.0, "2m"), (3600.0, "1h"), (604800.0, "7d")],
)
def test_durations_are_shown_as_people_write_them(seconds: float, text: str) -> None:
    """In the largest unit that leaves no fraction, but short ones in seconds."""
    assert _TIME.show(seconds) == text


@given(st.integers(-(10**6), 10**6))
def test_integers_are_themselves(number: int) -> None:
    """Also as numbers."""
    assert Integer(-(10**6), 10**6).read(_plain(str(number))) == number
    assert Number(-1e6, 1e6).read(_plain(str(number))) == number


@given(st.text(alphabet="0123456789+-._eExXoO:,% ainftru", max_size=12))
def test_an_integer_is_the_digits_as_written(text: str) -> None:
    """Or it is rejected."""
    with suppress(InvalidValue):
        assert str(Integer(-(10**15), 10**15).read(_plain(text))) == text.replace("-0", "0")


@given(st.text(alphabet="0123456789+-._eExXoO:,% ainftru", max_size=12))
def test_what_python_takes_for_a_number_is_no_text_without_quotes(text: str) -> None:
    """In quotes it is. YAML writes `.nan` and `.inf`: without the dot they are names."""
    try:
        number = float(text)
    except ValueError:
        return
    assume(text == text.strip() and math.isfinite(number))
    with pytest.raises(InvalidValue):
        Text().read(_plain(text))
    assert Text().read(Scalar(text, plain=False, line=1)) == text


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    """They make a tree, or a problem with a line."""
    with suppress(InvalidValue):
        compose(raw, [])


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), st.integers(), max_size=5))
def test_settings_keep_their_lines(entries: dict[str, int]) -> None:
    """One a line, from the first on."""
    tree = compose("".join(f"{key}: {value}\n" for key, value in entries.items()).encode(), [])
    lines = (
        [] if tree is None else [entry.line for entry in tree.entries.values()] if isinstance(tree, YamlMap) else [0]
    )
    assert lines == list(range(1, len(entries) + 1))
