"""Clients in other languages, built from our OpenAPI and run against a real service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def build(language: str) -> Path:
    """The folder of a client, built."""
    done = subprocess.run([ROOT / "scripts" / "clients", language], capture_output=True, text=True)
    if done.returncode:
        # Without a network there are no packages (of npm, Go or Maven); whatever else is wrong is a fault.
        told = done.stdout + done.stderr
        if any(word in told for word in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "dial tcp", "Could not transfer")):
            pytest.skip(f"packages cannot be had: scripts/clients {language}")
        raise AssertionError(told)
    return ROOT / "clients" / language


@pytest.fixture
def typescript() -> Path:
    """Its folder, built."""
    if shutil.which("npm") is None:
        pytest.skip("no Node: apt-get install nodejs npm")
    return build("typescript")


def test_typescript_in_node_and_in_a_browser(address: str, typescript: Path, chromium: Browser) -> None:
    folder = typescript
    done = subprocess.run(
        ["npm", "test"], cwd=folder, env=os.environ | {"PAIRRANK_URL": address}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "# pass 9" in done.stdout
    for file in (folder / "README.md", ROOT / "docs" / "guide" / "clients.md"):
        (code,) = re.findall(r"```ts\n(.*?)```", file.read_text(), re.DOTALL)
        line = code.replace("http://127.0.0.1:8000", address) + "console.log(shown.ranking.length);"
        done = subprocess.run(
            ["node", "--input-type=module", "--eval", line], cwd=folder, capture_output=True, text=True
        )
        assert done.stdout == "2\n", done.stderr
    page = chromium.new_page()
    page.goto(f"{address}/healthz")
    script = (folder / "dist" / "browser.js").read_text()
    status = page.evaluate(
        f"""async () => {{
            {script}
            const client = new pairrank.PairRank(location.origin);
            const shown = await client.rank("node", {{a: [0, 1], b: [1, 0]}});
            return client.feedback("node", shown.impression_id, ["b"]);
        }}"""
    )
    page.close()
    assert status == "accepted"


TOOLS = {"go": ("go", "apt-get install golang-go"), "java": ("javac", "apt-get install default-jdk-headless")}


@pytest.mark.parametrize("language", TOOLS)
def test_generated_clients(request: pytest.FixtureRequest, language: str) -> None:
    tool, line = TOOLS[language]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}: {line}")
    if not (ROOT / "clients" / "generator").is_dir():
        pytest.skip("no generator: mvn -f clients/generator.xml dependency:copy")
    made = build(language) / "generated"
    address = request.getfixturevalue("address")
    command = {
        "go": [str(made / "example")],
        "java": ["java", "-cp", f"{made / 'classes'}:{made.parent / 'lib'}/*", "Example"],
    }
    done = subprocess.run(command[language], env=os.environ | {"PAIRRANK_URL": address}, capture_output=True, text=True)
    assert done.stdout == "2 documents, accepted, 1 feedback, 2 explained\n", done.stdout + done.stderr
