"""The unit under a real systemd, on a machine that was booted for it."""

import re
import secrets

import pytest

from tests.systemd.machine import wait_until
from tests.systemd.service import INBOX, STATE, Service


def has_counted_some(service: Service, records: list[str]) -> None:
    """Start it and let it count 500 records; 300 of them are no longer there to be read again, and 200 are."""
    service.start()
    service.drop(records[:300], "gone.jsonl")
    service.drop(records[300:500], "kept.jsonl")
    service.wait_for_records(500)
    service.machine.done(f"rm {INBOX}/gone.jsonl")


def goes_on(service: Service, records: list[str]) -> None:
    """See that nothing of it was lost and nothing is counted again, now that more comes."""
    service.drop(records[500:600], "later.jsonl")
    service.wait_for_records(600)


@pytest.mark.slow
def test_it_is_ready_when_start_returns_and_can_be_scraped(service: Service) -> None:
    """Type=notify: systemd waits for the daemon's own word. The process's metrics need /proc/stat, which it must see."""
    service.start()
    assert service.machine.done("curl --silent --fail http://127.0.0.1:9877/-/ready")
    page = service.metrics()
    assert page["cpcmon_ready"] == 1
    assert "process_start_time_seconds" in page
    wait_until(lambda: "model" in service.show("StatusText"), lambda: service.show("StatusText"))


def test_results_that_are_dropped_become_an_estimate(service: Service, records: list[str]) -> None:
    """Files that only the group may read, in a folder that only the group may enter."""
    service.start()
    service.drop(records[:600], "first.jsonl")
    service.wait_for_records(600)
    found = service.value("cpcmon_estimated_accuracy_ratio", model="density", segment="all", estimator="consensus")
    assert found is not None
    assert 0.5 < found < 1.0


def test_what_was_counted_is_kept_over_a_restart_and_counted_once(service: Service, records: list[str]) -> None:
    has_counted_some(service, records)
    service.machine.done("systemctl restart cpcmon")
    goes_on(service, records)


def test_it_stops_in_good_order(service: Service) -> None:
    service.start()
    service.machine.done("systemctl stop cpcmon")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    assert service.show("ExecMainCode") == "1"  # exited, not killed
    assert "cpcmon has stopped" in service.log()


def test_a_reload_takes_over_a_good_file(service: Service) -> None:
    service.start()
    process = service.pid
    service.configure(threshold=0.7)
    service.machine.done("systemctl reload cpcmon")
    service.wait_for("cpcmon_accuracy_threshold_ratio", 0.7, model="density", segment="all")
    assert service.pid == process


def test_a_reload_fails_on_a_bad_file_and_the_old_one_goes_on(service: Service, records: list[str]) -> None:
    """The journal says which line; the daemon never hears of it."""
    service.start()
    process = service.pid
    service.configure(threshold=0.7, more="modles: []\n")
    assert service.machine.run("systemctl reload cpcmon").returncode == 1
    assert (service.show("ActiveState"), service.pid) == ("active", process)
    assert re.search(r"config\.yaml:\d+: .*'modles'", service.log())
    service.drop(records[:300], "first.jsonl")
    service.wait_for_records(300)
    assert service.value("cpcmon_accuracy_threshold_ratio", model="density", segment="all") == 0.8


def test_a_daemon_that_hangs_is_killed_and_goes_on_where_it_was(service: Service, records: list[str]) -> None:
    service.change_unit("WatchdogSec=5s", "RestartSec=100ms")
    has_counted_some(service, records)
    hung = service.pid
    service.machine.done(f"kill -STOP {hung}")
    service.wait_for_restarts(1)
    assert service.pid != hung
    assert "Watchdog timeout" in service.log()
    goes_on(service, records)


def test_a_daemon_that_is_killed_is_started_again_and_goes_on_where_it_was(
    service: Service, records: list[str]
) -> None:
    service.change_unit("RestartSec=100ms")
    has_counted_some(service, records)
    service.machine.done(f"kill -KILL {service.pid}")
    service.wait_for_restarts(1)
    goes_on(service, records)


def test_it_comes_back_when_the_server_boots_again(service: Service, records: list[str]) -> None:
    """Enabled as the page says; nobody types anything."""
    has_counted_some(service, records)
    service.machine.reboot()
    wait_until(lambda: service.show("ActiveState") == "active", service.log)
    goes_on(service, records)


def test_a_mistake_in_the_configuration_is_not_started_again_and_again(service: Service) -> None:
    """It is mended by a person, and then started by one."""
    service.configure(more="modles: []\n")
    assert service.machine.run("systemctl start cpcmon").returncode == 1
    # A start that is to come would show as activating.
    assert (service.show("ActiveState"), service.show("ExecMainStatus")) == ("failed", "2")
    assert service.show("NRestarts") == "0"
    assert re.search(r"config\.yaml:\d+: .*'modles'", service.log())
    service.configure()
    service.start()


def test_it_is_nobody_with_no_rights_and_one_private_folder(service: Service) -> None:
    service.start()
    status = service.machine.done(f"cat /proc/{service.pid}/status")
    facts = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    # The range that systemd takes dynamic users from.
    assert 61184 <= int(facts["Uid"][0]) <= 65519
    assert (facts["CapEff"], facts["CapBnd"], facts["NoNewPrivs"]) == (["0" * 16], ["0" * 16], ["1"])
    assert facts["Seccomp"] == ["2"]
    assert service.machine.done(f"stat --format '%a %u' {STATE}") == f"700 {facts['Uid'][0]}"
    assert service.machine.done("readlink /var/lib/cpcmon") == "private/cpcmon"
    # Its own view of the machine, in which it can write to its state and nowhere else that lasts.
    inside = f"nsenter --target {service.pid} --mount --user --setuid {facts['Uid'][0]}"
    service.machine.done("install --directory --mode 777 /srv/open")
    assert service.machine.run(f"{inside} touch /srv/open/x").returncode != 0
    service.machine.done(f"{inside} touch {STATE}/x")
    for hidden in ("/home", "/root"):
        assert service.machine.run(f"{inside} ls {hidden}/").stdout == ""


def test_systemd_understands_all_of_it_and_finds_it_hardened(service: Service) -> None:
    """Not a copy with another program, but the unit as it is installed, with what the page adds."""
    ran = service.machine.run("systemd-analyze verify --man=no /etc/systemd/system/cpcmon.service")
    assert (ran.returncode, ran.stderr) == (0, "")
    said = service.machine.done("systemd-analyze security --no-pager cpcmon.service")
    found = re.search(r"Overall exposure level for cpcmon.service: (\d+\.\d)", said)
    assert found, said
    assert float(found.group(1)) <= 1.5


def test_a_credential_reaches_the_daemon_and_nobody_else(service: Service) -> None:
    """The address of a heartbeat, with a token in it: called, and in no log."""
    machine, token = service.machine, secrets.token_hex(8)
    machine.write("/etc/cpcmon/secrets/heartbeat.url", f"http://127.0.0.1:8099/{token}\n", mode=0o600)
    service.change_unit("LoadCredential=heartbeat.url:/etc/cpcmon/secrets/heartbeat.url")
    address = "/run/credentials/cpcmon.service/heartbeat.url"
    service.configure(more=f"notify:\n  heartbeat: {{url_file: {address}, allow_http: true}}\n")
    machine.write(f"/srv/listener/{token}", "")
    machine.done(
        "systemd-run --quiet --unit listener python3 -m http.server --bind 127.0.0.1 --directory /srv/listener 8099"
    )
    try:
        service.start()
        heard = "journalctl --unit listener --output cat --no-pager"
        wait_until(lambda: f"GET /{token}" in machine.done(heard), lambda: f"{machine.done(heard)}\n{service.log()}")
        assert machine.done(f"stat --format %a {address}") == "400"
        # A reload checks with the same credentials; without them it could not tell a good file from a bad one.
        machine.done("systemctl reload cpcmon")
        wait_until(lambda: "configuration reloaded" in service.log(), service.log)
        assert token not in service.log()
    finally:
        machine.done("systemctl stop listener")
