"""`--config.watch` of the real process, with a mounted ConfigMap."""

import signal
from pathlib import Path

import pytest

from monitor.daemon.daemon import Daemon, RunOptions
from tests.daemon.conftest import Site
from tests.daemon.process import Process, running

pytestmark = pytest.mark.slow

RELOADED = "configuration reloaded"
FAILED = "reload failed, keeping the previous configuration"
STILL = 'cpcmon_alert_firing{alert="still",model="density",segment="all",severity="warning"}'
SUCCESSFUL = "cpcmon_config_last_reload_successful"


class ConfigMap:
    """A directory that changes as a mounted ConfigMap does: the link `..data` is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir()

    @property
    def file(self) -> Path:
        """The configuration, a link through `..data`."""
        return self._folder / "config.yaml"

    def put(self, text: str) -> None:
        """Replace the content as the kubelet does."""
        self._count += 1
        version = self._folder / f"..version_{self._count}"
        version.mkdir()
        (version / "config.yaml").write_text(text, encoding="utf-8")
        (self._folder / "..data_tmp").symlink_to(version.name)
        (self._folder / "..data_tmp").replace(self._folder / "..data")
        if not self.file.is_symlink():
            self.file.symlink_to("..data/config.yaml")


def _mount(site: Site) -> tuple[ConfigMap, str]:
    """Return a ConfigMap with the site's configuration with absolute paths, and its text."""
    text = site.config.read_text(encoding="utf-8")
    for name in ("state", "inbox", "density.ref"):
        text = text.replace(f": {name}", f": {site.folder / name}")
    mounted = ConfigMap(site.folder / "mounted")
    mounted.put(text)
    return mounted, text


def _count(process: Process, text: str) -> int:
    return sum(text in line for line in process.lines)


def test_a_changed_configmap_is_reloaded_and_an_invalid_one_is_reported_once(site: Site) -> None:
    mounted, text = _mount(site)
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        mounted.put(text.replace("silent, after: 2h", "still, after: 3h"))
        process.wait_for_line(RELOADED)
        process.wait_for(STILL, 0.0)

        mounted.put(text.replace("minimum_records", "minimum_recods"))
        assert "did you mean minimum_records?" in process.wait_for_line(FAILED)
        assert STILL in process.wait_for(SUCCESSFUL, 0.0)

        mounted.put(text)
        process.wait_for_line(RELOADED, 2)
        process.wait_for(SUCCESSFUL, 1.0)
        assert (_count(process, FAILED), _count(process, RELOADED)) == (1, 2)
        assert process.stop() == 0


def test_a_replaced_reference_is_reloaded(site: Site) -> None:
    mounted, _ = _mount(site)
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        reference = site.folder / "density.ref"
        (site.folder / "new.ref").write_bytes(reference.read_bytes())
        (site.folder / "new.ref").replace(reference)
        process.wait_for_line(RELOADED)


def test_a_reference_that_arrives_after_its_configuration_is_reloaded(site: Site) -> None:
    """Copied in two parts; the first is not a valid reference."""
    mounted, text = _mount(site)
    content, late = (site.folder / "density.ref").read_bytes(), site.folder / "late.ref"
    with running(mounted.file, "--config.watch") as process:
        process.wait_for_line("is ready on")
        mounted.put(text.replace("density.ref", late.name))
        process.wait_for_line(FAILED)
        late.write_bytes(content[: len(content) // 2])
        process.wait_for_line(FAILED, 2)
        late.write_bytes(content)
        process.wait_for_line(RELOADED)
        process.wait_for(SUCCESSFUL, 1.0)
        assert process.stop() == 0


def test_a_reference_replaced_before_the_daemon_is_ready_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    reference = site.folder / "density.ref"
    daemon = Daemon(RunOptions(site.config, "127.0.0.1:0", watch_config=True))
    monkeypatch.setattr(daemon, "_loop", lambda _: None)
    reference.with_name("new").write_bytes(reference.read_bytes())
    reference.with_name("new").replace(reference)
    daemon.run()
    assert [daemon._watch.changed(1000.0 + 2 * check) for check in range(3)] == [False, True, False]  # noqa: SLF001
