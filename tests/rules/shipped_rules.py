"""The rules that are shipped as files. After a change that is meant: `python -m tests.rules.shipped_rules`."""

from pathlib import Path

from monitor.rules.generic_rules import generic_rule_file
from monitor.rules.replicas import recording_rules
from monitor.rules.rule import group_text
from monitor.rules.rule_file import DEFAULT_JOB

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
SHIPPED = FOLDER / "cpcmon-replicas.rules.yml"
GENERIC = FOLDER / "cpcmon.rules.yml"

_HEAD = """\
# Adds what the replicas of cpcmon say into one estimate for each model and segment; docs/scaling.md explains it.
# cpcmon.rules.yml has the same, with alerts, and so has what `cpcmon rules` writes for a configuration with a source of
# type kafka: load one of the three files.
groups:
"""


def text() -> str:
    """Return the file that only adds replicas."""
    return _HEAD + group_text("cpcmon replicas", recording_rules())


def generic_text() -> str:
    """Return the file with alerts for any configuration."""
    return generic_rule_file(DEFAULT_JOB, "docs/runbooks/")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    SHIPPED.write_text(text())
    GENERIC.write_text(generic_text())
