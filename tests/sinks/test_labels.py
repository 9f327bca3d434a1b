"""Label values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.segments import ALL, MOST_CHARACTERS, Segment, label_value, segment_label


@pytest.mark.parametrize(
    ("segment", "label"),
    [
        pytest.param(ALL, "all", id="whole"),
        pytest.param((("site", "A"),), "site=A", id="one field"),
        pytest.param((("site", "A"), ("scanner", "2")), "site=A,scanner=2", id="two fields"),
        pytest.param((("site", "Zürich 1/2"),), "site=Zürich 1/2", id="letters of other languages"),
    ],
)
def test_the_label_of_a_segment(segment: Segment, label: str) -> None:
    assert segment_label(segment) == label


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((("site", "A,scanner=2"),), (("site", "A"), ("scanner", "2")), id="imitates two fields"),
        pytest.param((("site", "A\n"),), (("site", "A\t"),), id="control characters"),
        pytest.param((("site", "A" * 300),), (("site", "A" * 301),), id="too long"),
        pytest.param((("site", "\ud800"),), (("site", "\udfff"),), id="halves of pairs"),
        pytest.param((("site", "A\n"),), (("site", segment_label((("site", "A\n"),))[5:]),), id="imitates a digest"),
    ],
)
def test_segments_that_differ_in_special_characters_have_different_labels(one: Segment, other: Segment) -> None:
    """A duplicate series would invalidate the whole page."""
    assert segment_label(one) != segment_label(other)


@given(st.text(), st.text())
def test_different_texts_have_different_short_printable_labels(one: str, other: str) -> None:
    """For any names in a reference or a configuration."""
    labels = label_value(one), label_value(other)
    assert (labels[0] == labels[1]) == (one == other)
    for label in labels:
        assert len(label) <= MOST_CHARACTERS
        assert label.isprintable()


def test_a_label_does_not_depend_on_other_segments() -> None:
    """A new segment must not rename the series of others."""
    assert label_value("A\nB") == label_value("A\nB") == "A_B~" + label_value("A\nB")[-8:]
