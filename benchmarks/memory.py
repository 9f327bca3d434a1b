"""The memory forecast of `check-config` against the peak resident memory of a process with full windows.

Each case starts `cpcmon run`, fills every window with records that have ids, lets it evaluate a few times, scrapes its
metrics and loads its pages, and prints forecast and peak.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measures import outputs
from monitor.reference.reference import Reference
from tests.daemon.process import Process, running

CASES = (2, 200, 2_000)
_FILE_RECORDS = 500_000
_CONFIG = """\
storage: {{path: state}}
sources:
  - {{name: results, type: directory, path: inbox, poll: 0.5s}}
models:
  - name: density
    reference: density.ref
    window: {{records: {records}}}
    segment_by: [site]
    segments: {{limit: {segments}}}
    evaluate: {{every: 2s}}
    alerts:
      - {{name: accuracy_low, drop: 0.05, severity: critical}}
      - {{name: no_agreement, type: disagreement, severity: info}}
      - {{name: silent, after: 2h}}
limits: {{window_bytes: 8GiB, segments: {segments}}}
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("windows", type=int, nargs="*", default=CASES, help="numbers of windows")
    parser.add_argument("--records", type=int, default=5000, help="in a window")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--reference", type=int, default=2000, help="records of the reference")
    parser.add_argument("--ids", action="store_true", help="go on until the ids are full too")
    asked = parser.parse_args()
    print(f"windows of {asked.records:,} records of {asked.classes} classes, reference of {asked.reference:,}")
    print(f"{'windows':>8} {'forecast, MB':>13} {'peak, MB':>9} {'ratio':>6}")
    for windows in asked.windows:
        with tempfile.TemporaryDirectory(prefix="cpcmon-bench-") as folder:
            forecast, peak = measured(
                Path(folder), windows, asked.records, asked.classes, asked.reference, fill_ids=asked.ids
            )
        print(f"{windows:>8,} {forecast / 1e6:>13,.0f} {peak / 1e6:>9,.0f} {forecast / peak:>6.2f}", flush=True)


def measured(
    folder: Path, windows: int, records: int, classes: int, reference: int, *, fill_ids: bool = False
) -> tuple[int, int]:
    """Return the forecast for a number of full windows, and the peak of the process, in bytes."""
    Reference.calibrate(*outputs(reference, classes, seed=1), model="density", version="2.1").save(
        folder / "density.ref"
    )
    config = folder / "config.yaml"
    config.write_text(_CONFIG.format(records=records, segments=windows - 1), encoding="utf-8")
    (folder / "inbox").mkdir()
    said = subprocess.run(
        [sys.executable, "-m", "monitor", "check-config", config], capture_output=True, text=True, check=True
    )
    ((full, later),) = re.findall(r"^the process: about ([\d,]+) MB .*?, ([\d,]+) MB", said.stdout, re.MULTILINE)
    forecast = int((later if fill_ids else full).replace(",", "")) * 1_000_000
    # Ids are remembered in two generations of a million.
    total = max((windows - 1) * records, 2_100_000 if fill_ids else 0)
    write(folder / "inbox", windows - 1, total, classes)
    with running(config) as process:
        wait_for(process, "cpcmon_records_total", total)
        wait_for(process, "cpcmon_evaluations_total", counted(process, "cpcmon_evaluations_total") + 3)
        for page in ("/", "/model?name=density", "/api/v1/status", "/metrics"):
            process.ask(page)
        return forecast, peak_bytes(process.pid)


def write(inbox: Path, sites: int, total: int, classes: int) -> None:
    """Write records with ids, for each site in turn."""
    vectors = [", ".join(f"{p:.6f}" for p in vector) for vector in outputs(1000, classes, seed=2)[0].tolist()]
    for first in range(0, total, _FILE_RECORDS):
        with (inbox / f"{first:012d}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(
                f'{{"id": "exam-{number:012d}", "site": "S{number % sites:05d}", "probs": [{vectors[number % 1000]}]}}\n'
                for number in range(first, min(total, first + _FILE_RECORDS))
            )


def peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def counted(process: Process, name: str) -> float:
    """Return a counter of the model; 0 if it is missing."""
    status, page = process.ask("/metrics")
    found = re.search(rf'^{name}{{model="density"[^}}]*}} (\S+)$', page, re.MULTILINE) if status == 200 else None
    return float(found[1]) if found else 0.0


def wait_for(process: Process, name: str, value: float) -> None:
    """Wait until a counter reaches a value."""
    while counted(process, name) < value:
        time.sleep(1.0)


if __name__ == "__main__":
    main()
