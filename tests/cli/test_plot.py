"""The plots of `cpcmon evaluate --plot`."""

import re
import struct
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from monitor.cli.plot import check, draw
from monitor.core.estimate import CONSENSUS
from monitor.core.estimators import ESTIMATORS
from monitor.errors import UsageError
from monitor.reference.offline import Evaluation

pytestmark = pytest.mark.slow

NAMES = (*(member.name for member in ESTIMATORS), CONSENSUS)
FORMS = [form for member in ESTIMATORS for form in (member.name, f"{member.name}_ts")]


def an_evaluation(realised: float = 0.471, source: float = 0.597, **estimates: float | None) -> Evaluation:
    """Return an evaluation with estimates between realised and source accuracy, except those given."""
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
    """Return every text of an SVG."""
    root = ET.fromstring(svg)  # noqa: S314
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("count", [1, 5])
def test_an_svg_contains_every_estimator_and_realised_accuracy_as_text(tmp_path: Path, count: int) -> None:
    evaluations = [an_evaluation(0.99 - 0.03 * number) for number in range(count)]
    found = texts(drawn(tmp_path, evaluations))
    assert set(NAMES) <= set(found)
    for evaluation in evaluations:
        assert any(f"{evaluation.target_accuracy:.3f}" in text for text in found)


def test_one_pair_labels_both_lines(tmp_path: Path) -> None:
    assert {"realised 0.471", "source 0.597"} <= set(texts(drawn(tmp_path, [an_evaluation()])))


@pytest.mark.parametrize(
    ("realised", "source"),
    [
        pytest.param(0.5, 0.5, id="equal"),
        pytest.param(0.5, 0.501, id="source just above"),
        pytest.param(1.0, 1.0, id="everything right"),
    ],
)
def test_the_labels_of_close_lines_do_not_overlap(tmp_path: Path, realised: float, source: float) -> None:
    svg = drawn(tmp_path, [an_evaluation(realised, source)])
    pattern = r'<text style="([^"]*)" x="([\d.]+)"[^>]*>(realised|source) '
    placed = {label: ("end" in style, float(across)) for style, across, label in re.findall(pattern, svg)}
    (left_ends, left), (right_ends, right) = sorted(placed.values(), key=lambda place: place[1])
    assert left_ends
    assert not right_ends
    assert left < right


def test_a_missing_estimate_is_shown_in_its_row(tmp_path: Path) -> None:
    found = texts(drawn(tmp_path, [an_evaluation(ac=None, ac_ts=None, doc=None, atc_mc_ts=None, consensus=None)]))
    missing = sorted(text for text in found if "no estimate" in text)
    assert missing == ["no estimate", "no estimate", "raw: no estimate", "scaled: no estimate"]
    assert set(NAMES) <= set(found)


@pytest.mark.parametrize("count", [1, 5])
def test_a_plot_without_any_estimate(tmp_path: Path, count: int) -> None:
    nothing = Evaluation(0.6, 0.5, 1.0, dict.fromkeys([*FORMS, CONSENSUS]), None)
    assert "<svg" in drawn(tmp_path, [nothing] * count)


def test_several_pairs_show_the_mean_error_only_if_every_pair_has_an_estimate(tmp_path: Path) -> None:
    pairs = [an_evaluation(0.5, ac=0.6, ac_ts=0.45), an_evaluation(0.7, ac=0.5, ac_ts=None)]
    assert "raw 15.0, scaled –" in texts(drawn(tmp_path, pairs))


def test_several_pairs_are_listed_by_realised_accuracy(tmp_path: Path) -> None:
    found = texts(drawn(tmp_path, some(3), titles=["best", "middle", "worst"]))
    assert [text.split()[1] for text in found if re.match(r"0\.\d{3} ", text)] == ["worst", "middle", "best"]


@pytest.mark.parametrize("count", [1, 300])
def test_the_size_of_a_png_is_bounded(tmp_path: Path, count: int) -> None:
    path = tmp_path / "plot.PNG"
    draw([an_evaluation()] * count, NAMES, path, titles=["pair"] * count)
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert width == 1350
    assert 500 < height < 3000


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_the_output_is_reproducible(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    for path in (first, second):
        draw(some(2), NAMES, path, titles=["a → b"] * 2)
    assert first.read_bytes() == second.read_bytes()


def test_the_users_style_has_no_effect(tmp_path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415

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
        """Record a tag with its links."""
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
def test_a_page_is_self_contained(tmp_path: Path, count: int) -> None:
    """One heading, one plot, one table per pair, no script, and only internal links."""
    page = Page(drawn(tmp_path, some(count), ".html"))
    assert [page.tags.count(tag) for tag in ("h1", "svg", "table", "script", "img", "link")] == [1, 1, count, 0, 0, 0]
    assert all(link.startswith("#") for link in page.links)


def test_the_table_has_the_numbers_of_the_plot(tmp_path: Path) -> None:
    """Errors are signed and in points."""
    evaluation = an_evaluation(0.5, 0.6, ac=0.612, ac_ts=0.4, doc=None, doc_ts=0.49999, consensus=0.55)
    rows = {row[0]: row[1:] for row in Page(drawn(tmp_path, [evaluation], ".html")).rows}
    assert list(rows) == ["Estimator", *NAMES]
    assert rows["ac"] == ["0.500", "0.612", "+11.2", "0.400", "-10.0"]
    assert rows["doc"] == ["0.500", "no estimate", "", "0.500", "+0.0"]
    assert rows[CONSENSUS] == ["0.500", "", "", "0.550", "+5.0"]


HOSTILE = [
    "<script>alert(1)</script>",
    "</strong></svg><img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "]]><!-- &lt; &#0;",
    r"$\frac{$ $x^2$ $",
    "a\x00b\x1b[31m\n\u202ec\udcff",
    "日本語 🩻 → עברית",
    "x" * 2000,
    "",
]


@pytest.mark.parametrize("titles", [HOSTILE, ["".join(HOSTILE)]], ids=["several pairs", "one pair"])
def test_a_title_is_escaped(tmp_path: Path, titles: list[str]) -> None:
    """Titles are file names: they add no element, attribute or formula."""
    pairs = [an_evaluation()] * len(titles)
    tame = Page(drawn(tmp_path, pairs, ".html", ["tame"] * len(titles)))
    page = Page(drawn(tmp_path, pairs, ".html", titles))
    assert set(page.tags) == set(tame.tags)
    assert page.attributes == tame.attributes
    shown = "".join("".join(texts(drawn(tmp_path, pairs, ".svg", titles))).split())
    for title in titles:
        replaced = re.sub("[\x00\x1b\n\u202e\udcff]", "\N{REPLACEMENT CHARACTER}", title)
        assert "".join(replaced.split()) in shown


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "plot.svg.gz", ".svg"])
def test_other_extensions_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"plot: expected a file ending in \.svg, \.png, \.html, found '.*" + name):
        draw([an_evaluation()], NAMES, tmp_path / name, titles=["pair"])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_matplotlib_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'cpcmon\[plot\]'"):
        check(Path("plot.svg"))


@pytest.mark.parametrize("count", [1, 6, 10])
def test_the_error_of_a_panel_does_not_overlap_its_name(tmp_path: Path, count: int) -> None:
    path = tmp_path / "plot.svg"
    draw(some(2), NAMES[:count], path, titles=["a", "b"])
    svg = path.read_text(encoding="utf-8")
    pattern = r'<text style="[^"]*" (?:x="[\d.]+" y="|transform="translate\([\d.]+ )([\d.]+)[^>]*>({})<'
    names = [float(height) for height, _ in re.findall(pattern.format("|".join(NAMES)), svg)]
    errors = [float(height) for height, _ in re.findall(pattern.format(r"raw [\d.]+, scaled [\d.]+|[\d.]{3}"), svg)]
    assert len(names) == count
    for name in names:
        assert min(error - name for error in errors if error > name) > 9.0


def test_an_existing_plot_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    path.write_text("old", encoding="utf-8")
    draw(some(1), NAMES, path, titles=["pair"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.svg"]
    assert path.read_text(encoding="utf-8").startswith("<?xml")


def test_a_full_disk_keeps_the_existing_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(_path: Path, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    path = tmp_path / "plot.svg"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        draw(some(1), NAMES, path, titles=["pair"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.svg"]
    assert path.read_text(encoding="utf-8") == "old"
