"""The example holds every setting beside its default, and can be used as it is."""

import re
import shutil
from pathlib import Path

from monitor.config.config import Config, ModelConfig, SourceConfig, Storage
from monitor.config.reading import read_config
from monitor.config.references import load_models
from monitor.core.alerts import AlertType, Severity
from monitor.core.segments import Segmentation
from monitor.reference.reference import Reference
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.kafka.kafka_options import KafkaOptions
from tests.config.settings import EXAMPLE, declared, declared_by_path, places_in_the_example

LINES = EXAMPLE.read_text(encoding="utf-8").splitlines()


def test_the_example_can_be_used_as_it_is(tmp_path: Path, reference: Reference) -> None:
    """Beside a reference, it gives exactly the defaults of the code."""
    file = tmp_path / "config.yaml"
    shutil.copy(EXAMPLE, file)
    reference.save(tmp_path / "density.ref")
    config = read_config(file)
    (model,) = config.models
    kinds = {rule.kind: rule.severity for rule in model.alerts}
    assert len(kinds) == len(model.alerts)
    assert kinds.keys() == set(AlertType) - {AlertType.DISAGREEMENT}
    assert kinds[AlertType.CHANGE] is Severity.CRITICAL
    assert load_models(config) == [(model, reference)]
    plain = ModelConfig(
        "density",
        tmp_path / "density.ref",
        segmentation=Segmentation(forget_seconds=30 * 86400.0),
        alerts=model.alerts,
    )
    source = SourceConfig("results", DirectoryOptions(tmp_path / "inbox"))
    assert config == Config(Storage(tmp_path / "state"), (source,), (plain,), digest=config.digest, file=file)


def test_the_kafka_source_of_the_example_has_the_defaults_of_the_code(tmp_path: Path, reference: Reference) -> None:
    """With the "#" taken away from its lines, except those that say that there is no default."""
    before, marker, after = EXAMPLE.read_text(encoding="utf-8").partition("  #- name: stream")
    source, models, rest = (marker + after).partition("\nmodels:\n")
    lines = [re.sub(r"^( *)#(?=- |\w+:)", r"\1", line) for line in source.splitlines() if _has_a_default(line)]
    file = tmp_path / "config.yaml"
    file.write_text(before + "\n".join(lines) + models + rest, encoding="utf-8")
    reference.save(tmp_path / "density.ref")
    config = read_config(file)
    options = KafkaOptions(("kafka:9092",), "cpcmon", ("predictions",))
    assert config.sources[1:] == (SourceConfig("stream", options),)
    assert load_models(config) == [(config.models[0], reference)]


def _has_a_default(line: str) -> bool:
    if "sasl:" in line or "mechanism:" in line:
        return False  # who is declared for nothing has no user
    return "no default" not in line or "topics:" in line


def test_the_example_holds_exactly_the_settings_that_the_code_reads() -> None:
    """No setting is a secret, and none is made up."""
    assert {path for path, _, _ in places_in_the_example()} == set(declared())


def test_every_setting_of_the_example_shows_its_default() -> None:
    """At least once, read as the code reads it; the others say that there is none."""
    places = list(places_in_the_example())
    wrong = []
    for path, settings in declared().items():
        here = [(line, node) for place, line, node in places if place == path]
        defaults = {one.default_text() for one in settings}
        if defaults <= {"required", "none"}:
            word = "required" if "required" in defaults else "no default"
            shown = any(word in LINES[line - 1] for line, _ in here)
        else:
            shown = any(one.kind.read(node) == one.default for one in settings for _, node in here)
        if not shown:
            wrong.append(path)
    assert wrong == []


def test_what_is_left_out_in_the_example_could_be_written() -> None:
    """The values beside settings that are commented out are of their kinds."""
    known = declared()
    for path, _, node in places_in_the_example():
        known[path][0].kind.read(node)


def test_settings_of_an_absent_section_are_declared() -> None:
    """Otherwise the example could forget it."""
    assert "notify.webhook.url_file" in declared_by_path()
