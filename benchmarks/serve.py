"""The cost of the metrics page, against prometheus_client. `benchmarks.scrape` scrapes a running daemon."""

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks.measures import calibration_of, outputs, seconds
from benchmarks.ratios import HEAD, ratio
from monitor.core.estimate import WindowState
from monitor.core.report import ReferenceFacts, Report, SegmentReport
from monitor.core.segments import ALL, Segment
from monitor.sinks.prometheus_page import PrometheusSink

ROUNDS = 9
SEGMENTS = 80


def report() -> Report:
    """Return a report of about ten thousand series."""
    estimate = calibration_of(10).estimate(outputs(1000, 10, 2)[0])
    segments: list[Segment] = [ALL, *((("site", f"S{number}"),) for number in range(SEGMENTS))]
    facts = ReferenceFacts("1", "", "", tuple(f"class {n}" for n in range(10)), 1000, 0.8, 1.0)
    windows = tuple(
        SegmentReport(
            segment,
            1000,
            WindowState.OK,
            estimate.estimators,
            estimate.disagreement,
            predicted=(100,) * 10,
            last_record_at=1.0,
        )
        for segment in segments
    )
    found = Report("model", 1.0, 0.0, facts, windows)
    return replace(found, segments=found.windows)


def library_page(page: bytes) -> Callable[[], bytes]:
    """Return a function that writes as many series with prometheus_client."""
    registry = CollectorRegistry()
    gauge = Gauge("cpcmon_estimated_accuracy_ratio", "x", ["model", "segment", "estimator"], registry=registry)
    series = sum(1 for line in page.splitlines() if not line.startswith(b"#"))

    def make() -> bytes:
        for number in range(series):
            gauge.labels("model", f"site=S{number // 100}", f"estimator{number % 100}").set(0.5)
        return generate_latest(registry)

    return make


def main() -> None:
    """Run the benchmark."""
    found = report()
    sink = PrometheusSink()

    def ours() -> bytes:
        sink.publish(found)
        return bytes(sink.page())

    page = ours()
    library = library_page(page)
    lines = sum(1 for line in page.splitlines() if not line.startswith(b"#"))
    print(f"{lines:,} series, {len(page) / 1e6:.2f} MB; publishing and writing them: {seconds(ours) * 1e3:.1f} ms")
    print(HEAD)
    ratio(
        "as many gauges of the library, set and written, over our page",
        [seconds(library) / seconds(ours) for _ in range(ROUNDS)],
        ">= 5",
    )


if __name__ == "__main__":
    main()
