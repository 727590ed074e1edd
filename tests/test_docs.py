"""The documentation: every block of code runs, in the order of its page and in one folder.

``python`` runs as it is, ``bash`` in a shell. ``console`` holds what a reader types who has real data, hours, or a
server that stays: it runs too, with what the tables below say. ``json`` must parse; ``text`` and ``html`` are not code.
``text`` right under ``python`` is what that block prints.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pairrank.cli import main
from service.cluster import postgres_bin, running

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
# Not the reports that `pairrank reproduce` wrote, results/NAME/index.md; they quote commands and hold no code.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.parent != DOCS / "results")
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
RUN = {"python", "bash", "console"}
NOT_CODE = {"json", "text", "html", "ts"}  # TypeScript: tests/test_clients.py runs it
# Pages whose blocks another test runs.
ELSEWHERE = {
    "quickstart-service.md": "tests/service/test_quickstart.py",
    "guide/solr.md": "tests/export/test_solr.py",
}
# How many blocks of a page print what hangs on time or on another server, so that nothing stands under them.
NO_OUTPUT = {
    "guide/clients.md": 1,  # whether the click is learned by then
    "guide/launch.md": 3,  # what the learner has come to while users go on
    "guide/solr.md": 2,  # scores of the Solr at hand
}
# Pages about another package, each an extra of that name: what to import there.
PACKAGES = {
    "langchain": "langchain_core",
    "llamaindex": "llama_index.core",
    "haystack": "haystack",
    "lancedb": "lancedb",
    "pyterrier": "pyterrier",
    "rerankers": "rerankers",
}
# The only commands that do not run.
NOT_RUN = {
    "pip install": "tests/test_distribution.py installs, into environments of its own",
    "pairrank demo": "tests/lab/test_paper.py runs it",
    "pairrank ablate MQ2008 --study hostile": "results/quality.md has it on other data",
    "pairrank ablate MQ2008 --study drift": "results/quality.md has it on other data",
}

# What a console block takes for granted, and what stands for it here. Data sets are folders of these names with small
# synthetic data in LETOR format.
DATA_SETS = ("MQ2008", "MSLR-WEB10K", "MSLR-sample")
INSTEAD = {
    "…/v1": "http://127.0.0.1:{port}/v1",  # the reader's service
    "8000": "{port}",  # may be taken
    "1200": "3",  # a version that the store below has
    "/var/lib/pairrank": "{folder}",
    "postgresql://user@host/pairrank": "{postgres}",
    "@1-5": "@1",  # folds of the data sets below
    "synthetic:linear": "synthetic:tiny",
    "synthetic:nonlinear": '"synthetic:tiny(seed=2)"',
    " --address auto": "",  # a Ray cluster of its own in place of the reader's
}
# Options added to console commands so that they end soon; of two, the last counts.
SMALL = "--rounds 5 --seeds 2"
ADDED = {
    "pairrank simulate": SMALL,
    "pairrank reproduce": f"{SMALL} --clicks navigational --jobs 1",
    "pairrank tune": "--rounds 5 --seeds 1 --trials 2 --clicks navigational --engine serial",
    "pairrank ablate": f"{SMALL} --clicks navigational --engine serial",
    "pairrank quality": f"{SMALL} --clicks navigational --rival pdgd --engine serial",
    "python benchmarks/calibration.py": f"{SMALL} --clicks navigational --jobs 1",
    "pairrank trial": "--experiments 1 --lists 200 --null 1 --null-lists 100 --logs 1 --log-lists 110 --launches 1 "
    "--launch-lists 50 --learn 20 --k 4 --clicks navigational --jobs 1",
    "pairrank serve": "--port {port}",
    "pairrank play": "--no-browser --port {port}",
    "curl": "--silent --show-error --fail-with-body",
}
SERVERS = ("pairrank serve", "pairrank play")


class Block(NamedTuple):
    language: str
    code: str
    output: str | None = None  # what stands right under it as text


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    outputs = {
        fence.end(): following[3]
        for fence, following in pairwise(fences)
        if following[2] == "text" and not text[fence.end() : following.start()].strip()
    }
    return [Block(f[2], re.sub(rf"(?m)^{f[1]}", "", f[3]), outputs.get(f.end())) for f in fences]


def same(told: str, printed: str) -> bool:
    """Whether a page tells what was printed: the same words, and numbers that are near, since they follow defaults."""
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
    if number.sub("#", told).split() != number.sub("#", printed).split():
        return False
    pairs = zip(map(float, number.findall(told)), map(float, number.findall(printed)), strict=True)
    return all(abs(a - b) <= max(0.3 * abs(b), 0.01) for a, b in pairs)


RUNNABLE = [
    page for page in PAGES if name(page) not in ELSEWHERE and any(block.language in RUN for block in blocks(page))
]


def test_there_is_something_to_run() -> None:
    assert len(RUNNABLE) >= 10
    assert sum(block.language in RUN for page in RUNNABLE for block in blocks(page)) >= 50
    assert all(Path(page).stem in (ROOT / test).read_text() for page, test in ELSEWHERE.items())
    text = "".join(page.read_text(encoding="utf-8") for page in RUNNABLE)
    commands = [line for page in RUNNABLE for line in commands_of(page)]
    assert all(word in text for word in (*INSTEAD, *DATA_SETS, *NOT_RUN)), "a table has a row too many"
    assert all(any(line.startswith(start) for line in commands) for start in ADDED), "a table has a row too many"


def commands_of(page: Path) -> list[str]:
    return [
        line.removeprefix("$ ")
        for block in blocks(page)
        if block.language == "console"
        for line in block.code.splitlines()
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= RUN | NOT_CODE
    # A fence that the pattern does not see would be a block that is never run.
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page))
    for block in blocks(page):
        if block.language == "json":
            for text in block.code.splitlines() if block.code.count("\n{") else [block.code]:
                json.loads(text)
        if block.language == "console":
            assert all(line.startswith("$ ") for line in block.code.splitlines())


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
def test_what_a_block_prints_stands_under_it(page: Path) -> None:
    silent = [b for b in blocks(page) if b.language == "python" and "print(" in b.code and b.output is None]
    assert len(silent) == (0 if page == README else NO_OUTPUT.get(name(page), 0))


@dataclass
class Session:
    """A reader at one page: a folder, the names of its Python, and the servers that were started on the way."""

    folder: Path
    postgres: str | None
    python: dict[str, object]
    port: int = field(default_factory=lambda: free_port())
    servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, block: Block, page: str) -> None:
        if block.language == "python":
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(block.code.replace("8000", str(self.port)), page, "exec"), self.python)
            if block.output is not None:
                assert same(block.output, printed.getvalue()), f"{page} says\n{block.output}\nand\n{printed.getvalue()}"
        elif block.language == "bash":
            lines = [line for line in block.code.splitlines() if not line.startswith(tuple(NOT_RUN))]
            if all(map(plain, lines)):
                for line in lines:
                    finish(shlex.split(line, comments=True))
            else:
                finish(["bash", "-euo", "pipefail", "-c", "\n".join(lines)])
            if "--revoke" in block.code:
                self.wait_for_no_keys()
        elif block.language == "console":
            for line in block.code.splitlines():
                self.command(line.removeprefix("$ "))

    def command(self, line: str) -> None:
        """Run one line of a console block, by the tables above; a server keeps running."""
        if line.startswith(tuple(NOT_RUN)):
            return
        if "postgresql:" in line and self.postgres is None:
            return  # this machine has no PostgreSQL; tests that need one are skipped aloud elsewhere
        added = next((options for start, options in ADDED.items() if line.startswith(start)), "")
        serves = line.startswith(SERVERS)
        for word, here in INSTEAD.items():
            line = line.replace(word, here)
        port = free_port() if serves and self.servers else self.port
        words = [*shlex.split(line, comments=True), *added.split()]
        values = {"port": str(port), "folder": str(self.folder), "postgres": str(self.postgres)}
        for value, here in values.items():
            words = [word.replace(f"{{{value}}}", here) for word in words]
        if serves:
            self.serve(words)
        else:
            finish(words)

    def wait_for_no_keys(self) -> None:
        """Until the first server has seen that the last key is gone: a worker asks the store now and then only."""
        for _ in range(100):
            try:
                urlopen(f"http://127.0.0.1:{self.port}/v1/rankers").close()
                return
            except HTTPError as problem:
                problem.close()
                time.sleep(0.1)
        raise AssertionError("a service whose last key was revoked still asks for one")

    def serve(self, words: list[str]) -> None:
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.servers.append(server)
        assert server.stdout is not None
        said = ""
        while "http://" not in said:
            line = server.stdout.readline()
            assert line, f"{words} ended: {said}"
            said += line

    def end(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        ended = [(server.args, server.wait(60)) for server in self.servers]
        for server in self.servers:
            assert server.stdout is not None
            server.stdout.close()
        assert [args for args, code in ended if code != 0] == []


def plain(line: str) -> bool:
    """Whether a line is one command of ours of which a shell would make the same words."""
    words = shlex.split(line, comments=True)
    told = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")  # each of these is a word here, unless quoted
    told.whitespace_split = True
    if words[:1] != ["pairrank"] or words != list(told) or any(set(word) <= set("();<>|&") for word in words):
        return False
    return not set("$`*?[]{}~!\\") & set("".join(words))


def test_what_a_shell_acts_on_is_left_to_it() -> None:
    assert plain("pairrank fit a --ranker 'pairrank(model=additive)' --out b  # (why) & *")
    for rest in ("(x)", "$HOME", '"$(ls)"', "*.json", "> out", "| head", "&", "; ls", "<in", "~/a", "{a,b}", "`ls`"):
        assert not plain(f"pairrank simulate {rest}")
    assert not plain("ls small")


def finish(words: list[str]) -> None:
    """Run a command to its end; ours in this process, since to start one costs more than most commands."""
    if words[0] == "pairrank":
        raw = io.BytesIO()
        said = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)  # some commands write bytes
        with redirect_stdout(said), redirect_stderr(said):
            try:
                code: str | int | None = main(words[1:])
            except SystemExit as end:  # of --help
                code = end.code
        told = raw.getvalue().decode()
    else:
        done = subprocess.run(words, capture_output=True, text=True)
        code, told = done.returncode, done.stdout + done.stderr
    assert code == 0, f"{shlex.join(words)}\n{told}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of a data set, with the synthetic one in it."""
    from pairrank.data import load
    from pairrank.data.letor import write_letor

    folder = tmp_path_factory.mktemp("data")
    (folder / "Fold1").mkdir()
    for split in ("train", "vali", "test"):
        write_letor(load("synthetic:tiny", split), folder / "Fold1" / f"{split}.txt")
    return folder


@pytest.fixture
def session(tmp_path: Path, small_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    for data_set in DATA_SETS:
        (tmp_path / data_set).symlink_to(small_data, target_is_directory=True)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PAIRRANK_CACHE", str(tmp_path / "cache"))
    # To load compiled code takes a second in each of hundreds of processes, and five rounds have no use for it.
    monkeypatch.setenv("PAIRRANK_COMPILED", "0")
    # Dataclasses look their module up by its name.
    module = type(sys)("page")
    monkeypatch.setitem(sys.modules, "page", module)
    session = Session(tmp_path, None, module.__dict__)
    try:
        yield session
    finally:
        session.end()


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_every_block_runs(page: Path, session: Session, request: pytest.FixtureRequest) -> None:
    if package := PACKAGES.get(page.stem):
        pytest.importorskip(package, reason=f"pip install 'pairrank[{page.stem}]'")
    if name(page) == "operations.md":
        make_store("pairrank.db")
        session.postgres = request.getfixturevalue("guarded_postgres")
    for block in blocks(page):
        session.run(block, name(page))


@pytest.fixture
def guarded_postgres() -> Iterator[str | None]:
    """The URL of a PostgreSQL store that has a key, as all but loopback must; None where there is no server."""
    binaries = postgres_bin()
    if binaries is None:
        yield None
        return
    with running(binaries) as server:
        url = server.new_database()
        finish(["pairrank", "store", "keys", url, "--add", "shop", "--role", "admin"])
        yield url


def make_store(path: str) -> None:
    """A store with a ranker that has learned something."""
    from pairrank.service.app import make_app

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient
    documents = [{"id": "a", "features": [0.0, 1.0]}, {"id": "b", "features": [1.0, 0.0]}]
    with TestClient(make_app(path, learner=True), "http://127.0.0.1") as client:
        client.put("/v1/rankers/shop", json={"n_features": 2})
        for _ in range(3):
            shown = client.post("/v1/rankers/shop/rank", json={"documents": documents}).json()
            click = {"impression_id": shown["impression_id"], "clicks": ["a"]}
            assert client.post("/v1/rankers/shop/feedback", json=click).json() == {"status": "accepted"}


@pytest.mark.slow
def test_the_readme_runs_and_its_links_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Session(tmp_path, None, {})
    for block in blocks(README):
        if block.language == "python":
            reader.run(block, README.name)
    # Its session with the service is the quick start's, which a test of its own runs.
    session = {block for block in blocks(README) if block.language == "bash"}
    assert session <= set(blocks(DOCS / "quickstart-service.md"))
    for text in (README.read_text(encoding="utf-8"), (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        targets = re.findall(r"\]\(([^)#]+)\)", text)
        assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []
