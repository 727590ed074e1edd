"""Completion, asked of the shells themselves."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pairrank import cli, clicks, rankers
from pairrank.cli import completion


def in_bash(line: str, folder: Path) -> set[str]:
    """What bash offers for the last word of the line."""
    words = line.split(" ")
    script = completion.bash(list(completion.levels(cli.parser())))
    ask = f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; _pairrank\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", script + ask + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands(tmp_path: Path) -> None:
    assert in_bash("pairrank ", tmp_path) == {*cli.COMMANDS, "-h", "--help", "--version"}
    assert in_bash("pairrank si", tmp_path) == {"simulate"}
    assert in_bash("pairrank store ", tmp_path) >= {"verify", "backup", "restore", "compact", "keys"}


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_option_of_every_command_is_offered(command: str, tmp_path: Path) -> None:
    top = next(a for a in cli.parser()._actions if a.dest == "command")
    assert top.choices is not None
    options = {name for action in top.choices[command]._actions for name in action.option_strings}  # type: ignore[index]
    assert in_bash(f"pairrank {command} -", tmp_path) == options


def test_values(tmp_path: Path) -> None:
    assert in_bash("pairrank simulate --ranker ", tmp_path) == set(rankers.names())
    assert in_bash("pairrank simulate x --clicks p", tmp_path) == {n for n in clicks.names() if n.startswith("p")}
    assert in_bash("pairrank export model --format so", tmp_path) == {"solr"}
    assert in_bash("pairrank completion ", tmp_path) >= {"bash", "zsh", "fish"}


def test_files(tmp_path: Path) -> None:
    (tmp_path / "model.pairrank").touch()
    assert in_bash("pairrank export mod", tmp_path) == {"model.pairrank"}
    assert in_bash("pairrank simulate --spec ", tmp_path) == {"model.pairrank"}
    assert in_bash("pairrank simulate --rounds ", tmp_path) == set()
    assert in_bash("pairrank replay --ranker ", tmp_path) == {"model.pairrank"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_sound(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*cli.COMMANDS, "keys", "blocks"))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["completion", "tcsh"])
    assert stopped.value.code == 2
    assert "tcsh" in capsys.readouterr().err
