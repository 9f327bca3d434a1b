"""Records that are accepted and still not as expected are said on the page, in the log and in a metric: no silent all-clear."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.core.input_health import InputProblem
from tests.daemon.conftest import Site
from tests.daemon.process import Process, running, write_records, write_reference
from tests.strategies import Singles

_SOURCE = "  - {{name: {name}, type: directory, path: {name}, poll: 0.2s, models: [{name}], fields: {fields}}}\n"
_MODEL = """\
  - name: {name}
    reference: {name}.ref
    window: {{records: 200}}
    segment_by: [[site]]
    segments: {{limit: 20}}
    evaluate: {{every: 1s}}
    minimum_records: 50
    alerts:
    - {{name: low, below: 0.1, segments: ["{segments}"]}}
    - {{name: change, type: change, group_by: exam}}
"""
_FIELDS = {
    InputProblem.SEGMENT_NEVER_SEEN: "{segments: {site: hospitl}}",
    InputProblem.ARGMAX_MISMATCH: "{predicted: said}",
}
_SAID = {
    InputProblem.SEGMENT_NEVER_SEEN: "expected records with site, found none",
    InputProblem.SEGMENT_MISSING: "expected site in every record, found 50.0%",
    InputProblem.GROUP_MISSING: "expected the field in group_by of the change alert in every record, found 100.0%",
    InputProblem.ALERT_MATCHES_NOTHING: "found none for low",
    InputProblem.CLASS_MIX: "found cat 100.0% instead of 33.0%",
    InputProblem.TIME_AHEAD: "100.0% of the latest records ahead of the clock",
    InputProblem.TIME_BEHIND: "expected times of the last day",
    InputProblem.ARGMAX_MISMATCH: "expected the class that the probabilities decide",
    InputProblem.DUPLICATES: "expected a new id for each record",
    InputProblem.LATE: "expected records newer than the window",
    InputProblem.OTHER_VERSION: "expected the version of the reference",
}
HEALTHY = "healthy"


def _config(models: list[str]) -> str:
    sources = [
        _SOURCE.format(name=name, fields=_FIELDS.get(InputProblem(name), "{}") if name != HEALTHY else "{}")
        for name in models
    ]
    segments = {InputProblem.ALERT_MATCHES_NOTHING: "site=Z"}
    own = [_MODEL.format(name=name, segments=segments.get(name, "*")) for name in models]  # type: ignore[call-overload]
    return f"storage: {{path: state}}\nsources:\n{''.join(sources)}models:\n{''.join(own)}"


def _write(file: Path, problem: str, vectors: Singles, now: float) -> None:
    """Write a stream of one model: first as it should be, for the problems that need it."""
    fields: dict[str, object] = {"site": ["A", "B"], "version": "2.1"}
    if problem != InputProblem.GROUP_MISSING:
        fields["exam"] = [f"e{number}" for number in range(100)]
    match problem:
        case InputProblem.SEGMENT_NEVER_SEEN:
            fields = {"hospital": ["A", "B"]}
        case InputProblem.SEGMENT_MISSING:
            fields = {"site": ["A", ""]}
        case InputProblem.CLASS_MIX:
            vectors = vectors[vectors.argmax(axis=1) == 0]
        case InputProblem.TIME_AHEAD:
            fields["time"] = now + 86400.0
        case InputProblem.ARGMAX_MISMATCH:
            fields["said"] = "cat"
        case InputProblem.DUPLICATES:
            fields["id"] = [f"r{number}" for number in range(100)]
            vectors = vectors[[*range(100)] * 20]
        case InputProblem.LATE:
            fields["time"] = now - 60.0
        case InputProblem.OTHER_VERSION:
            fields["version"] = "9"
    write_records(file, vectors, **fields)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One daemon with a model for each problem, and a healthy one."""
    folder, now = tmp_path_factory.mktemp("problems"), time.time()
    models = [HEALTHY, *InputProblem]
    for name in models:
        _, vectors, _ = write_reference(folder, str(name))
        (folder / name).mkdir()
        _write(folder / name / "records.jsonl", name, vectors[:400], now)
    config = folder / "config.yaml"
    config.write_text(_config([str(one) for one in models]), encoding="utf-8")
    with running(config) as found:
        yield found


def _gauge(model: str, problem: InputProblem) -> str:
    return f'cpcmon_input_problem{{model="{model}",problem="{problem}"}}'


def _text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@pytest.mark.parametrize("problem", InputProblem)
def test_a_silent_case_is_on_the_page_in_the_log_and_in_a_metric(process: Process, problem: InputProblem) -> None:
    """And the model does not look all clear."""
    if problem is InputProblem.LATE:
        # Within the first batch, later records would only displace them.
        process.wait_for(f'cpcmon_window_records{{model="{problem}",segment="all"}}', 200.0)
        file = process.config.parent / problem / "records.jsonl"
        write_records(file, [[0.2, 0.3, 0.5]] * 4000, site="A", time=time.time() - 7200.0)
    if problem is InputProblem.TIME_BEHIND:
        # What is there at the start is an archive.
        process.wait_for(f'cpcmon_window_records{{model="{problem}",segment="all"}}', 200.0)
        file = process.config.parent / problem / "records.jsonl"
        write_records(file, [[0.2, 0.3, 0.5]] * 400, site="A", time=time.time() - 10 * 86400.0)
    process.wait_for(_gauge(problem, problem), 1.0)
    process.wait_for_line(f"{problem}: input problem {problem}: ")
    log = next(line for line in process.lines if f"{problem}: input problem {problem}: " in line)
    for text in (log, _text(process.ask("/")[1]), _text(process.ask(f"/model?name={problem}")[1])):
        assert _SAID[problem] in text
    models = {one["model"]: one for one in json.loads(process.ask("/api/v1/status")[1])["models"]}
    (found,) = [one for one in models[problem]["input"]["problems"] if one["problem"] == problem]
    assert _SAID[problem] in found["sentence"]
    row = re.search(rf'data-model="{problem}" data-segment="all" data-urgency="(\w+)"', process.ask("/")[1])
    assert row is not None
    assert row.group(1) in {"problem", "pending", "unknown"}


def test_a_healthy_model_has_none(process: Process) -> None:
    """Beside the others."""
    page = process.wait_for(f'cpcmon_window_records{{model="{HEALTHY}",segment="all"}}', 200.0)
    assert [page[_gauge(HEALTHY, one)] for one in InputProblem] == [0.0] * len(InputProblem)
    assert f"{HEALTHY}: input problem" not in process.log
    assert page['cpcmon_records_without_segment_total{fields="site",model="segment_missing"}'] == 200.0


def test_a_typo_in_the_fields_of_segments_is_said_until_it_is_fixed(site: Site) -> None:
    """Also after a restart without new records."""
    wrong = site.config.read_text("utf-8").replace("poll: 0.2s", "poll: 0.2s, fields: {segments: {site: hospitl}}")
    site.config.write_text(wrong, encoding="utf-8")
    write_records(site.inbox / "a.jsonl", site.reference_vectors[:150], hospital="A")
    gauge = _gauge("density", InputProblem.SEGMENT_NEVER_SEEN)
    with running(site.config) as process:
        process.wait_for(gauge, 1.0)
        assert "No alert, but the input of density has a problem" in process.ask("/")[1]
        process.stop()
    with running(site.config) as process:
        process.wait_for(gauge, 1.0)
        site.config.write_text(wrong.replace("hospitl", "hospital"), encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("reloaded")
        write_records(site.inbox / "a.jsonl", site.reference_vectors[:10], hospital="A")
        process.wait_for(gauge, 0.0)
        process.wait_for_line("density: input problem segment_never_seen ended")
