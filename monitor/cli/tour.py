"""`cpcmon demo --tour`: the commands on a generated example, as one would type them. No daemon."""

import shlex
from importlib.util import find_spec
from pathlib import Path

from monitor.cli import main
from monitor.errors import UsageError
from monitor.example_data import CLASSES, write_example
from monitor.state.folder import no_folder


def tour(directory: Path) -> int:
    """Write the example and run each command, showing it first."""
    try:
        write_example(directory)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"--directory {directory}: expected a folder, found {no_folder(directory, error)}") from error
    place = shlex.quote(str(directory))
    plots = find_spec("matplotlib") is not None
    print(
        f"A generated example is in {place}/: a breast-density classifier, its labelled validation set, and unlabelled\n"
        "outputs from its own site (a) and from a new one (b) with another scanner and an older population."
    )
    steps = (
        (
            "Make a reference from the labelled set:",
            (
                f"calibrate --input {place}/validation_labelled.jsonl --model density --model-version 2.1"
                f" --classes {','.join(CLASSES)} --output {place}/density.ref"
            ),
        ),
        (
            "How accurate is the model at its own site? No labels are used.",
            f"estimate --reference {place}/density.ref --input {place}/site_a.jsonl",
        ),
        (
            "And at the new site, for each 500 records:",
            f"estimate --reference {place}/density.ref --input {place}/site_b.jsonl --window 500",
        ),
        (
            "Follow a folder into which results of both sites are dropped. What was read survives a kill.",
            f"watch {place}/inbox --reference {place}/density.ref --state {place}/state --segment-by site --once",
        ),
        (
            "The example knows its labels, so see how far off each estimator was:",
            (
                f"evaluate --source {place}/validation_labelled.jsonl --target {place}/site_b_labelled.jsonl"
                f" --classes {','.join(CLASSES)}" + (f" --plot {place}/site_b.html" if plots else "")
            ),
        ),
    )
    for what, command in steps:
        print(f"\n{what}\n$ cpcmon {command}\n")
        if code := main(shlex.split(command)):
            return code
    if plots:
        print(f"\nOpen {place}/site_b.html in a browser to see the last table drawn.")
    else:
        print("\nThe last table can be drawn too, where matplotlib is there: pip install 'cpcmon[plot]'")
    print(
        "For the daemon, with a page to look at:\n"
        f"$ cpcmon run --config.file {place}/tour.yaml\nand open http://127.0.0.1:9877/"
    )
    return 0
