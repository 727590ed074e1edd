"""The wheel and the sdist: what is in them, that they install from a clean folder, and what they say without extras."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

import pairrank

ROOT = Path(__file__).resolve().parent.parent
Once = Callable[[str, Callable[[Path], object]], Path]
# Extras that a reader may install, and what shows that one is missing: a line of Python and the package it wants.
EXTRAS = {
    "lab": ("pairrank.simulate('synthetic:tiny', rounds=2, panel=0, ideal='', out='runs')", "pyarrow"),
    "serve": ("from pairrank.cli import main; raise SystemExit(main(['serve', '--check']))", "fastapi"),
    "postgres": (
        "from pairrank.service.store import open_store; open_store('postgresql://nobody@127.0.0.1/x')",
        "psycopg",
    ),
    "ray": (
        "from pairrank.lab.executors import run_all; from pairrank.sim import RunSpec\n"
        "run_all([RunSpec(data='synthetic:tiny', rounds=2)], None, 'ray')",
        "ray",
    ),
    "logs": ("from pairrank import logs; logs.Writer('x.parquet', n_features=2)", "pyarrow"),
    "onnx": (
        "from pairrank import export; export.dumps(export.LinearModel.of([1.0, 2.0]), 'onnx')",
        "onnx",
    ),
    "sklearn": ("import pairrank.sklearn", "scikit-learn"),
    "langchain": ("import pairrank.integrations.langchain", "langchain-core"),
    "llamaindex": ("import pairrank.integrations.llamaindex", "llama-index-core"),
    "haystack": ("import pairrank.integrations.haystack", "haystack-ai"),
    "lancedb": ("import pairrank.integrations.lancedb", "lancedb"),
    "pyterrier": ("import pairrank.integrations.pyterrier", "pyterrier"),
    "rerankers": ("import pairrank.integrations.rerankers", "rerankers"),
    "neural": ("pairrank.rankers.make('olranknet', n_features=2)", "PyTorch"),
}
# Extras that nothing refuses to work without.
OPTIONAL = ("fast", "telemetry")
# Gigabytes, which `all` leaves out.
APART = ("neural",)
# Extras that are several others.
TOGETHER = ("integrations", "all")
# What each extra is for, in an environment with that extra alone.
PROMISED = {
    "lab": "pairrank simulate synthetic:tiny --rounds 20 --seeds 2 --engine processes --out runs; pairrank report runs",
    "serve": """
pairrank serve --check
python - <<'PY'
import subprocess
from pairrank.client import Client
server = subprocess.Popen(["pairrank", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
address = server.stdout.readline().split()[2].rstrip(",")
with Client(address) as client:
    client.create("shop", n_features=1)
    shown = client.rank("shop", {"a": [0.0], "b": [1.0]})
    assert client.feedback("shop", shown.impression_id, ["b"]) == "accepted"
server.terminate()
assert server.wait() == 0
PY
pairrank replay pairrank.db
""",
    "langchain": """
python - <<'PY'
from langchain_core.documents import Document
from pairrank.integrations.langchain import PairRankCompressor
compressor = PairRankCompressor(top_n=1)
assert compressor.feedback(compressor.compress_documents([Document("a"), Document("b")], "b")) == 1
PY
""",
    "llamaindex": """
python - <<'PY'
from llama_index.core.schema import NodeWithScore, TextNode
from pairrank.integrations.llamaindex import PairRankPostprocessor
postprocessor = PairRankPostprocessor(top_n=1)
nodes = [NodeWithScore(node=TextNode(text=text)) for text in "ab"]
assert postprocessor.feedback(postprocessor.postprocess_nodes(nodes, query_str="b")) == 1
PY
""",
    "haystack": """
python - <<'PY'
from haystack import Document
from pairrank.integrations.haystack import PairRankRanker
ranker = PairRankRanker(top_k=1)
assert ranker.feedback(ranker.run("b", [Document(content=text) for text in "ab"])["documents"]) == 1
PY
""",
    "lancedb": """
python - <<'PY'
import pyarrow
from pairrank.integrations.lancedb import PairRankReranker
reranker = PairRankReranker(top_n=1)
assert reranker.feedback(reranker.rerank_fts("b", pyarrow.table({"text": ["a", "b"]})).to_pylist()) == 1
PY
""",
    "pyterrier": """
python - <<'PY'
import pandas
from pairrank.integrations.pyterrier import PairRankTransformer
rerank = PairRankTransformer(top_n=1)
frame = pandas.DataFrame({"qid": ["1", "1"], "query": ["b", "b"], "docno": ["a", "b"], "text": ["a", "b"]})
assert rerank.feedback(rerank.transform(frame)) == 1
PY
""",
    "rerankers": """
python - <<'PY'
from pairrank.integrations.rerankers import PairRankRanker
ranker = PairRankRanker()
assert ranker.feedback(ranker.rank("b", ["a", "b"])[:1]) == 1
PY
""",
    "fast": """
PAIRRANK_COMPILED=1 python - <<'PY'
import simdjson
import pairrank
from pairrank.kernel import jit
pairrank.simulate("synthetic:tiny", rounds=20, panel=0, ideal="")
assert jit._loops is not None
PY
""",
    "telemetry": """
python - <<'PY' | grep 'impression ranked'
from pairrank.service import telemetry
telemetry.start("worker", {"OTEL_TRACES_EXPORTER": "console"})
telemetry.impression("ranked", "shop", "secret", 1)
telemetry.stop()
PY
""",
    "postgres": """
python - <<'PY'
from pairrank.errors import MissingExtraError, PairRankError
from pairrank.service.store import open_store
try:
    open_store("postgresql://nobody@127.0.0.1:1/x")
except MissingExtraError:
    raise
except PairRankError as problem:
    assert "127.0.0.1" in str(problem), problem
else:
    raise SystemExit("nobody serves there")
PY
""",
    "ray": "pairrank simulate synthetic:tiny --rounds 20 --engine ray --jobs 1 --out runs",
    "logs": """
python - <<'PY'
import numpy as np
from pairrank import logs
with logs.Writer("log.parquet", n_features=2) as log:
    for number in range(50):
        features = np.random.default_rng(number).random((10, 2))
        log.add(f"q{number}", 1.7e9 + number, [str(row) for row in range(10)], features, features[:, 0] > 0.7)
PY
pairrank fit log.parquet --engine processes --workers 2 --out model.pairrank
""",
    "onnx": """
python -c 'import pairrank; pairrank.PairRank(2).save("model.pairrank")'
pairrank export model.pairrank --format onnx --out model.onnx
test -s model.onnx
""",
    "sklearn": """
python - <<'PY'
import numpy as np
from pairrank.sklearn import PairRankRanker
X = np.random.default_rng(0).random((60, 3))
query = np.repeat(np.arange(6), 10)
assert PairRankRanker().fit(X, X[:, 0] > 0.5, qid=query).score(X, X[:, 0] > 0.5, qid=query) > 0.9
PY
""",
}
# In the order of a first hour: everything that needs numpy and scipy alone.
BASE = """
import sys, numpy as np, pairrank
ranker = pairrank.PairRank(n_features=3, seed=0)
for number in range(20):
    shown = ranker.rank(np.random.default_rng(number).random((12, 3)), k=10)
    ranker.learn(shown, shown.features[:, 0] > 0.5)
ranker.save("model.pairrank")
assert pairrank.load("model.pairrank").digest() == ranker.digest()
assert pairrank.simulate("synthetic:tiny", rounds=20).ndcg > 0
from pairrank import checks, client, click_models, data, drawing, export, metrics
assert export.dumps(export.load("model.pairrank"), "solr")
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"fastapi", "pyarrow", "matplotlib", "ray", "onnx", "sklearn", "rich", "psycopg", "httpx"}, loaded
"""


@pytest.fixture(scope="module")
def built(once: Once) -> Path:
    """A folder with the sdist, and the wheel that is built from it."""

    def build(out: Path) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=out)
        assert done.returncode == 0, done.stdout + done.stderr

    return once("dist", build)


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(wheel(built)) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def requirements(metadata: Message, extra: str) -> set[str]:
    """The packages that an extra asks for on this machine, with those of the base; of ``all``, whatever it names."""
    found: set[str] = set()
    for line in metadata.get_all("Requires-Dist") or []:
        asked = Requirement(line)
        environment = dict(default_environment()) | {"extra": extra}
        if asked.marker is not None and not asked.marker.evaluate(environment):
            continue
        if asked.name == "pairrank":
            found |= {name for inner in asked.extras for name in requirements(metadata, inner)}
        else:
            found.add(asked.name)
    return found


def test_the_version_comes_from_one_place(built: Path, metadata: Message) -> None:
    given = re.search(r'__version__ = "(.+)"', (ROOT / "src/pairrank/version.py").read_text())
    assert given is not None
    assert given[1] == pairrank.__version__ == metadata["Version"]
    assert wheel(built).name.startswith(f"pairrank-{given[1]}-")
    assert (built / f"pairrank-{given[1]}.tar.gz").is_file()
    assert f"## {given[1]}" in (ROOT / "CHANGELOG.md").read_text()
    mentions = [path for path in (ROOT / "src").rglob("*.py") if f'"{given[1]}"' in path.read_text()]
    assert [path.name for path in mentions] == ["version.py"]


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel(built)) as archive:
        names = set(archive.namelist())
    tracked = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "pairrank").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == tracked
    assert {"pairrank/py.typed", "pairrank/service/pairrank.js", "pairrank/lab/tuned/mq2008.json"} <= names


def test_the_sdist_holds_what_the_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/pairrank/__init__.py"} <= names
    assert {"tests/test_rng.py", "docs/index.md", "mkdocs.yml", "scripts/test"} <= names


def test_every_extra_is_documented_and_asks_for_something(metadata: Message) -> None:
    offered = set(metadata.get_all("Provides-Extra") or [])
    assert offered == {*EXTRAS, *OPTIONAL, *TOGETHER, "test", "dev", "docs"}
    assert requirements(metadata, "") == {"numpy", "scipy"}
    for extra in offered - {*TOGETHER}:
        assert requirements(metadata, extra) - {"numpy", "scipy"}, extra
    named = {name for extra in {*EXTRAS, *OPTIONAL} - {*APART} for name in requirements(metadata, extra)}
    assert requirements(metadata, "all") == named
    index = (ROOT / "docs" / "index.md").read_text()
    assert all(f"| `{extra}` |" in index for extra in (*EXTRAS, *OPTIONAL, *TOGETHER))


def install(folder: Path, *what: str, begun: Path | None = None) -> Path:
    """The commands of an environment that holds ``what``, its dependencies, and nothing else: a new one, or a copy."""
    commands = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    if begun is None:
        venv.create(folder / "env", with_pip=False)
    else:
        shutil.copytree(begun, folder / "env", symlinks=True, copy_function=os.link)
    options = ["--quiet", "--disable-pip-version-check", "--no-compile"]  # compiling takes longer than unpacking
    command = [sys.executable, "-m", "pip", "--python", str(commands / "python"), "install", *options, *what]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return commands


@pytest.fixture(scope="module")
def begun(once: Once) -> Path:
    """An environment with what every installation needs, imported once: the beginning of all those with one extra."""

    def begin(folder: Path) -> None:
        run(install(folder, "numpy", "scipy"), "python -c 'import scipy.linalg, scipy.optimize, scipy.sparse'")

    return once("base", begin) / "env"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for an environment; half a gigabyte each is not kept."""
    yield tmp_path
    shutil.rmtree(tmp_path / "env", ignore_errors=True)


def run(commands: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A shell script that sees neither this checkout nor its environment."""
    folder = commands.parent.parent
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    env |= {"PAIRRANK_CACHE": str(folder / "cache"), "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True)


def check_refusal(commands: Path, extra: str) -> None:
    """What belongs to an extra that is not there fails with the one line that installs it."""
    code, package = EXTRAS[extra]
    done = run(commands, f"python -W error -c {shlex.quote(f'import pairrank; {code}')}")
    assert done.returncode != 0, f"{extra}: nothing was missing"
    line = done.stderr.strip().splitlines()[-1]
    assert package in line, done.stderr
    # Where two extras would do, either may be named.
    assert re.search(r"pip install 'pairrank\[\w+\]'", line), done.stderr
    assert f"pairrank[{extra}]" in line or extra == "postgres", done.stderr


@pytest.mark.slow
def test_the_sdist_installs_alone_and_says_what_is_missing(built: Path, folder: Path) -> None:
    commands = install(folder, str(next(built.glob("*.tar.gz"))))
    done = run(commands, f"python -W error -c {shlex.quote(BASE)}")
    assert done.returncode == 0, done.stderr
    assert run(commands, "pairrank --version").stdout == f"pairrank {pairrank.__version__}\n"
    for extra in EXTRAS:
        check_refusal(commands, extra)


# These are large; `.ci/environments integrations neural` installs them, at their lowest versions too.
LARGE = (*APART, "langchain", "llamaindex", "haystack", "lancedb", "pyterrier", "rerankers")


@pytest.mark.slow
@pytest.mark.parametrize("extra", [extra for extra in (*EXTRAS, *OPTIONAL) if extra not in LARGE])
def test_the_wheel_installs_with_one_extra_and_does_what_that_promises(
    extra: str, built: Path, begun: Path, folder: Path
) -> None:
    commands = install(folder, f"{wheel(built)}[{extra}]", begun=begun)
    done = run(commands, PROMISED[extra])
    assert done.returncode == 0, done.stdout + done.stderr
    check_refusal(commands, "onnx" if extra == "serve" else "serve")
