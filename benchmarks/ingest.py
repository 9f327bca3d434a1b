"""The stages from a file to committed windows: the share of each, under the profiler.

The time in libraries counts where they are called from. The profiler adds little: records are handled in batches.
`benchmarks.against` measures the whole without a profiler.
"""

import cProfile
import os
import pstats
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.measures import RECORDS, SCANNERS, Full, decode_bare, ingest, options_of, seconds, started, written

STAGES = {
    "records/id_hash": "hash ids",
    "core/recent_ids": "hash ids",
    "records/vectors": "validate",
    "core/input_health": "validate",
    "records/": "columns",
    "core/record_columns": "columns",
    "sources/": "read",
    "state/": "commit",
    "ingest/": "commit",
    "core/": "windows and estimates",
}
"""By the beginning of a module's path; the first that fits."""
_DECODE = "decode"


def shares(folder: Path, split_by: tuple[tuple[str, ...], ...]) -> dict[str, float]:
    """Return the share of each stage."""
    options = options_of(split_by)
    profile = cProfile.Profile()
    with started(folder / f"state{len(split_by)}", options, written(folder)) as ingestion:
        profile.runcall(ingest, ingestion, options)
    spent: Counter[str] = Counter()
    # The type stubs do not know the attribute: own time of each function, and the time of its calls by caller.
    for (file, _, name), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if stage := _stage(file):
            # Decoded records are freed there, as in bare decoding.
            spent[_DECODE if file.endswith("formats/jsonl.py") and name == "decode" else stage] += own
            continue
        for (caller, _, _), (_, _, _, inside) in callers.items():
            if stage := _stage(caller):
                spent[_DECODE if "msgspec" in name and "Decoder" in name else stage] += inside
    total = sum(spent.values())
    return {stage: time / total for stage, time in spent.most_common()}


def _stage(file: str) -> str | None:
    """Return the stage of a module; None for a library."""
    _, found, module = file.partition("/monitor/")
    return next((stage for start, stage in STAGES.items() if found and module.startswith(start)), None)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as name:
        folder = Path(name).resolve()
        plain, split = shares(folder, ()), shares(folder, SCANNERS)
        bare = seconds(lambda: decode_bare(written(folder) / "a.jsonl", Full)) / RECORDS
        print(f"{RECORDS:,} records; bare decoding takes {1e9 * bare:,.0f} ns a record")
        print("| stage | share | with 5 sites and 10 scanners each |\n|---|--:|--:|")
        for stage, share in plain.items():
            print(f"| {stage} | {share:.2f} | {split.get(stage, 0.0):.2f} |")


if __name__ == "__main__":
    main()
