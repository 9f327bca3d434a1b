"""cpcmon as a systemd service of a machine."""

from tests.daemon.process import one, series
from tests.systemd.machine import Machine, wait_until

INBOX = "/srv/results/density"
CONFIG = "/etc/cpcmon/config.yaml"
DROP_INS = "/etc/systemd/system/cpcmon.service.d"
STATE = "/var/lib/private/cpcmon"

_CONFIG = """\
storage: {path: /var/lib/cpcmon}
sources:
  - {name: results, type: directory, path: /srv/results/density, poll: 0.5s}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    window: {records: 1000}
    evaluate: {every: 1s}
    alerts:
      - {name: accuracy_low, below: 0.8, for: 30m}
"""


class Service:
    """The unit, its configuration, log and metrics."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def reset(self) -> None:
        """Stop the service; remove state, results and drop-ins."""
        self.machine.check_output(
            "systemctl stop cpcmon && systemctl reset-failed cpcmon; systemctl clean --what=state cpcmon || true;"
            f" rm -rf {INBOX}/* {DROP_INS}/test.conf; systemctl daemon-reload; journalctl --rotate --vacuum-time=1s -q"
        )
        self.configure()

    def configure(self, *, more: str = "", threshold: float = 0.8) -> None:
        """Write the configuration."""
        self.machine.write(CONFIG, _CONFIG.replace("0.8", str(threshold)) + more)

    def change_unit(self, *settings: str) -> None:
        """Write a drop-in with settings of the unit."""
        self.machine.write(f"{DROP_INS}/test.conf", "\n".join(["[Service]", *settings, ""]))
        self.machine.check_output("systemctl daemon-reload")

    def start(self) -> None:
        """Start the service, and wait until it is ready."""
        self.machine.check_output("systemctl start cpcmon")

    def show(self, name: str) -> str:
        """Return a property of the unit."""
        return self.machine.check_output(f"systemctl show cpcmon --value --property {name}")

    @property
    def pid(self) -> int:
        """The process id on the machine."""
        return int(self.show("MainPID"))

    def log(self) -> str:
        """Return the journal of the unit."""
        return self.machine.check_output("journalctl --unit cpcmon --no-pager --output cat")

    def metrics(self) -> dict[str, float]:
        """Return all samples; none while the service does not answer."""
        return series(self.machine.run("curl --silent --fail http://127.0.0.1:9877/metrics").stdout)

    def drop(self, records: list[str], name: str) -> None:
        """Move a file of results into the inbox, readable by the group only."""
        self.machine.write(f"{INBOX}/.{name}", "\n".join([*records, ""]), mode=0o640)
        self.machine.check_output(f"chgrp results {INBOX}/.{name} && mv {INBOX}/.{name} {INBOX}/{name}")

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a series; None if it is absent."""
        return one(self.metrics(), name, **labels)

    def wait_for(self, name: str, value: float, **labels: str) -> None:
        """Wait until a series has a value."""
        wait_until(
            lambda: self.value(name, **labels) == value,
            lambda: f"{name} is {self.value(name, **labels)}, not {value}:\n{self.log()}",
        )

    def wait_for_records(self, count: int) -> None:
        """Wait until so many records were read and evaluated."""
        self.wait_for("cpcmon_records_total", count, model="density")
        self.wait_for("cpcmon_window_records", count, model="density", segment="all")

    def wait_for_restarts(self, count: int) -> None:
        """Wait until systemd has restarted the service so often, and it is ready."""
        wait_until(
            lambda: int(self.show("NRestarts")) >= count and self.show("ActiveState") == "active",
            lambda: f"{self.machine.run('systemctl status cpcmon').stdout}\n{self.log()}",
        )
