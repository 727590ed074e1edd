"""What a release needs: one version everywhere, and a script that refuses anything less."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pairrank.version import __version__

ROOT = Path(__file__).resolve().parent.parent
FILES = ("CHANGELOG.md", "CITATION.cff", "scripts/release", "src/pairrank/version.py")


def test_one_version_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert newest[1] == cited[1] == __version__


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what the script looks at, dated, and a stand-in for the build."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    text = re.sub(
        rf"^## {re.escape(__version__)}.*$", f"## {__version__} (2030-01-01)", changelog.read_text(), flags=re.M
    )
    changelog.write_text(text)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nmkdir -p dist && echo built > dist/package\n")
    python.chmod(0o755)
    (tmp_path / ".gitignore").write_text(".venv/\ndist/\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    names = {f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | names, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "state")


def release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    names = {"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@example.org"}
    command = [folder / "scripts" / "release", version, "--no-gate"]
    return subprocess.run(command, env=os.environ | names, capture_output=True, text=True)


def test_a_release_is_built_and_tagged_once(checkout: Path) -> None:
    done = release(checkout, __version__)
    assert done.returncode == 0, done.stderr
    assert git(checkout, "tag", "--list") == f"v{__version__}\n"
    assert (checkout / "dist" / "package").is_file()
    again = release(checkout, __version__)
    assert (again.returncode, "already" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("CHANGELOG.md", "(2030-01-01)", "(unreleased)", "CHANGELOG"),
        ("CITATION.cff", f"version: {__version__}", "version: 0.0.1", "CITATION"),
        ("src/pairrank/version.py", __version__, "0.0.1", "version.py"),
    ],
)
def test_what_does_not_agree_is_refused(checkout: Path, name: str, old: str, new: str, says: str) -> None:
    file = checkout / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    unclean = release(checkout, __version__)
    assert (unclean.returncode, "not committed" in unclean.stderr) == (1, True)
    commit(checkout)
    done = release(checkout, __version__)
    assert (done.returncode, says in done.stderr) == (1, True)
    assert git(checkout, "tag", "--list") == ""
