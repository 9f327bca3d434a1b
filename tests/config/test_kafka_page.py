"""docs/kafka.md matches the code."""

import re
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.config.references import load_models
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.reference.reference import Reference
from monitor.sources.kafka.dead_letters import letters
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.partition_checkpoint import Partition
from tests.conftest import ROOT
from tests.web.certificates import Authority

PAGE = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_configurations_are_valid(tmp_path: Path, reference: Reference, block: str) -> None:
    """With the files that they name, and without a warning."""
    authority = Authority(tmp_path, "ca")
    authority.pair.cert.rename(tmp_path / "ca.pem")
    authority.pair.key.rename(tmp_path / "ca.key.pem")
    own = Authority(tmp_path, "cpcmon").pair
    own.cert.rename(tmp_path / "cpcmon.pem")
    for name in ("password", "token"):
        (tmp_path / name).write_text("ZZPATIENT\n")
    reference.save(tmp_path / "density.ref")
    file = tmp_path / "config.yaml"
    file.write_text(block, encoding="utf-8")
    config = read_config(file)
    assert load_models(config)
    assert config.remarks == ()
    assert isinstance(config.sources[0].options, KafkaOptions)


def test_configurations_are_found() -> None:
    """An empty search would pass the test above."""
    assert BLOCKS


def test_the_page_lists_the_fields_of_a_dead_letter() -> None:
    pointer = Pointer(Reason.BAD_SUM, 2, 7, 120, "3fa2c81b", "probs: list[3]")
    (letter,) = letters(Partition("predictions", 3), [pointer], [7], None)
    section = PAGE.partition("## Dead letters")[2].partition("\n## ")[0]
    assert letter.key == b"predictions/3/7"
    for name, _ in letter.headers:
        assert f"`{name.removeprefix('cpcmon.')}`" in section
    assert f"headers `{letter.headers[0][0]}`" in section
