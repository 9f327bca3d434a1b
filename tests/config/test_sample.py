"""`cpcmon check-config --sample` says what the daemon would do with records, before it does."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.config.conftest import BASE, Write
from tests.conftest import Ran

Cpcmon = Callable[..., Ran]
_MORE = """\
    segment_by: [[site]]
    alerts: [{name: low, below: 0.5, segments: ["site=Z"]}]
"""


def vectors(count: int = 300) -> list[list[float]]:
    """Return outputs that favour each class in turn, as the reference does."""
    return [np.roll([0.8, 0.15, 0.05], row).tolist() for row in range(count)]


def sample(folder: Path, *bad: str, **fields: object) -> Path:
    """Write records to a file; the values of a list field are used in turn."""
    file = folder / "records.jsonl"
    lines = [
        json.dumps(
            {
                "probs": one,
                **{
                    name: value[row % len(value)] if isinstance(value, list) else value
                    for name, value in fields.items()
                },
            }
        )
        for row, one in enumerate(vectors())
    ]
    file.write_text("".join(f"{line}\n" for line in (*lines, *bad)), encoding="utf-8")
    return file


def test_records_as_expected_are_described(cpcmon: Cpcmon, write: Write, tmp_path: Path) -> None:
    """Models, versions, times, segments and classes; an alert on another segment is only a remark."""
    config = write(_MORE)
    now = time.time()
    file = sample(
        tmp_path, '{"probs": [2, 3, 4]}', site=["A", "B"], version="2.1", time=[now - row for row in range(300)]
    )
    ran = cpcmon("check-config", "--sample", file, config)
    assert (ran.code, ran.err) == (0, "")
    for text in (
        "as source results: 301 records read, 300 accepted, 1 rejected",
        "rejected as above_one: 1, such as record 301: expected probabilities of at most 1",
        "model density: 300 accepted, 300 counted",
        "versions: 2.1 (300)",
        "the newest just now",
        "segments by site: site=A (150), site=B (150)",
        " 33.3%  reference ",
        "remark: alerts: expected a segment for each alert, found none for low",
    ):
        assert text in ran.out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"hospital": "A"}, "expected records with site, found none", id="no segment"),
        pytest.param({"hospital": "A"}, "segments by site (field meta.site): none; records without: 300", id="path"),
        pytest.param({"site": ["A", ""]}, "expected site in every record, found 50.0%", id="some without a segment"),
        pytest.param({"site": "A", "time": time.time() + 86400.0}, "ahead of the clock", id="times ahead"),
        pytest.param({"site": "A", "decided": "a"}, "another one in 66.7% of the latest records", id="decisions"),
        pytest.param({"site": "A", "id": "same"}, "an id that was counted before in 99.7%", id="duplicates"),
        pytest.param({"site": "A", "version": "3"}, "expected the version of the reference", id="version"),
        pytest.param(
            {"site": "A", "probs": [0.8, 0.1, 0.1]}, "expected about the shares of the reference", id="classes"
        ),
        pytest.param({"site": "A", "probs": [80, 10, 10]}, "looks like percentages: set kind: percent", id="rejected"),
    ],
)
def test_a_problem_is_said_and_the_exit_code_is_2(
    cpcmon: Cpcmon, write: Write, tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    """Before going live."""
    path = ", segments: {site: meta.site}" if "field meta" in said else ""
    config = write(_MORE, BASE.replace("path: inbox", f"path: inbox, fields: {{predicted: decided{path}}}"))
    fields = {name: [value] if name == "probs" else value for name, value in fields.items()}
    ran = cpcmon("check-config", "--sample", sample(tmp_path, **fields), config)
    assert ran.code == 2
    assert said in ran.out
    assert "problem: " in ran.out
    assert "records.jsonl: expected records as configured, found 1 problem, listed above" in ran.err


def test_other_formats_and_mistakes(cpcmon: Cpcmon, write: Write, tmp_path: Path) -> None:
    """An array has outputs only; a file that cannot be read, and a model that does not exist, are said."""
    config = write()
    array, text = tmp_path / "records.npy", tmp_path / "records.txt"
    np.save(array, np.array(vectors(), dtype=np.float32))
    text.write_text("", encoding="utf-8")
    ran = cpcmon("check-config", "--sample", array, "--model", "density", config)
    assert (ran.code, ran.err) == (0, "")
    assert "without a time, so that they count as of their arrival: 300" in ran.out
    for words, said in (
        (("--sample", text), "expected a file named"),
        (("--sample", tmp_path / "none.jsonl"), "expected a readable file"),
        (
            ("--sample", array, "--model", "other"),
            "expected one of the models with a reference: density, found 'other'",
        ),
        (("--model", "density"), "--model: expected beside --sample"),
    ):
        ran = cpcmon("check-config", *words, config)
        assert (ran.code, said in ran.err) == (2, True), ran.err
