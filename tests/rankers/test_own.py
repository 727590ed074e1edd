"""Rankers of one's own, named by file and class, or offered by another package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pairrank
from pairrank import cli, rankers
from pairrank.errors import OptionError, UnknownNameError
from pairrank.lab.executors import run_all
from pairrank.lab.outcomes import RunsFailedError
from pairrank.service.store.values import Config
from pairrank.sim import Protocol

OWN = '''"""A ranker of one's own."""

from dataclasses import dataclass
from typing import ClassVar

from pairrank.rankers.pdgd import PDGD


@dataclass(eq=False, kw_only=True)
class Mine(PDGD):
    """PDGD with a rate of its own."""

    name: ClassVar[str] = "mine"
    SPACE: ClassVar = {"learning_rate": (0.01, 0.1)}

    learning_rate: float = 0.05
'''
TINY = ["synthetic:tiny", "--rounds", "20", "--seeds", "2", "--clicks", "navigational"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


def test_a_file_is_a_name(folder: Path) -> None:
    name, options = rankers.parse("mine.py:Mine(learning_rate=0.2, decay=0.5)")
    assert re.fullmatch(r"mine\.py:Mine@[0-9a-f]{12}", name)
    assert options == {"learning_rate": 0.2, "decay": 0.5}
    assert rankers.parse(rankers.spell(name, options)) == (name, options)
    made = rankers.make("mine.py:Mine", n_features=3)
    assert (made.name, made.settings["learning_rate"], rankers.label(name)) == ("mine", 0.05, "Mine")
    assert type(rankers.make(str(folder / "mine.py") + ":Mine", n_features=3)).__name__ == "Mine"


def test_a_file_may_be_in_another_encoding(folder: Path) -> None:
    (folder / "mine.py").write_text(f"# coding: latin-1\n# Für uns\n{OWN}", encoding="latin-1")
    assert rankers.make("mine.py:Mine", n_features=3).name == "mine"


def test_a_path_may_have_brackets(folder: Path) -> None:
    (folder / "mine.py").rename("ranker(1).py")
    name, options = rankers.parse("ranker(1).py:Mine(decay=0.5)")
    assert name.startswith("ranker(1).py:Mine@")
    assert options == {"decay": 0.5}
    assert rankers.parse("ranker(1).py:Mine") == (name, {})
    assert rankers.parse('pairrank(feature_names=["mine.py:Mine(1)"])')[0] == "pairrank"
    spec = Protocol(data="synthetic:tiny", rounds=5).run("ranker(1).py:Mine(decay=0.5)", "perfect", 0)
    assert run_all([spec], engine="serial")[0].spec.ranker == rankers.spell(name, options)


def test_saved_and_loaded_again(folder: Path) -> None:
    made = rankers.make("mine.py:Mine", n_features=3)
    made.save("mine.pairrank")
    assert pairrank.load("mine.pairrank").digest() == made.digest()  # its class is defined here
    assert pairrank.load("mine.pairrank", ranker="mine.py:Mine").digest() == made.digest()
    program = "import sys, pairrank; print(pairrank.load('mine.pairrank', **eval(sys.argv[1])).digest())"
    ask = [sys.executable, "-c", program]
    named = subprocess.run([*ask, "{'ranker': 'mine.py:Mine'}"], capture_output=True, text=True, check=True)
    assert named.stdout.strip() == made.digest()
    unnamed = subprocess.run([*ask, "{}"], capture_output=True, text=True)  # no code is run that nobody names
    assert "holds the ranker 'mine', which is none of this package" in unnamed.stderr


def test_a_file_that_changes_is_another_ranker(folder: Path) -> None:
    before = rankers.parse("mine.py:Mine")[0]
    (folder / "mine.py").write_text(OWN + "\n# another\n")
    after = rankers.parse("mine.py:Mine")[0]
    assert before != after
    spec = Protocol(data="synthetic:tiny", rounds=5).run
    assert spec(before, "perfect", 0).run_id != spec(after, "perfect", 0).run_id
    rankers.own._load.cache_clear()
    with pytest.raises(OptionError, match=r"mine\.py has changed since .* was named: leave out @"):
        rankers.make(before, n_features=3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def f(:\n", "broken.py, line 1: "),
        ("import numpy\n\nx = 1 / 0\n", "broken.py, line 3: ZeroDivisionError: division by zero"),
        (
            "import neighbour\n",
            "broken.py, line 1: ModuleNotFoundError: No module named 'neighbour'; a ranker's file finds what is "
            "installed, not what lies beside it",
        ),
        ("import sys\nsys.exit(3)\n", "broken.py, line 2: SystemExit: 3"),
        ("class Other:\n    pass\n", "broken.py has no class Mine; there are: Other"),
        ("\nclass Mine:\n    pass\n", "broken.py, line 2: Mine is no subclass of pairrank.rankers.Ranker"),
        (
            "from pairrank.rankers import Ranker\nclass Mine(Ranker):\n    def _reset(self): pass\n",
            "broken.py, line 2: Mine does not write _learn, _rank, score",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_broken_file_gets_one_sentence(text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text(text)
    assert cli.main(["simulate", *TINY, "--ranker", "broken.py:Mine"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"pairrank: {sentence}")
    assert len(told.splitlines()) == 1


@pytest.mark.usefixtures("folder")
def test_what_fails_while_it_runs_is_told_with_its_line() -> None:
    Path("mine.py").write_text(OWN + "\n    def _learn(self, impression, clicks):\n        raise KeyError('late')\n")
    spec = Protocol(data="synthetic:tiny", rounds=50).run("mine.py:Mine", "perfect", 0)
    with pytest.raises(RunsFailedError, match=r"mine\.py, line 19: KeyError: 'late'"):
        run_all([spec])


def test_wrong_names_and_options_are_told_with_what_there_is(folder: Path) -> None:
    for text, sentence in [
        (
            "nowhere.py:Mine",
            "cannot read nowhere.py: No such file or directory; expected a ranker as path/to/file.py:Class",
        ),
        ("pairank", "no ranker is called 'pairank'; did you mean 'pairrank'? (there are: dbgd"),
        ("pairrank(z=1", "no ranker is called 'pairrank(z=1'; is a bracket missing?"),
    ]:
        with pytest.raises(UnknownNameError) as caught:
            rankers.make(text, n_features=2)
        assert sentence in str(caught.value)
    with pytest.raises(OptionError, match=r"pairrank has no option 'lamda'; did you mean 'lam'\? \(there are: Q, "):
        rankers.make("pairrank(lamda=1)", n_features=2)


def test_the_service_runs_no_file(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="no ranker is called"):
        Config(3, ranker="mine.py:Mine").make()


@pytest.mark.usefixtures("folder")
def test_seeds_in_parallel_and_one_after_the_other_agree(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for engine in ("serial", "processes"):
        words = ["simulate", *TINY, "--ranker", "mine.py:Mine(decay=0.9)", "--json", "--engine", engine, "--jobs", "2"]
        assert cli.main(words) == 0
        (row,) = json.loads(capsys.readouterr().out)
        told.append({key: value for key, value in row.items() if key != "seconds"})
    assert told[0] == told[1]
    assert re.fullmatch(r"mine\.py:Mine@[0-9a-f]{12}\(decay=0\.9\)", told[0]["ranker"])


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_quality_tune_reproduce_and_reports_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--ranker", "mine.py:Mine"]
    serial = ["--engine", "serial"]
    assert cli.main(["quality", *TINY, *own, "--rival", "pdgd", "--out", "quality", *serial]) == 0
    assert "  Mine " in capsys.readouterr().out
    assert cli.main(["tune", *TINY, *own, "--trials", "2", "--out", "tuned", *serial]) == 0
    both = ["--clicks", "perfect", "--rounds", "3", "--seeds", "1"]
    assert cli.main(["reproduce", "synthetic:tiny", *both, *own, "--out", "paper", *serial]) == 0
    assert "  Mine" in capsys.readouterr().out
    assert cli.main(["simulate", *TINY, *own, "--settings", "tuned/settings.json"]) == 0


PACKAGE = """
from importlib.metadata import EntryPoint
from pairrank.rankers import own
own._entries = lambda: {
    "theirs": EntryPoint("theirs", "mine:Mine", own.GROUP),
    "Their_own.2": EntryPoint("Their_own.2", "mine:Mine", own.GROUP),
    "lost": EntryPoint("lost", "nowhere:Mine", own.GROUP),
}
import pairrank
from pairrank import rankers
made = rankers.make("theirs(decay=0.5)", n_features=2)
print(made.name, "theirs" in rankers.names(), rankers.label("theirs"))
print(rankers.parse("Their_own.2(decay=0.5)"))
try:
    rankers.make("lost", n_features=2)
except pairrank.errors.OptionError as problem:
    print(problem)
"""


@pytest.mark.usefixtures("folder")
def test_entry_points_are_names() -> None:
    done = subprocess.run([sys.executable, "-c", PACKAGE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "mine True theirs",
        "('Their_own.2', {'decay': 0.5})",
        "the ranker 'lost' of nowhere:Mine cannot be loaded: ModuleNotFoundError: No module named 'nowhere'",
    ]
