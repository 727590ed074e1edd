"""Where the real data lies, and settings for hypothesis."""

from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent

# Machines that run tests are shared and slow at times: a deadline would test the machine.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples for the same code: a change fails for what it does, not for what was there before.
settings.register_profile("pairrank", settings.get_profile("explore"), derandomize=True)
settings.load_profile("pairrank")

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _AtOnce:
    """Says what failed, and why, as it happens: the suite takes a quarter of an hour, and may be stopped before."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.terminal.write_line(f"\n{report.nodeid}\n{report.longreprtext}", red=True)
            self.terminal.flush()  # into a pipe, too


@pytest.hookimpl(trylast=True)  # the terminal's own comes first
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # a worker of xdist has none
        config.pluginmanager.register(_AtOnce(terminal))


def _shared(name: str) -> Path:
    folder = Path(os.environ.get("PAIRRANK_DATA", ROOT.parent / "shared" / "data"))
    return folder if name == "data" else folder.parent / name


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with MQ2008 and the MSLR sample."""
    folder = _shared("data")
    if not (folder / "MQ2008").is_dir():
        pytest.skip(f"real data not found: set PAIRRANK_DATA to a folder that holds MQ2008 (looked in {folder})")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with traces of the authors' program."""
    folder = _shared("reference")
    if not folder.is_dir():
        pytest.skip("traces of the authors' program not found beside the checkout")
    return folder


@pytest.fixture
def in_a_fork() -> Callable[..., int | None]:
    """Calls a function in a forked process, and answers its exit code; None where it did not come to an end."""
    if not hasattr(os, "fork"):
        pytest.skip("nothing forks here")

    def call(function: Callable[..., object], *args: object) -> int | None:
        child = multiprocessing.get_context("fork").Process(target=function, args=args)
        child.start()
        child.join(20.0)
        code = child.exitcode
        child.kill()
        return code

    return call


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A folder by its name, for all processes of a run: the first that asks for it has it filled, the others wait."""
    base = tmp_path_factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, fill: Callable[[Path], object]) -> Path:
        with open(place / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / name).exists():
                unfinished = place / f"{name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(place / name)
        return place / name

    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real service listens, one for a file of tests."""
    from service.tree import Tree

    tree = Tree(f"sqlite:///{tmp_path_factory.mktemp('service') / 'store.db'}")
    yield f"http://127.0.0.1:{tree._port}"
    assert tree.stop() == 0


@contextmanager
def _no_loop_of_playwright(item: pytest.Item) -> Iterator[None]:
    """Once a process has a browser, playwright's event loop counts as running for good, and no other can be started."""
    running = asyncio._get_running_loop()
    if running is None or "chromium" in getattr(item, "fixturenames", ()):
        yield
        return
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _no_loop_of_playwright(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _no_loop_of_playwright(item):
        return (yield)


# Nothing of Chromium's own may go out, and a container has no sandbox to offer.
FLAGS = [
    "--no-sandbox",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # a name that was made to mean this machine
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A real browser; one for all tests of a process, since playwright allows no second."""
    path = os.environ.get("PAIRRANK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium: install Debian's package chromium, or set PAIRRANK_CHROMIUM to its path")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
