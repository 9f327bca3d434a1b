"""What `cpcmon evaluate --plot` draws."""

import re
import struct
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from monitor.cli.plot import check, draw
from monitor.core.estimators import ESTIMATORS
from monitor.core.estimators.consensus import CONSENSUS
from monitor.errors import UsageError
from monitor.reference.offline import Evaluation

NAMES = (*(member.name for member in ESTIMATORS), CONSENSUS)
FORMS = [form for member in ESTIMATORS for form in (member.name, f"{member.name}_ts")]


def an_evaluation(realised: float = 0.471, source: float = 0.597, **estimates: float | None) -> Evaluation:
    """Return an evaluation whose estimates lie between realised and source accuracy, except those given."""
    spread = {form: realised + (source - realised) * place / len(FORMS) for place, form in enumerate(FORMS)}
    return Evaluation(source, realised, 1.25, {**spread, CONSENSUS: realised, **estimates}, 0.04)


def some(count: int) -> list[Evaluation]:
    """Return evaluations of falling accuracy."""
    return [an_evaluation(0.9 - 0.1 * number, 0.92) for number in range(count)]


def drawn(tmp_path: Path, evaluations: list[Evaluation], suffix: str = ".svg", titles: list[str] | None = None) -> str:
    """Draw and return the file as text."""
    path = tmp_path / f"plot{suffix}"
    draw(evaluations, NAMES, path, titles=titles or [f"pair {number}" for number in range(len(evaluations))])
    return path.read_text(encoding="utf-8")


def texts(svg: str) -> list[str]:
    """Return every text of a picture, which fails if the picture is no XML."""
    root = ET.fromstring(svg)  # noqa: S314  our own output
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("count", [1, 2, 5, 26])
def test_an_svg_is_xml_and_names_every_estimator_and_every_realised_accuracy(tmp_path: Path, count: int) -> None:
    """Text stays text: it can be searched, read aloud and restyled."""
    evaluations = [an_evaluation(0.99 - 0.03 * number) for number in range(count)]
    found = texts(drawn(tmp_path, evaluations))
    assert set(NAMES) <= set(found)
    for evaluation in evaluations:
        assert any(f"{evaluation.target_accuracy:.3f}" in text for text in found)


def test_one_pair_labels_both_lines(tmp_path: Path) -> None:
    """The lines say which accuracy they are, and what it is."""
    assert {"realised 0.471", "source 0.597"} <= set(texts(drawn(tmp_path, [an_evaluation()])))


@pytest.mark.parametrize(
    ("realised", "source"),
    [
        pytest.param(0.5, 0.5, id="equal"),
        pytest.param(0.5, 0.501, id="source just above"),
        pytest.param(0.501, 0.5, id="source just below"),
        pytest.param(0.0, 0.0, id="nothing right"),
        pytest.param(1.0, 1.0, id="everything right"),
    ],
)
def test_the_labels_of_close_lines_stand_on_either_side(tmp_path: Path, realised: float, source: float) -> None:
    """The left label ends before the right one starts, so they never overlap."""
    svg = drawn(tmp_path, [an_evaluation(realised, source)])
    pattern = r'<text style="([^"]*)" x="([\d.]+)"[^>]*>(realised|source) '
    placed = {label: ("end" in style, float(across)) for style, across, label in re.findall(pattern, svg)}
    (left_ends, left), (right_ends, right) = sorted(placed.values(), key=lambda place: place[1])
    assert left_ends
    assert not right_ends
    assert left < right


def test_a_missing_estimate_is_said_in_its_row(tmp_path: Path) -> None:
    """An estimator without an answer keeps its row, once, and says which form is missing."""
    found = texts(drawn(tmp_path, [an_evaluation(ac=None, ac_ts=None, doc=None, atc_mc_ts=None, consensus=None)]))
    said = sorted(text for text in found if "no estimate" in text)
    assert said == ["no estimate", "no estimate", "raw: no estimate", "scaled: no estimate"]
    assert set(NAMES) <= set(found)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_without_any_estimate_there_is_still_a_picture(tmp_path: Path, suffix: str, count: int) -> None:
    """Too few records is an answer too."""
    nothing = Evaluation(0.6, 0.5, 1.0, dict.fromkeys([*FORMS, CONSENSUS]), None)
    assert "<svg" in drawn(tmp_path, [nothing] * count, suffix)


def test_several_pairs_show_the_mean_error_only_if_every_pair_has_an_estimate(tmp_path: Path) -> None:
    """A mean over the pairs that were easy enough to answer would flatter."""
    pairs = [an_evaluation(0.5, ac=0.6, ac_ts=0.45), an_evaluation(0.7, ac=0.5, ac_ts=None)]
    assert "raw 15.0, scaled –" in texts(drawn(tmp_path, pairs))


def test_several_pairs_are_listed_by_realised_accuracy(tmp_path: Path) -> None:
    """The list tells which point is which pair."""
    found = texts(drawn(tmp_path, some(3), titles=["best", "middle", "worst"]))
    assert [text.split()[1] for text in found if re.match(r"0\.\d{3} ", text)] == ["worst", "middle", "best"]


@pytest.mark.parametrize("count", [1, 5, 300])
def test_a_png_is_a_png_of_sensible_size(tmp_path: Path, count: int) -> None:
    """Wide enough to read, and bounded however many pairs there are."""
    path = tmp_path / "plot.PNG"
    draw([an_evaluation()] * count, NAMES, path, titles=["pair"] * count)
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert width == 1350
    assert 500 < height < 3000


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_the_same_numbers_give_the_same_bytes(tmp_path: Path, suffix: str, count: int) -> None:
    """No date, no random identifier: a picture under version control changes only when the numbers do."""
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    for path in (first, second):
        draw(some(count), NAMES, path, titles=["a → b"] * count)
    assert first.read_bytes() == second.read_bytes()


def test_the_users_style_neither_changes_the_picture_nor_is_changed(tmp_path: Path) -> None:
    """A matplotlibrc is for the user's own figures."""
    import matplotlib as mpl  # noqa: PLC0415  as late as in the code under test

    plain = drawn(tmp_path, [an_evaluation()])
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        styled = drawn(tmp_path, [an_evaluation()])
        assert mpl.rcParams["font.size"] == 30.0
    assert styled == plain


class Page(HTMLParser):
    """The tags, attributes, links and table cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and where it points."""
        self.tags.append(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "xlink:href"}]
        self._in_cell = tag in {"td", "th"}
        if tag == "tr":
            self.rows.append([])
        if self._in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """Leave a cell."""
        self._in_cell = self._in_cell and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        """Fill a cell."""
        if self._in_cell:
            self.rows[-1][-1] += data


@pytest.mark.parametrize("count", [1, 5])
def test_a_page_needs_nothing_but_itself(tmp_path: Path, count: int) -> None:
    """One heading, one picture, a table for each pair; no script, and every link stays within the page."""
    page = Page(drawn(tmp_path, some(count), ".html"))
    assert [page.tags.count(tag) for tag in ("h1", "svg", "table", "script", "img", "link")] == [1, 1, count, 0, 0, 0]
    assert all(link.startswith("#") for link in page.links)


def test_the_table_holds_the_numbers_of_the_picture(tmp_path: Path) -> None:
    """Errors are signed, in points; the consensus, which has one form, stands beside the scaled estimates."""
    evaluation = an_evaluation(0.5, 0.6, ac=0.612, ac_ts=0.4, doc=None, doc_ts=0.49999, consensus=0.55)
    rows = {row[0]: row[1:] for row in Page(drawn(tmp_path, [evaluation], ".html")).rows}
    assert list(rows) == ["Estimator", *NAMES]
    assert rows["ac"] == ["0.500", "0.612", "+11.2", "0.400", "-10.0"]
    assert rows["doc"] == ["0.500", "no estimate", "", "0.500", "+0.0"]
    assert rows[CONSENSUS] == ["0.500", "", "", "0.550", "+5.0"]


HOSTILE = [
    pytest.param("<script>alert(1)</script>", id="script"),
    pytest.param("</strong></svg><img src=x onerror=alert(1)>", id="tags"),
    pytest.param('" onload="alert(1)', id="quotes"),
    pytest.param("]]><!-- &lt; &#0;", id="entities"),
    pytest.param(r"$\frac{$ $x^2$ $", id="mathematics"),
    pytest.param("a\x00b\x1b[31m\n\u202ec\udcff", id="control characters"),
    pytest.param("日本語 🩻 → עברית", id="other scripts"),
    pytest.param("x" * 2000, id="long"),
    pytest.param("", id="empty"),
]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_is_only_ever_text(tmp_path: Path, title: str, count: int) -> None:
    """File names are chosen by others: they add no element, no attribute and no formula, and break nothing."""
    tame = Page(drawn(tmp_path, some(count), ".html", ["tame"] * count))
    page = Page(drawn(tmp_path, some(count), ".html", [title] * count))
    assert set(page.tags) == set(tame.tags)
    assert page.attributes == tame.attributes
    shown = "".join(texts(drawn(tmp_path, some(count), ".svg", [title] * count)))
    replaced = re.sub("[\x00\x1b\n\u202e\udcff]", "\N{REPLACEMENT CHARACTER}", title)
    assert "".join(replaced.split()) in "".join(shown.split())


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "plot.svg.gz", ".svg"])
def test_another_ending_is_refused_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    """The message says where, what was expected and what was found."""
    with pytest.raises(UsageError, match=r"plot: expected a file ending in \.svg, \.png, \.html, found '.*" + name):
        draw([an_evaluation()], NAMES, tmp_path / name, titles=["pair"])
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional; `check` can be asked before a long evaluation."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'cpcmon\[plot\]'"):
        check(Path("plot.svg"))


@pytest.mark.parametrize(
    ("pairs", "names", "titles"),
    [
        pytest.param(0, NAMES, 0, id="no pair"),
        pytest.param(1, (), 1, id="no estimator"),
        pytest.param(2, NAMES, 1, id="a title is missing"),
    ],
)
def test_words_that_do_not_fit_are_refused(tmp_path: Path, pairs: int, names: tuple[str, ...], titles: int) -> None:
    """There is nothing to draw, or no telling which title belongs where."""
    with pytest.raises(UsageError, match=f"found {len(names)} estimators, {pairs} pairs, {titles} titles"):
        draw(some(pairs), names, tmp_path / "plot.svg", titles=["pair"] * titles)


@pytest.mark.parametrize("count", [1, 3])
def test_a_single_estimator_can_be_drawn(tmp_path: Path, count: int) -> None:
    """As can any other number of them."""
    for names in (NAMES[:1], NAMES[-1:], NAMES[:6]):
        draw(some(count), names, tmp_path / "plot.svg", titles=["pair"] * count)
        assert set(names) <= set(texts((tmp_path / "plot.svg").read_text(encoding="utf-8")))


@pytest.mark.parametrize("count", [1, 2, 6, 9, 10])
def test_a_panels_error_stands_clear_beneath_its_name(tmp_path: Path, count: int) -> None:
    """Panels grow when there are few; the lines above them stay apart."""
    path = tmp_path / "plot.svg"
    draw(some(2), NAMES[:count], path, titles=["a", "b"])
    svg = path.read_text(encoding="utf-8")
    pattern = r'<text style="[^"]*" (?:x="[\d.]+" y="|transform="translate\([\d.]+ )([\d.]+)[^>]*>({})<'
    names = [float(height) for height, _ in re.findall(pattern.format("|".join(NAMES)), svg)]
    errors = [float(height) for height, _ in re.findall(pattern.format(r"raw [\d.]+, scaled [\d.]+|[\d.]{3}"), svg)]
    assert len(names) == count
    for name in names:
        # The nearest text below a name starts a line further down, not within the name.
        assert min(error - name for error in errors if error > name) > 9.0


def test_an_old_picture_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """Readers see the old picture or the new one."""
    path = tmp_path / "plot.svg"
    path.write_text("old", encoding="utf-8")
    draw(some(1), NAMES, path, titles=["pair"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.svg"]
    assert path.read_text(encoding="utf-8").startswith("<?xml")


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the new picture only."""

    def full(_path: Path, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    path = tmp_path / "plot.svg"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        draw(some(1), NAMES, path, titles=["pair"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.svg"]
    assert path.read_text(encoding="utf-8") == "old"
