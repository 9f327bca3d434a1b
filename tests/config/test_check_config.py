"""`cpcmon check-config` says what a configuration means, or everything that is wrong with it."""

import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from monitor.core.change import smallest_tolerance
from monitor.core.recent_ids import bytes_at_most
from monitor.errors import StateRefused
from monitor.reference.reference import Reference
from monitor.state.store import State
from tests.config.conftest import BASE, Write
from tests.conftest import ROOT, Ran
from tests.servers import needs_root, real_server
from tests.strategies import older

MORE = """\
    segment_by: [[site], [site, scanner]]
    segments: {limit: 20}
    alerts:
      - {name: fallen, drop: 0.1, severity: critical, segments: [all]}
      - {name: low, below: 0.99, estimator: atc_mc, on: value, for: 0s}
      - {name: odd, above: 0.2}
      - {name: apart, type: disagreement}
      - {name: further_apart, type: disagreement, above: 0.2}
      - {name: changed, type: change, tolerance: 0.03, segments: [all], group_by: exam}
      - {name: rose, type: change, direction: up, false_alarms: 2 per year, group_by: exam}
      - {name: quiet, after: 2h}
      - {name: bad, type: degraded_input}
  - name: later
    evaluate: {cron: "*/5 * * * *"}
    default_alerts: []
notify:
  webhook: {url: "https://a/ZZPATIENT"}
"""


def test_it_describes_a_configuration(cpcmon: Callable[..., Ran], write: Write, reference: Reference) -> None:
    """Reference, memory, segments, schedule, alerts as numbers, warnings, sources and the total."""
    file = write(MORE)
    ran = cpcmon("check-config", file)
    accuracy, unknown = reference.calibration.accuracy, smallest_tolerance(300, reference.calibration.right)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0] == f"model density: reference density 2.1, accuracy {accuracy:.3f}"
    assert lines[1].startswith("  windows of at most 5,000 records: ")
    assert lines[2:16] == [
        "  at most 20 segments, by site; site and scanner",
        "  evaluated every 60s, with at least 200 records",
        "  compared with the reference, segments with their own first 5,000 records",
        (
            f"  alert fallen (critical): upper of adaptive under {accuracy - 0.1:.3f}, 0.1 under the reference's"
            " accuracy, or that of another baseline, for 30m, in all"
        ),
        "  alert low (warning): value of atc_mc under 0.990",
        "  alert odd (warning): lower of adaptive over 0.200, for 30m",
        "  alert apart (warning): disagreement over 1.5 times what chance alone gives, for 30m",
        "  alert further_apart (warning): disagreement over 0.200, for 30m",
        (
            f"  alert changed (critical): the evidence of a drop of more than {unknown:.3f} (what the reference leaves unknown)"
            " reaches 10^5.1: at most one false alarm in 90 days over 1 window evaluated every 60s; of records with the same exam, the"
            " first counts, in all"
        ),
        (
            f"  alert rose (critical): the evidence of a rise of more than {unknown:.3f} (what the reference leaves unknown)"
            " reaches 10^6.7: at most one false alarm in 182.5 days over 21 windows evaluated every 60s; of records with the same"
            " exam, the first counts"
        ),
        "  alert quiet (warning): no record for 2h",
        "  alert bad (warning): too many records are rejected or suspicious, for 10m",
        (
            "  alert output_drift (warning): outputs differ from the baseline by over 1.5 times what chance alone gives,"
            " at least 0.12, for 30m"
        ),
        (
            f"  alert baseline_gap (critical): adaptive of an own, unverified baseline under {accuracy - 0.1:.3f},"
            " 0.1 under the reference's accuracy, for 10m"
        ),
    ]
    assert lines[16:20] == [
        f"  warning: alert low: the accuracy of the reference, {accuracy:.3f}, is under 0.990",
        f"  warning: alert odd: the accuracy of the reference, {accuracy:.3f}, is over 0.200",
        (
            f"  warning: alert changed: tolerance 0.03 is under {unknown:.3f}, what a reference of 300 records leaves unknown,"
            " which is used: calibrate with more records for less"
        ),
        "  warning: 300 records: with fewer than 500, intervals are wide",
    ]
    assert lines[20:24] == [
        "model later: no reference: there are no estimates, and its records are rejected",
        '  evaluated at "*/5 * * * *" (UTC), with at least 200 records',
        "  no alerts",
        f"source results: directory {file.parent / 'inbox'}",
    ]
    assert lines[24].startswith("remark: notify.webhook.url: ")
    assert lines[25].startswith("all windows: ")
    assert lines[25].endswith(" MB at most, limit 536.9 MB")
    assert lines[26] == f"all remembered ids: {2 * bytes_at_most(1_000_000) / 1e6:.1f} MB at most, in addition"
    assert re.fullmatch(
        r"the process: about \d+ MB with full windows, \d+ MB with all ids too; of it \d+ MB for evaluation and pages,"
        r" \d+ MB for the program",
        lines[27],
    )
    assert re.fullmatch(r"the metrics page: about [\d,]+ series with all possible segments", lines[28])
    assert lines[29:] == [f"{file}: valid (1 source, 2 models, 11 alerts)"]
    assert "ZZPATIENT" not in ran.out


def test_an_old_reference_is_a_warning_and_has_no_field_interval(
    cpcmon: Callable[..., Ran], write: Write, reference: Reference
) -> None:
    file = write("    alerts: [{name: low, drop: 0.1}]\n")
    older(reference).save(file.parent / "density.ref")
    ran = cpcmon("check-config", file)
    assert ran.code == 0
    assert "alert low (warning): upper of consensus under" in ran.out
    assert (
        "warning: alert accuracy_drop: off, since the reference was made by an older version of cpcmon: calib"
        in ran.out
    )
    assert "warning: made by an older version of cpcmon, without what adaptive and the field interval need" in ran.out
    file.write_text(file.read_text().replace("drop: 0.1", "drop: 0.1, on: field_upper"))
    ran = cpcmon("check-config", file)
    assert ran.code == 2
    assert "models[0].alerts[0].on: expected a reference with a field interval, found one of an older cpcmon" in ran.err


def test_a_directory_that_is_not_there_is_no_error(cpcmon: Callable[..., Ran], write: Write) -> None:
    """It may be mounted later."""
    file = write()
    (file.parent / "inbox").rmdir()
    ran = cpcmon("check-config", file)
    assert ran.code == 0
    assert f"source results: directory {file.parent / 'inbox'}: does not exist; cpcmon will wait for it\n" in ran.out


def test_every_problem_is_reported_and_the_exit_code_is_2(cpcmon: Callable[..., Ran], write: Write) -> None:
    """Each on a line of its own that begins with the file, as editors and CI know to read it."""
    file = write("    minimum_records: -1\n    windw: {}\n")
    ran = cpcmon("check-config", file)
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(" ")[0] for line in ran.err.splitlines()] == [f"{file}:7:", f"{file}:8:", f"{file}:"]


def test_a_reference_that_is_not_there_is_an_error(cpcmon: Callable[..., Ran], write: Write) -> None:
    """The references are opened."""
    file = write()
    (file.parent / "density.ref").unlink()
    ran = cpcmon("check-config", file)
    assert ran.code == 2
    assert ran.err.startswith(f"{file}:6: models[0].reference: expected a reference file, found No such file")


def test_a_crontab_line_that_never_comes_true_is_an_error(cpcmon: Callable[..., Ran], write: Write) -> None:
    """The scheduler itself is asked."""
    ran = cpcmon("check-config", write('    evaluate: {cron: "0 0 30 2 *"}\n'))
    assert ran.code == 2
    assert ":7: models[0].evaluate.cron: expected a crontab line" in ran.err


def test_a_directory_that_cannot_be_looked_at_is_no_error(cpcmon: Callable[..., Ran], write: Write) -> None:
    """Whoever checks may have fewer rights than the daemon, and is told all the rest."""
    file = write(base=BASE.replace("path: inbox", f"path: {'x' * 300}"))
    ran = cpcmon("check-config", file)
    assert (ran.code, ran.err) == (0, "")
    assert ": cannot be read (File name too long); cpcmon will wait for it" in ran.out
    assert ": valid (" in ran.out


@pytest.mark.parametrize("path", ["config.yaml", "config.yaml/state", "/proc/cpcmon", "newer"])
def test_a_state_folder_that_the_daemon_rejects_is_rejected_in_the_same_words(
    path: str, cpcmon: Callable[..., Ran], write: Write
) -> None:
    """A file, a place below one, a place where nothing can be made, and the state of a newer cpcmon."""
    file = write(base=BASE.replace("path: state", f"path: {path}"))
    State.open(file.parent / "newer").close()
    with closing(sqlite3.connect(file.parent / "newer" / "state.db")) as newer:
        newer.executescript("CREATE TABLE of_tomorrow (column); PRAGMA user_version = 1000")
    with pytest.raises(StateRefused) as refused:
        State.open(file.parent / path)
    ran = cpcmon("check-config", file)
    assert (ran.code, ran.out, ran.err) == (refused.value.exit_code, "", f"{refused.value}\n")


def test_checking_leaves_no_trace_and_does_not_disturb_a_daemon(cpcmon: Callable[..., Ran], write: Write) -> None:
    """Neither where the folder is still to be made nor where somebody works in it."""
    file = write(base=BASE.replace("path: state", "path: var/lib/state"))
    before = sorted(file.parent.rglob("*"))
    assert cpcmon("check-config", file).code == 0
    assert sorted(file.parent.rglob("*")) == before
    with closing(State.open(file.parent / "var/lib/state")):
        before = sorted(file.parent.rglob("*"))
        assert cpcmon("check-config", file).code == 0
        assert sorted(file.parent.rglob("*")) == before


def test_read_access_to_the_state_is_enough_to_check() -> None:
    """As ExecReload of the systemd unit does: as nobody, with the right to read everything and no other."""
    needs_root("give rights away")
    with tempfile.TemporaryDirectory(prefix="cpcmon-check-") as name:  # tmp_path is closed to others
        folder = Path(name, "state")
        rights = "-all,+dac_read_search"
        command = [
            *(real_server("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
            *(f"--inh-caps={rights}", f"--ambient-caps={rights}", f"--bounding-set={rights}", sys.executable, "-c"),
            "import sys; from pathlib import Path; from monitor.state.store import State; State.check(Path(sys.argv[1]))",
            str(folder),
        ]
        with closing(State.open(folder)):
            subprocess.run(command, cwd=ROOT, check=True)
        ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert "expected a folder owned by this user" in ran.stderr


def test_it_says_how_long_a_window_with_an_own_baseline_is_not_watched(
    cpcmon: Callable[..., Ran], write: Write
) -> None:
    rare = "    evaluate: {every: 12h}\n    alerts: [{name: changed, type: change}]\n"
    said = "an own baseline takes 60 evaluations with records, at least 30 days"
    assert said not in cpcmon("check-config", write(rare)).out
    assert said in cpcmon("check-config", write(f"    segment_by: [[site]]\n{rare}")).out
