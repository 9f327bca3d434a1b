"""The pages of rejected records, of the configuration and of a reference."""

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from monitor.core.estimate import share_interval
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.reference.reference import Reference
from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.api import reference_document
from monitor.web.pages.other_pages import (
    MOST_CLASSES,
    MOST_POINTERS,
    MOST_SETTINGS,
    configuration_page,
    reference_page,
    rejects_page,
    temperature_words,
)
from monitor.web.pages.rendering import ENVIRONMENT
from monitor.web.site import Rejects
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW
from tests.web.sample_site import CLASSES, DETECTOR, detected, detector_reference, sample_reference, sample_site

SUM = "probabilities that sum to 1"
POINTER = Pointer(Reason.BAD_SUM, 1017, 123_456, 210, "9f86d081", "probs: list[4]", expected=SUM)
LINE = (NOW - 90.0, "inbox", "file#3fa2c81b", POINTER)
MESSAGE = (NOW - 5.0, "topic", "predictions/3", Pointer(Reason.BAD_JSON, 1, 77, 12))


def test_every_reason_is_explained() -> None:
    texts = vars(ENVIRONMENT.get_template("reasons.html").module)
    assert set(texts["reasons"]) == set(Reason)


def test_an_unknown_reason_is_shown() -> None:
    """Of an older or newer version."""
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects({("inbox", "retired"): 3}))))
    assert page.rows[1][:3] == ["inbox", "retired", "3"]
    assert "does not know the reason" in page.rows[1][3]


def test_counts_by_source_and_reason_most_frequent_first() -> None:
    counts = {("inbox", "bad_json"): 3, ("inbox", "bad_sum"): 1200, ("topic", "bad_json"): 7, ("topic", "empty"): 0}
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects(counts))))
    assert [row[:3] for row in page.rows[1:]] == [
        ["inbox", "bad_sum", "1,200"], ["topic", "bad_json", "7"], ["inbox", "bad_json", "3"]
    ]  # fmt: skip
    assert "sum to 1" in page.rows[1][3]


def test_pointers_to_the_latest_records() -> None:
    """Offsets without separators; unknown values as none."""
    page = Reader(text_of(rejects_page, site_of(rejects=lambda: Rejects({}, [MESSAGE, LINE]))))
    message, line = page.rows[-2:]
    assert line == [
        "2025-11-16 13:31:50 UTC 1 minute ago", "inbox", "file#3fa2c81b", f"bad_sum expected {SUM}",
        "1017", "123456", "210", "9f86d081", "probs: list[4]",
    ]  # fmt: skip
    assert message[2:] == ["predictions/3", "bad_json", "1", "77", "12", "none", "none"]


def test_too_many_pointers_are_cut_and_counted() -> None:
    text = text_of(rejects_page, site_of(rejects=lambda: Rejects({}, [LINE] * (MOST_POINTERS + 7))))
    assert len(Reader(text).rows) == MOST_POINTERS + 1
    assert "… and 7 more." in text


SETTINGS = [
    Setting("state", "/var/lib/cpcmon", 2),
    Setting("sources[0].name", "inbox", 4),
    Setting("sources[0].fields.site", "meta.hospital", None),
    Setting("models[0].name", "density", 9),
    Setting("models[1].name", "nodules", 20),
    Setting("notifications.webhook.url", HIDDEN, 30),
]


def test_settings_are_grouped_by_model_and_source() -> None:
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    headings = [re.sub("<.*?>", "", one) for one in re.findall(r"<h2>(.*?)</h2>", text)]
    assert headings == ["state", "sources[0] inbox", "models[0] density", "models[1] nodules", "notifications"]
    rows = [row for row in Reader(text).rows if row[0] != "Setting"]
    assert rows[0] == ["state", "/var/lib/cpcmon", "2"]
    assert rows[1] == ["name", "inbox", "4"]


def test_defaults_differ_from_settings_in_the_file() -> None:
    """In words, not only in style."""
    text = text_of(configuration_page, site_of(settings=lambda: SETTINGS))
    assert ["fields.site", "meta.hospital", "default"] in Reader(text).rows
    assert re.findall(r'<tr class="assumed" data-setting="(.*?)">', text) == ["sources[0].fields.site"]
    assert text.count('<tr class="given"') == 5


def test_too_many_settings_are_cut_and_counted() -> None:
    many = [Setting(f"models[{number}].name", "m", number) for number in range(MOST_SETTINGS + 3)]
    assert "… and 3 more settings." in text_of(configuration_page, site_of(settings=lambda: many))


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


def test_labelled_segments_are_listed_the_least_accurate_first() -> None:
    """On the page and, the same numbers, in the document."""
    site = replace(sample_site(), reference=lambda _: sample_reference())
    rows = [row for row in Reader(_page()).rows if row and row[0].startswith("site ")]
    document = json.loads(reference_document(site, {"model": "density"}) or b"")
    found = sorted(document["segments"], key=lambda one: one["accuracy"])
    assert [one["records"] for one in sorted(found, key=lambda one: one["segment"])] == [200, 400]
    assert rows == [
        [
            one["segment"].replace("=", " "),
            f"{one['records']}",
            f"{one['right'] / one['records']:.1%}",
            f"{one['accuracy']:.1%}",
            f"{100 * one['bias']:+.1f}",
        ]
        for one in found
    ]


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
site = Site(dict, lambda: 0.0, "1", reference=lambda _: found)
assert reference_page(site, {"name": "density"}) is not None
print("scipy" in sys.modules)
"""
    words = [sys.executable, "-c", program, str(tmp_path / "model.ref")]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "False\n"


def test_a_reference_has_its_own_performance() -> None:
    """Counted here from the outputs, at the threshold of the device."""
    likely, cases = detected(4000, 1)
    called = likely[:, 1].astype(np.float32) >= np.float32(0.13)
    right = int((called & (cases == 1)).sum())
    text = text_of(reference_page, sample_site(), name=DETECTOR)
    row = next(row for row in Reader(text).rows if row[:1] == ["cancer"] and len(row) == 6 and "%" in row[1])
    assert row[1] == f"{right / cases.sum():.1%}"
    assert row[3] == f"{right / called.sum():.1%}"
    assert "which decides cancer at 0.13 or above" in text
    reference = detector_reference()
    old = replace(reference, calibration=replace(reference.calibration, performance=None))
    text = text_of(reference_page, replace(sample_site(), reference=lambda _: old), name=DETECTOR)
    assert "<code>cpcmon calibrate</code> again to see sensitivity" in text
