"""`--config.watch`, the real process: a ConfigMap that Kubernetes changes is taken over without a signal."""

import signal
import time
from pathlib import Path

import pytest

from monitor.daemon.daemon import Daemon, RunOptions
from tests.daemon.conftest import Site
from tests.daemon.process import Process, running

pytestmark = pytest.mark.slow

TAKEN = "the configuration was taken over"
REFUSED = "reload failed, keeping the previous configuration"
STILL = 'cpcmon_alert_firing{alert="still",model="density",segment="all",severity="warning"}'
SUCCESSFUL = "cpcmon_config_last_reload_successful"


class ConfigMap:
    """A folder in which a file changes as in a mounted ConfigMap: `..data` is made to point to another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir()

    @property
    def file(self) -> Path:
        """The configuration: a link through `..data`."""
        return self._folder / "config.yaml"

    def put(self, text: str) -> None:
        """Put a content in place as the kubelet does."""
        self._count += 1
        version = self._folder / f"..version_{self._count}"
        version.mkdir()
        (version / "config.yaml").write_text(text, encoding="utf-8")
        (self._folder / "..data_tmp").symlink_to(version.name)
        (self._folder / "..data_tmp").replace(self._folder / "..data")
        if not self.file.is_symlink():
            self.file.symlink_to("..data/config.yaml")


def _mounted(site: Site) -> tuple[ConfigMap, str]:
    """Return a ConfigMap with the site's configuration, its paths written in full, and that text."""
    text = site.config.read_text(encoding="utf-8")
    for name in ("state", "inbox", "density.ref"):
        text = text.replace(f": {name}", f": {site.folder / name}")
    mounted = ConfigMap(site.folder / "mounted")
    mounted.put(text)
    return mounted, text


def _count(process: Process, text: str) -> int:
    return sum(text in line for line in process.lines)


def test_a_changed_configmap_is_taken_over_and_a_bad_one_is_told_once(site: Site) -> None:
    """The one before stays in use, and the next good one is taken over again."""
    mounted, text = _mounted(site)
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        mounted.put(text.replace("silent, after: 2h", "still, after: 3h"))
        process.wait_for_line(TAKEN)
        process.wait_for(STILL, 0.0)

        mounted.put(text.replace("minimum_records", "minimum_recods"))
        assert "did you mean minimum_records?" in process.wait_for_line(REFUSED)
        assert STILL in process.wait_for(SUCCESSFUL, 0.0)

        mounted.put(text)
        process.wait_for_line(TAKEN, 2)
        process.wait_for(SUCCESSFUL, 1.0)
        # By now it has looked several times at each of them.
        assert (_count(process, REFUSED), _count(process, TAKEN)) == (1, 2)
        assert process.stop() == 0


def test_a_replaced_reference_is_taken_over(site: Site) -> None:
    mounted, _ = _mounted(site)
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        reference = site.folder / "density.ref"
        (site.folder / "new.ref").write_bytes(reference.read_bytes())
        (site.folder / "new.ref").replace(reference)
        process.wait_for_line(TAKEN)


def test_without_the_flag_a_changed_file_waits_for_a_signal(site: Site) -> None:
    """The one reload that there is then came from the signal."""
    mounted, text = _mounted(site)
    with running(mounted.file) as process:
        process.wait_for_line("is ready on")
        mounted.put(text.replace("silent, after: 2h", "still, after: 3h"))
        # At one evaluation a second, a watch would have looked often enough by then.
        deadline = time.monotonic() + 60
        while process.metrics().get('cpcmon_evaluations_total{model="density"}', 0) < 8:
            assert time.monotonic() < deadline, process.log
            time.sleep(0.2)
        assert _count(process, TAKEN) == 0
        process.tell(signal.SIGHUP)
        process.wait_for_line(TAKEN)
        assert process.stop() == 0


def test_a_reference_that_arrives_after_the_configuration_that_names_it_is_taken_over(site: Site) -> None:
    """Copied in two parts, the first of which is no reference."""
    mounted, text = _mounted(site)
    content, late = (site.folder / "density.ref").read_bytes(), site.folder / "late.ref"
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        mounted.put(text.replace("density.ref", late.name))
        process.wait_for_line(REFUSED)
        late.write_bytes(content[: len(content) // 2])
        process.wait_for_line(REFUSED, 2)
        late.write_bytes(content)
        process.wait_for_line(TAKEN)
        process.wait_for(SUCCESSFUL, 1.0)
        assert process.stop() == 0


def test_a_reference_that_is_replaced_before_the_daemon_is_ready_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been read by then, and windows are being rebuilt."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # they are this process's own
    reference = site.folder / "density.ref"
    daemon = Daemon(RunOptions(site.config, "127.0.0.1:0", watch_config=True))
    monkeypatch.setattr(daemon, "_wait", lambda _: None)
    reference.with_name("new").write_bytes(reference.read_bytes())
    reference.with_name("new").replace(reference)
    daemon.run()
    assert [daemon._watch.changed(1000.0 + 2 * look) for look in range(3)] == [False, True, False]  # noqa: SLF001
