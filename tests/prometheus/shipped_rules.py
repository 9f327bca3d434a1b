"""The rules that are shipped as a file. After a change that is meant: `python -m tests.prometheus.shipped_rules`."""

from pathlib import Path

from monitor.sinks.prometheus_rule import group_text
from monitor.sinks.replica_recording import recording_rules

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "cpcmon-replicas.rules.yml"

_HEAD = """\
# Adds what the replicas of cpcmon say into one estimate for each model and segment; docs/scaling.md explains it.
# `cpcmon rules` writes the same, with alerts, for a configuration with a source of type kafka: load one of the two files.
groups:
"""


def text() -> str:
    """Return the whole file."""
    return _HEAD + group_text("cpcmon replicas", recording_rules())


if __name__ == "__main__":
    SHIPPED.parent.mkdir(parents=True, exist_ok=True)
    SHIPPED.write_text(text())
