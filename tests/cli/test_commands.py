"""The command line as a whole: what it loads, and what it says of commands that it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pairrank import cli


def loaded(*words: str) -> set[str]:
    """The top-level packages in memory after ``pairrank WORDS``, in a process of its own."""
    program = """
import sys
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


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["simulat"])
    assert end.value.code == 2
    assert "'simulat'" in capsys.readouterr().err
