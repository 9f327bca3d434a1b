"""Runs all commands of docs/deployment.md, in order, on a new machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.systemd.bundle import newer_bundle
from tests.systemd.conftest import Installation
from tests.systemd.machine import Machine, wait_until
from tests.systemd.page import steps
from tests.systemd.service import INBOX, STATE, Service
from tests.web.certificates import Authority

NEWER = "999.0"


class Operator:
    """Follows the page step by step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.left = steps()
        """The steps left."""

    def take_step(self, step: str) -> list[str]:
        """Mark the next step as done; return its blocks."""
        assert next(iter(self.left)) == step, "steps must run in the order of the page"
        return self.left.pop(step)

    def run_step(self, step: str) -> list[str]:
        """Run the commands of the next step; return the output of each block."""
        return [self._run(commands) for commands in self.take_step(step)]

    def _run(self, commands: str) -> str:
        """Run commands; repeat those that only query until they succeed."""
        if " grep " not in commands and "--grep" not in commands:
            return self.machine.check_output(commands)
        wait_until(lambda: self.machine.run(commands).returncode == 0, lambda: f"never succeeded: {commands}")
        return self.machine.check_output(commands)


@pytest.fixture
def prepared_machine(new_machine: Machine, installation: Installation, example: Path, tmp_path: Path) -> Machine:
    """A machine after the installation, with the required files and a TLS server for heartbeats."""
    machine = new_machine
    shutil.copytree(installation.bundle, machine.path("/root/cpcmon"), ignore=shutil.ignore_patterns("*.whl"))
    subprocess.run(["cp", "--archive", str(installation.software), str(machine.path("/opt/cpcmon"))], check=True)
    machine.check_output("ln --symbolic /opt/cpcmon/bin/cpcmon /usr/local/bin/cpcmon")
    shutil.copy(example / "site_a.jsonl", machine.path("/root"))
    # Few records are calibrated in half the time of all.
    labelled = (example / "validation_labelled.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    machine.write("/root/validation_labelled.jsonl", "".join(labelled[:500]))
    machine.write("/root/heartbeat.url", "https://localhost:8443/t0p-s3cret\n", mode=0o600)
    authority = Authority(tmp_path, "house")
    pair = authority.signed("heartbeats")
    for file in (authority.pair.cert, pair.cert, pair.key):
        shutil.copy(file, machine.path("/srv"))
    # As update-ca-certificates makes a system trust an authority.
    machine.check_output('cp /srv/house.crt "/etc/ssl/certs/$(openssl x509 -hash -noout -in /srv/house.crt).0"')
    machine.check_output(
        "touch /srv/t0p-s3cret; systemd-run --quiet --unit heartbeats --working-directory /srv"
        " openssl s_server -accept 127.0.0.1:8443 -WWW -cert heartbeats.crt -key heartbeats.key"
    )
    return machine


@pytest.mark.slow
def test_the_systemd_commands_work_on_a_new_machine(
    prepared_machine: Machine, installation: Installation, tmp_path: Path
) -> None:
    """The first two steps are those of the fixture, which takes the second on a machine of its own."""
    service, operator = Service(prepared_machine), Operator(prepared_machine)
    operator.take_step("Make a bundle")
    operator.take_step("Install it")
    assert installation.output.startswith("cpcmon ")
    operator.run_step("Prepare the results directory")
    (printed,) = operator.run_step("Write the configuration")
    assert "valid (1 source, 1 model, 5 alerts)" in printed

    operator.run_step("Start it")
    assert (service.show("ActiveState"), service.show("UnitFileState")) == ("active", "enabled")
    status, _, estimate = operator.run_step("See that it works")
    assert "is ready on" in status
    assert 'model="density",segment="all"' in estimate
    assert service.value("cpcmon_records_total") == 2000

    operator.run_step("Change the configuration")
    assert service.value("cpcmon_config_last_reload_successful") == 1
    operator.run_step("Give it secrets")
    service.wait_for("cpcmon_heartbeat_sent_total", 1)
    assert "t0p-s3cret" not in service.log()
    assert not prepared_machine.path("/root/heartbeat.url").exists()
    (printed,) = operator.run_step("Let Prometheus in")
    assert "ready" in printed

    operator.run_step("Back up and restore")
    assert prepared_machine.check_output("stat --format %a /root/cpcmon-state.tar.gz") == "600"
    shutil.copytree(newer_bundle(installation.bundle, tmp_path, NEWER), prepared_machine.path("/root/cpcmon-new"))
    (printed,) = operator.run_step("Upgrade")
    assert printed == f"cpcmon {NEWER}"
    # Over all of this the 2,000 records were counted once.
    counters = prepared_machine.check_output(f"systemctl stop cpcmon && cpcmon state {STATE}")
    assert "2,000  records_total results density" in counters

    operator.run_step("Remove it")
    assert not operator.left
    assert service.show("LoadState") == "not-found"
    for gone in ("/opt/cpcmon", "/usr/local/bin/cpcmon", "/etc/cpcmon", "/var/lib/cpcmon", STATE):
        assert prepared_machine.run(f"test -e {gone} -o -L {gone}").returncode == 1
    assert prepared_machine.check_output(f"ls {INBOX}") == "site_a.jsonl"


def test_all_shell_blocks_are_in_steps() -> None:
    """The only other block shows a failure."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").partition("## Kubernetes")[0]
    assert text.count("\n```sh\n") == sum(len(blocks) for blocks in steps().values())
    assert text.count("\n```") - 2 * text.count("\n```sh\n") == 2 * text.count("\n```console\n") == 2
