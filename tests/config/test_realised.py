"""The setting `models[].realised`: the file of realised accuracies."""

import pytest

from monitor.config.reading import read_config
from monitor.errors import ConfigError
from tests.config.conftest import BASE, Write


def test_the_path_is_relative_to_the_configuration_and_need_not_lead_anywhere(write: Write) -> None:
    """An audit may begin long after the daemon."""
    file = write("    realised: audits/density.jsonl\n")
    assert read_config(file).models[0].realised == file.parent / "audits" / "density.jsonl"
    assert read_config(write()).models[0].realised is None


def test_a_file_where_a_source_reads_is_an_error(write: Write) -> None:
    """It would be rejected as records, and archived or deleted with them."""
    with pytest.raises(
        ConfigError, match=r"realised: expected a file in a directory that source 'results' does not read"
    ):
        read_config(write("    realised: inbox/density.jsonl\n"))


def test_a_folder_within_counts_when_the_source_reads_folders_within(write: Write) -> None:
    """And only then."""
    more = "    realised: inbox/audits/density.jsonl\n"
    read_config(write(more))
    with pytest.raises(ConfigError, match="realised: expected a file in a directory that source"):
        read_config(write(more, BASE.replace("path: inbox", "path: inbox, recursive: true")))
