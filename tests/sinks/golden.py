"""The golden metrics page. After an intended change: `python -m tests.sinks.golden`."""

import re
from pathlib import Path

from monitor.sinks.prometheus_page import PrometheusSink
from monitor.telemetry import Telemetry
from tests.sinks import reports

GOLDEN = Path(__file__).with_name("golden_metrics.txt")


def page() -> str:
    """Return the metrics page of an example daemon, without values that depend on the machine."""
    sink = PrometheusSink()
    sink.publish(reports.full())
    sink.publish(reports.fresh())
    telemetry = Telemetry(reports.facts)
    telemetry.configured(("density", "triage"))
    telemetry.reloaded(reports.NOW - 3600.0)
    telemetry.evaluated("density", 0.03)
    telemetry.evaluation_failed("triage")
    telemetry.estimator_failed("density", "adaptive", 1)
    telemetry.ticked(0.002)
    text = (bytes(sink.page()) + telemetry.page()).decode()
    # The last digits of exact intervals depend on the processor.
    text = re.sub(r"^(cpcmon_realised_performance_\w+er_ratio.* \d\.\d{9})\d+$", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^(process_\w+) .*$", r"\1 0.0", text, flags=re.MULTILINE)
    return re.sub(r"^cpcmon_build_info\{.*", _build, text, flags=re.MULTILINE)


def _build(line: re.Match[str]) -> str:
    return re.sub(r'"[^"]*"', '"0"', line.group())


if __name__ == "__main__":
    GOLDEN.write_text(page())
