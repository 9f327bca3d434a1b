"""The schedule, on the real APScheduler."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from monitor.config.config import Cron, Every
from monitor.evaluation.crontab import cron_problem, seconds_of_runs
from monitor.evaluation.schedule import Schedule, _trigger

LIMIT = 60.0


class Events:
    """Counts the callbacks of a schedule."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.counts: Counter[str] = Counter()

    def __call__(self, what: str) -> None:
        """Count an event."""
        with self._changed:
            self.counts[what] += 1
            self._changed.notify_all()

    def wait_for(self, what: str, count: int) -> None:
        """Wait for a number of events."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.counts[what] >= count, LIMIT), self.counts


@pytest.fixture
def events() -> Events:
    """The counted events."""
    return Events()


@pytest.fixture
def schedule(events: Events) -> Iterator[Schedule]:
    """A schedule that is stopped at the end."""
    schedule = Schedule(
        missed=lambda name: events(f"missed {name}"),
        skipped=lambda name: events(f"skipped {name}"),
        failed=lambda name: events(f"failed {name}"),
    )
    yield schedule
    schedule.stop()


@pytest.mark.parametrize("when", [Every(3600.0), Cron("0 0 1 1 *")], ids=["interval", "cron"])
def test_a_job_runs_at_once(schedule: Schedule, events: Events, when: Every | Cron) -> None:
    schedule.add("density", when, lambda: events("ran"))
    schedule.start()
    events.wait_for("ran", 1)


def test_e14_runs_due_while_one_runs_are_skipped_and_counted(schedule: Schedule, events: Events) -> None:
    go_on = threading.Event()

    def slow() -> None:
        events("ran")
        go_on.wait(LIMIT)

    schedule.add("density", Every(0.05), slow)
    schedule.start()
    events.wait_for("skipped density", 5)
    assert events.counts["ran"] == 1
    go_on.set()
    events.wait_for("ran", 3)
    assert events.counts["missed density"] == 0


def test_the_log_names_the_model_and_its_schedule(
    schedule: Schedule, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """In APScheduler's messages on skipped and failed runs."""
    go_on = threading.Event()

    def slow_then_failing() -> None:
        go_on.wait(LIMIT)
        raise ZeroDivisionError("as if")

    schedule.add("density", Every(0.05), slow_then_failing)
    schedule.start()
    events.wait_for("skipped density", 1)
    go_on.set()
    events.wait_for("failed density", 1)
    schedule.stop()
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("apscheduler")]
    of_job = [line for line in messages if line.startswith(("Execution of job", 'Job "'))]
    assert {line.split()[0] for line in of_job} == {"Execution", "Job"}
    assert all('"density (trigger: interval[0:00:00.050000]' in line for line in of_job), of_job


def test_a_slow_model_does_not_delay_another(schedule: Schedule, events: Events) -> None:
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(LIMIT)

    schedule.add("slow", Every(0.1), slow)
    schedule.add("quick", Every(0.05), lambda: events("quick"))
    schedule.start()
    events.wait_for("quick", 5)
    go_on.set()


def test_a_job_that_raises_is_counted_and_runs_again(schedule: Schedule, events: Events) -> None:
    def job() -> None:
        raise ZeroDivisionError("as if")

    schedule.add("density", Every(0.05), job)
    schedule.start()
    events.wait_for("failed density", 3)


def test_e11_after_a_jump_of_the_clock_everything_runs_now(schedule: Schedule, events: Events) -> None:
    """APScheduler waits for the wall clock."""
    schedule.add("density", Every(86_400.0), lambda: events("ran"))
    schedule.start()
    events.wait_for("ran", 1)
    schedule.run_all_now()
    events.wait_for("ran", 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("*/5 * * * *", None, id="every five minutes"),
        pytest.param("0 6 * * mon-fri", None, id="in the morning"),
        pytest.param("61 * * * *", "59", id="no such minute"),
        pytest.param("* * * *", "4", id="four fields"),
        pytest.param("0 0 30 2 *", "never", id="never"),
        pytest.param("", "0", id="nothing"),
        pytest.param("0 6 * * 1-5", None, id="days by number"),
        pytest.param("0 6 * * 8", "8", id="no such day"),
        pytest.param("0 6 * * 5-2", "higher", id="days backwards"),
        pytest.param("0 6 1 * mon", "leave one of them *", id="two kinds of days"),
    ],
)
def test_a_crontab_line_is_checked(line: str, problem: str | None) -> None:
    found = cron_problem(line)
    assert (
        (found is None) if problem is None else (found is not None and problem in found.lower().replace("zero", "0"))
    ), found


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        pytest.param("0", "Sun", id="0 is Sunday"),
        pytest.param("7", "Sun", id="7 is Sunday too"),
        pytest.param("1-5", "Mon Tue Wed Thu Fri", id="the working week"),
        pytest.param("5-7", "Fri Sat Sun", id="up to Sunday"),
        pytest.param("0-1", "Mon Sun", id="from Sunday"),
        pytest.param("1,3", "Mon Wed", id="two days"),
        pytest.param("*/2", "Tue Thu Sat Sun", id="every other day"),
        pytest.param("1-5/2", "Mon Wed Fri", id="every other day of some"),
        pytest.param("4/2", "Thu Sat", id="every other day from one on"),
        pytest.param("mon-fri", "Mon Tue Wed Thu Fri", id="by name"),
        pytest.param("*", "Mon Tue Wed Thu Fri Sat Sun", id="every day"),
    ],
)
def test_days_of_the_week_are_numbered_as_in_crontab(days: str, expected: str) -> None:
    """APScheduler counts from Monday."""
    trigger, at, found = _trigger(Cron(f"0 6 * * {days}")), datetime(2026, 11, 16, tzinfo=UTC), []  # a Monday
    while (at := trigger.get_next_fire_time(None, at)) < datetime(2026, 11, 23, tzinfo=UTC):
        found.append(f"{at:%a}")
        at += timedelta(seconds=1)
    assert " ".join(found) == expected


@pytest.mark.parametrize("when", [Every(1.0), Cron("* * * * *")], ids=["interval", "cron"])
def test_e11_fifty_years_of_missed_runs_are_not_listed(when: Every | Cron) -> None:
    """A machine that boots in 1970 and is set later: APScheduler would list every run since then."""
    now = datetime(2026, 11, 16, tzinfo=UTC)
    trigger = _trigger(when)
    assert trigger.get_next_fire_time(datetime(1970, 1, 1, tzinfo=UTC), now) == now
    assert now < trigger.get_next_fire_time(now, now) <= now + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("when", "hours"),
    [
        pytest.param(Every(3600.0), 5.0, id="interval"),
        pytest.param(Cron("30 * * * *"), 4.5, id="every hour"),
        pytest.param(Cron("0 6 * * mon-fri"), 6.0 + 4 * 24.0, id="over no weekend"),
        pytest.param(Cron("0 6 * * 6,0"), 19 * 24.0 + 6.0, id="two days a week"),
    ],
)
def test_the_time_of_five_runs(when: Every | Cron, hours: float) -> None:
    monday = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    assert seconds_of_runs(when, 5, monday) == hours * 3600.0
