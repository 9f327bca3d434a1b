"""The unit under a real systemd."""

import re
import secrets

import pytest

from tests.systemd.machine import wait_until
from tests.systemd.service import INBOX, STATE, Service


def ingest_500(service: Service, records: list[str]) -> None:
    """Start the service and ingest 500 records; delete the file of the first 300."""
    service.start()
    service.drop(records[:300], "gone.jsonl")
    service.drop(records[300:500], "kept.jsonl")
    service.wait_for_records(500)
    service.machine.check_output(f"rm {INBOX}/gone.jsonl")


def check_resumed(service: Service, records: list[str]) -> None:
    """Ingest 100 more records; none was lost or counted twice."""
    service.drop(records[500:600], "later.jsonl")
    service.wait_for_records(600)


@pytest.mark.slow
def test_d17_results_become_an_estimate(service: Service, records: list[str]) -> None:
    """It is ready when start returns (`Type=notify`); files and folder are accessible to the group only; it exits with 0."""
    service.start()
    assert service.machine.check_output("curl --silent --fail http://127.0.0.1:9877/-/ready")
    page = service.metrics()
    assert page["cpcmon_ready"] == 1
    # The metrics of the process need access to /proc/stat.
    assert "process_start_time_seconds" in page
    wait_until(lambda: "model" in service.show("StatusText"), lambda: service.show("StatusText"))
    service.drop(records[:600], "first.jsonl")
    service.wait_for_records(600)
    found = service.value("cpcmon_estimated_accuracy_ratio", model="density", segment="all", estimator="adaptive")
    assert found is not None
    assert 0.5 < found < 1.0
    service.machine.check_output("systemctl stop cpcmon")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")
    assert service.show("ExecMainCode") == "1"  # exited, not killed
    assert "cpcmon has stopped" in service.log()


def test_a_reload_applies_a_valid_file_and_rejects_an_invalid_one(service: Service, records: list[str]) -> None:
    """`check-config` logs the line of the problem; the daemon is then not signalled."""
    service.start()
    process = service.pid
    service.configure(threshold=0.7)
    service.machine.check_output("systemctl reload cpcmon")
    service.wait_for("cpcmon_accuracy_threshold_ratio", 0.7, model="density", segment="all")
    service.configure(threshold=0.6, more="modles: []\n")
    assert service.machine.run("systemctl reload cpcmon").returncode == 1
    assert (service.show("ActiveState"), service.pid) == ("active", process)
    assert re.search(r"config\.yaml:\d+: .*'modles'", service.log())
    service.drop(records[:300], "first.jsonl")
    service.wait_for_records(300)
    assert service.value("cpcmon_accuracy_threshold_ratio", model="density", segment="all") == 0.7


def test_a_hanging_daemon_is_restarted(service: Service) -> None:
    service.change_unit("WatchdogSec=5s", "RestartSec=100ms")
    service.start()
    hung = service.pid
    service.machine.check_output(f"kill -STOP {hung}")
    service.wait_for_restarts(1)
    assert service.pid != hung
    assert "Watchdog timeout" in service.log()


def test_a_killed_daemon_is_restarted_and_resumes(service: Service, records: list[str]) -> None:
    service.change_unit("RestartSec=100ms")
    ingest_500(service, records)
    service.machine.check_output(f"kill -KILL {service.pid}")
    service.wait_for_restarts(1)
    check_resumed(service, records)


def test_it_starts_at_boot_and_resumes(service: Service, records: list[str]) -> None:
    ingest_500(service, records)
    service.machine.reboot()
    wait_until(lambda: service.show("ActiveState") == "active", service.log)
    check_resumed(service, records)


def test_an_invalid_configuration_is_not_restarted(service: Service) -> None:
    service.configure(more="modles: []\n")
    assert service.machine.run("systemctl start cpcmon").returncode == 1
    # A scheduled restart would show as activating.
    assert (service.show("ActiveState"), service.show("ExecMainStatus")) == ("failed", "2")
    assert service.show("NRestarts") == "0"
    assert re.search(r"config\.yaml:\d+: .*'modles'", service.log())
    service.configure()
    service.start()


def test_it_runs_without_privileges_and_with_a_private_state(service: Service) -> None:
    service.start()
    status = service.machine.check_output(f"cat /proc/{service.pid}/status")
    facts = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    # The range of dynamic users.
    assert 61184 <= int(facts["Uid"][0]) <= 65519
    assert (facts["CapEff"], facts["CapBnd"], facts["NoNewPrivs"]) == (["0" * 16], ["0" * 16], ["1"])
    assert facts["Seccomp"] == ["2"]
    assert service.machine.check_output(f"stat --format '%a %u' {STATE}") == f"700 {facts['Uid'][0]}"
    assert service.machine.check_output("readlink /var/lib/cpcmon") == "private/cpcmon"
    # In its mount namespace only the state is writable.
    enter = f"nsenter --target {service.pid} --mount --user --setuid {facts['Uid'][0]}"
    service.machine.check_output("install --directory --mode 777 /srv/open")
    assert service.machine.run(f"{enter} touch /srv/open/x").returncode != 0
    service.machine.check_output(f"{enter} touch {STATE}/x")
    for hidden in ("/home", "/root"):
        assert service.machine.run(f"{enter} ls {hidden}/").stdout == ""


def test_systemd_knows_the_limits_of_memory_and_ports(service: Service) -> None:
    """A drop-in for another port keeps the first. Debian 12's systemd does not enforce rules for ports: it has no BPF."""
    service.change_unit("SocketBindAllow=tcp:9900")
    service.start()
    assert (service.show("MemorySwapMax"), service.show("MemoryHigh")) == ("0", str(1800 << 20))
    assert service.show("SocketBindDeny") == "any"
    assert set(re.findall(r"\d+", service.show("SocketBindAllow"))) == {"9877", "9900"}


def test_a_credential_is_readable_by_the_daemon_only(service: Service) -> None:
    """A heartbeat URL with a token is called, and not logged."""
    machine, token = service.machine, secrets.token_hex(8)
    machine.write("/etc/cpcmon/secrets/heartbeat.url", f"http://127.0.0.1:8099/{token}\n", mode=0o600)
    service.change_unit("LoadCredential=heartbeat.url:/etc/cpcmon/secrets/heartbeat.url")
    address = "/run/credentials/cpcmon.service/heartbeat.url"
    service.configure(more=f"notify:\n  heartbeat: {{url_file: {address}, allow_http: true}}\n")
    machine.write(f"/srv/listener/{token}", "")
    machine.check_output(
        "systemd-run --quiet --unit listener python3 -m http.server --bind 127.0.0.1 --directory /srv/listener 8099"
    )
    try:
        service.start()
        listener_log = "journalctl --unit listener --output cat --no-pager"
        wait_until(
            lambda: f"GET /{token}" in machine.check_output(listener_log),
            lambda: f"{machine.check_output(listener_log)}\n{service.log()}",
        )
        assert machine.check_output(f"stat --format %a {address}") == "400"
        # `check-config` of a reload needs the same credentials.
        machine.check_output("systemctl reload cpcmon")
        wait_until(lambda: "configuration reloaded" in service.log(), service.log)
        assert token not in service.log()
    finally:
        machine.check_output("systemctl stop listener")
