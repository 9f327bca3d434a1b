"""The page of a reference."""

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape

from monitor.core.estimate import share_interval
from monitor.reference.reference import Reference
from monitor.web.pages.other_pages import MOST_CLASSES, reference_page, temperature_words
from tests.web.reading import Reader, text_of
from tests.web.sample_site import CLASSES, sample_reference, sample_site

HOSTILE = "<script>alert('x')</script>\"&"


def _page(reference: Reference | None = None) -> str:
    shown = reference or sample_reference()
    return text_of(reference_page, replace(sample_site(), reference=lambda _: shown), name="density")


@pytest.mark.parametrize("query", [{}, {"name": "unknown"}, {"name": "triage"}])
def test_a_model_without_a_reference_has_no_page(query: dict[str, str]) -> None:
    assert reference_page(sample_site(), query) is None


def test_the_command_on_the_page_prints_the_fingerprint(tmp_path: Path) -> None:
    likely, truth = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1]
    reference = Reference.calibrate(likely, truth, model="density", classes=("a", "b"))
    path = tmp_path / "FILE"
    reference.save(path)
    text = _page(reference)
    assert f'<code class="fingerprint">{reference.fingerprint}</code>' in text
    command = re.search(r"<pre><code>(.*?)</code></pre>", text)
    assert command is not None
    ran = subprocess.run(command[1], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S602  our own command
    assert ran.stdout.split()[0] == reference.fingerprint
    assert hashlib.sha256(path.read_bytes().split(b"\n", 1)[1]).hexdigest() == reference.fingerprint


def test_accuracy_has_its_exact_interval() -> None:
    calibration = sample_reference().calibration
    interval = share_interval(calibration.right, calibration.records, 0.95)
    text = _page()
    assert f"{calibration.accuracy:.1%} <small>{calibration.right:,} correct</small>" in text
    assert f"{interval.lower:.1%} to {interval.upper:.1%}" in text
    assert "Interval, 95%" in text


@pytest.mark.parametrize(
    ("temperature", "words"),
    [
        (1.42, "the model is overconfident"),
        (0.7, "the model is underconfident"),
        (1.04, "the model means what it says"),
        (0.96, "the model means what it says"),
    ],
)
def test_temperature_is_explained(temperature: float, words: str) -> None:
    assert temperature_words(temperature) == words


def test_calibration_errors_are_in_points_raw_and_scaled() -> None:
    summary = replace(sample_reference().summary, calibration_error=0.0412, calibration_error_scaled=0.01)
    assert "4.1 points <small>raw; 1.0 point scaled" in _page(replace(sample_reference(), summary=summary))


def test_each_class_has_its_counts() -> None:
    summary = sample_reference().summary
    rows = {row[0]: row[1:] for row in Reader(_page()).rows if row and row[0] in CLASSES}
    assert set(rows) == set(CLASSES)
    for index, name in enumerate(CLASSES):
        records, right, predicted = (
            summary.class_records[index],
            summary.class_right[index],
            summary.class_predicted[index],
        )
        assert rows[name] == [
            f"{records:,}", f"{records / summary.records:.1%}", f"{right:,}", f"{right / records:.1%}", f"{predicted:,}",
        ]  # fmt: skip


def test_a_class_without_records_has_no_accuracy() -> None:
    summary = replace(sample_reference().summary, class_records=(0, 750, 450, 300), class_right=(0, 1, 1, 1))
    rows = {row[0]: row for row in Reader(_page(replace(sample_reference(), summary=summary))).rows if row}
    assert rows[CLASSES[0]][4] == "none"


def test_of_many_classes_the_rarest_are_shown() -> None:
    many = MOST_CLASSES + 5
    summary = replace(
        sample_reference().summary,
        class_records=tuple(range(1, many + 1)),
        class_right=(1,) * many,
        class_predicted=(1,) * many,
    )
    names = tuple(f"class-{index}" for index in range(many))
    text = _page(replace(sample_reference(), summary=summary, classes=names))
    assert f"The {MOST_CLASSES} rarest of {many} classes" in text
    assert ">class-0<" in text
    assert f">class-{many - 1}<" not in text


def test_every_warning_is_shown() -> None:
    summary = replace(sample_reference().summary, tied_share=0.3, floored_share=0.2, temperature_at_bound=True)
    text = _page(replace(sample_reference(), summary=summary))
    assert len(summary.warnings()) == 3
    for sentence in summary.warnings().values():
        assert f"<li>{escape(sentence)}.</li>" in text
    quiet = replace(summary, tied_share=0.0, floored_share=0.0, temperature_at_bound=False)
    assert "gave no warning" in _page(replace(sample_reference(), summary=quiet))


def test_the_reliability_table_has_a_row_for_each_bin() -> None:
    bins = sample_reference().summary.reliability
    rows = [row for row in Reader(_page()).rows if row and re.fullmatch(r"\d+% to \d+%", row[0])]
    assert len(rows) == len(bins) == 15
    for one, row in zip(bins, rows, strict=True):
        if one.records:
            assert row[1:4] == [f"{one.records:,}", f"{one.confidence:.1%}", f"{one.right / one.records:.1%}"]
        else:
            assert row[1:4] == ["0", "none", "none"]


def test_an_old_reference_without_bins_has_no_diagram() -> None:
    summary = replace(sample_reference().summary, reliability=(), reliability_scaled=())
    text = _page(replace(sample_reference(), summary=summary))
    assert "run <code>cpcmon calibrate</code> again" in text
    assert "reliability" not in re.findall(r'<svg class="chart ([\w ]+)"', text)


def test_hostile_names_are_escaped() -> None:
    reference = replace(
        sample_reference(), model=HOSTILE, version=HOSTILE, created=HOSTILE, classes=(HOSTILE, "b", "c", "d")
    )
    text = _page(reference)
    Reader(text)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;") >= 4


def test_the_page_does_not_import_scipy(tmp_path: Path) -> None:
    """It would take 18 MB of the daemon's memory."""
    sample_reference().save(tmp_path / "model.ref")
    program = """
import sys
from monitor.reference.reference import Reference
from monitor.web.pages.other_pages import reference_page
from monitor.web.site import Site
found = Reference.load(sys.argv[1])
site = Site(dict, list, list, lambda: 0.0, "1", reference=lambda _: found)
assert reference_page(site, {"name": "density"}) is not None
print("scipy" in sys.modules)
"""
    words = [sys.executable, "-c", program, str(tmp_path / "model.ref")]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "False\n"
