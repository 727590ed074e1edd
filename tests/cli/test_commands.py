"""The command line as a whole: what it loads, and what it says of commands that it does not know."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import pairrank
from pairrank import cli, rankers
from pairrank.cli import experiment_options


def loaded(*words: str) -> set[str]:
    """The top-level packages in memory after ``pairrank WORDS``, in a process of its own."""
    program = """
import sys
from itertools import pairwise
before = set(sys.modules)
from pairrank.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("\\0" + " ".join(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("\0")[2].split())


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_loads_the_standard_library_and_nothing_heavy_of_ours(words: list[str]) -> None:
    names = loaded(*words)
    assert {name.partition(".")[0] for name in names} - {"pairrank"} <= set(sys.stdlib_module_names)
    assert {name for name in names if name.startswith("pairrank.")} == {
        "pairrank.cli",
        "pairrank.errors",
        "pairrank.version",
    }


def test_a_command_loads_itself_and_no_other() -> None:
    names = loaded("report", "--help")
    assert "pairrank.cli.report" in names
    commands = {f"pairrank.cli.{name}" for name in cli.COMMANDS}
    assert names & commands == {"pairrank.cli.report"}


def test_the_first_process_of_a_container_can_be_stopped_while_its_command_is_loaded() -> None:
    program = """
import os, signal
from pairrank import cli
os.getpid = lambda: 1
cli._parsed = lambda _: signal.raise_signal(signal.SIGTERM)
cli.main(["serve"])
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 143


def test_a_command_of_the_first_process_may_run_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(cli.main, ["rankers"]).result() == 0


def test_every_command_has_a_module_and_every_module_is_a_command_or_shared_by_some() -> None:
    folder = Path(cli.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert set(cli.COMMANDS) <= modules
    for shared in modules - set(cli.COMMANDS):
        users = [path for path in folder.glob("*.py") if f"import {shared}" in path.read_text()]
        assert len(users) > 1, f"{shared} is no command, and not shared by two of them"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: pairrank {command}")
    assert len(told.splitlines()) > 5
    assert "example: pairrank" not in told, "a command that is broken over two lines cannot be pasted"


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["simulat"])
    assert end.value.code == 2
    assert "there is no command 'simulat'; did you mean 'simulate'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["simulate", "--sede", "3"], "pairrank simulate: error: there is no option --sede; did you mean '--seeds'?"),
        (["store", "verify", "x.db", "--jso"], "pairrank store: error: there is no option --jso"),
        (["data", "inspect", "x", "y"], "pairrank data: error: 'y' is one argument too many"),
    ],
)
def test_a_wrong_option_is_told_by_its_command(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: pairrank {words[0]}")
    assert sentence in told


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_groups_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if line.rstrip(":") in cli.FACES] == [f"{face}:" for face in cli.FACES]
    assert all(f"\n  {name} " in told for name in cli.COMMANDS)
    assert max(map(len, told.splitlines())) <= 100


def test_rankers_lists_them_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rankers"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in rankers.names())
    assert "pairrank(exploration=random, preset=paper)" in told  # what pairrank-r is
    assert cli.main(["rankers", "mgd(tau=2)"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tau=2" in lines
    assert "multileaving=probabilistic    one of probabilistic, team-draft" in lines
    assert "    how many directions are tried at once." in lines
    for name in rankers.names():
        assert cli.main(["rankers", name]) == 0
        lines = capsys.readouterr().out.split("\n\n")[1].splitlines()
        assert sum(not line.startswith(" ") for line in lines) == len(rankers.options(name))
        untold = [line for line, below in pairwise([*lines, ""]) if line[0] != " " and not below.startswith(" ")]
        assert untold == [], f"{name} has options that are not explained"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    head = ["ranker", "clicks", "rounds", "ndcg", "cndcg"]
    rows = [[name, "position(eta=1.0, noise=0.4)", "1000", "0.9123", "123.4"] for name in rankers.names()]
    told = experiment_options.fitted(head, rows)
    assert max(map(len, told.splitlines())) <= columns
    assert all(cell in " ".join(told.split()) for row in rows for cell in row[:1] + row[2:])


def test_an_interrupted_command_says_what_is_kept(tmp_path: Path) -> None:
    kept = cli._kept(argparse.Namespace(resume=True, out=None))
    assert kept == "; nothing is kept: with --out DIR the same command goes on where it stopped"
    assert cli._kept(argparse.Namespace(resume=False, out="x")).endswith("without --no-resume goes on from there")
    assert (
        cli._kept(cli.parser("trial").parse_args(["synthetic:tiny", "--a", "pdgd", "--b", "mgd", "--out", "x"]))
        == "; nothing is kept, and the same command begins again"
    )
    fit = cli.parser("fit").parse_args(["log", "--out", str(tmp_path / "model")])
    assert cli._kept(fit) == cli._kept(argparse.Namespace()) == ""
    (tmp_path / "model.checkpoint").touch()
    assert cli._kept(fit) == f"; the same command goes on from {tmp_path / 'model.checkpoint'}"


def test_a_terminal_without_our_letters_gets_others_in_their_place() -> None:
    program = "from pairrank.cli import main; main(['rankers', 'pairrank'])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


@pytest.mark.parametrize("words", ["rankers", "export FILE --format json"])
@pytest.mark.parametrize(("output", "told"), [(">&-", ""), (">/dev/full", "No space left on device\n")])
def test_an_output_that_takes_nothing_is_told_in_one_sentence(
    output: str, told: str, words: str, tmp_path: Path
) -> None:
    pairrank.PairRank(1).save(tmp_path / "m.pairrank")
    words = words.replace("FILE", str(tmp_path / "m.pairrank"))
    program = f"'{sys.executable}' -W error -c 'import sys; from pairrank.cli import main; sys.exit(main())'"
    done = subprocess.run(["sh", "-c", f"{program} {words} {output}"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == bool(told)
    assert done.stderr.endswith(told)
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_a_working_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["serve", "--check"]) == 1
    assert capsys.readouterr().err == "pairrank: the working folder is gone: change to another\n"


def test_without_its_extra_play_says_so_before_it_begins(tmp_path: Path) -> None:
    program = "import sys; sys.modules['uvicorn'] = None\nfrom pairrank.cli import main; sys.exit(main(['play']))"
    environment = {**os.environ, "PAIRRANK_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'pairrank[serve]'" in done.stderr


_ELSEWHERE = """
import os, signal, socket, sys
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "termios", "uvloop"])
lacking = {
    os: "fork register_at_fork sched_getaffinity nice pread pwrite getuid geteuid O_DIRECTORY O_CLOEXEC killpg",
    signal: "SIGKILL SIGHUP SIGQUIT SIGCHLD SIGALRM pthread_sigmask",
    socket: "AF_UNIX",
}
for module, names in lacking.items():
    for name in names.split():
        vars(module).pop(name, None)
from pairrank.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rankers", ""),
        ("simulate synthetic:tiny --ranker pairrank --rounds 20 --seeds 1 --engine serial --out out", ""),
        ("store import s.db model --ranker shop", ""),
        ("store verify s.db", ""),
        ("replay s.db", ""),
        ("serve --help", ""),
        ("serve --store new.db", "this system cannot run the service"),
        ("play --no-browser", "this system cannot run the service"),
    ],
)
def test_where_posix_is_not_commands_work_or_say_what_is_missing(words: str, told: str, tmp_path: Path) -> None:
    pairrank.PairRank(1).save(tmp_path / "model")
    if words.endswith(" s.db"):
        assert cli.main(["store", "import", str(tmp_path / "s.db"), str(tmp_path / "model"), "--ranker", "shop"]) == 0
    command = [sys.executable, "-W", "error", "-c", _ELSEWHERE, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == bool(told), done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.db").exists()
