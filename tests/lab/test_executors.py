from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from pairrank.cli import main
from pairrank.errors import MissingExtraError, OptionError, StorageError, UnknownNameError
from pairrank.lab.executors import run_all
from pairrank.lab.outcomes import Failure, RunsFailedError
from pairrank.sim import RunFolder, RunSpec, Summary, load_records, simulate

BASE = RunSpec(data="synthetic:tiny", rounds=60, clicks="perfect")
SPECS = [replace(BASE, ranker=name, seed=seed) for name in ("pdgd", "pairrank") for seed in (0, 1)]
BAD = replace(BASE, ranker="pdgd(learning_rate=-1)")


def results(summaries: list[Summary]) -> list[tuple[object, ...]]:
    """All but the seconds."""
    return [astuple(replace(summary, seconds=0.0)) for summary in summaries]


def records(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/records.parquet")}


def test_serial_equals_simulate_and_reports() -> None:
    heard: list[int] = []
    summaries = run_all(SPECS, report=heard.append)
    assert results(summaries) == results([simulate(spec).summary() for spec in SPECS])
    assert heard == sorted(heard)
    assert heard[-1] == sum(spec.rounds for spec in SPECS)


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("pyarrow", "simulate synthetic:tiny"),
        ("pyarrow", "tune synthetic:tiny --ranker pdgd"),
        ("pyarrow", "quality synthetic:tiny --rival pdgd"),
        ("matplotlib", "demo"),
        ("matplotlib", "trial synthetic:tiny"),
    ],
)
def test_a_missing_extra_is_told_before_the_runs_and_leaves_no_folder(
    package: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    out = tmp_path / "out"
    assert main([*command.split(), "--out", str(out)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"pairrank: this needs {package}, which is not installed: pip install 'pairrank[lab]'"
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError):
        simulate(BASE, out=out)
    assert not out.exists()


def test_numpy_and_scipy_are_enough_where_nothing_is_kept(tmp_path: Path) -> None:
    """Everything else that is installed cannot be imported, in workers neither."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Bare:\n"
        "    allowed = {'numpy', 'scipy', 'pairrank', *sys.stdlib_module_names}\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        if top not in self.allowed and not top.startswith('_'):\n"
        "            raise ModuleNotFoundError(f'{name} is not to be here', name=name)\n"
        "sys.meta_path.insert(0, Bare())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = [sys.executable, "-m", "pairrank"]
    words = "--ranker p2linrank --rounds 10 --seeds 2 --clicks perfect(drift=5) --engine processes --jobs 2"
    command = [*program, "simulate", "synthetic:tiny", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    probe = subprocess.run([sys.executable, "-c", "import pyarrow"], capture_output=True, text=True, env=environment)
    assert "is not to be here" in probe.stderr


def test_a_run_that_raises_leaves_the_others_unharmed(tmp_path: Path) -> None:
    with pytest.raises(RunsFailedError) as caught:
        run_all([SPECS[0], BAD, SPECS[1]], tmp_path)
    (failure,) = caught.value.failures
    assert failure.spec == BAD
    assert "learning_rate" in failure.reason
    assert results(list(caught.value.summaries)) == results(run_all(SPECS[:2]))
    text = str(caught.value)
    assert "1 of 3 runs failed" in text
    assert failure.command(tmp_path) in text


def test_the_command_of_a_failure_repeats_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure.of(SPECS[0], RuntimeError("lightning"))
    assert failure.reason == "RuntimeError: lightning"
    assert main(shlex.split(failure.command(tmp_path))[1:]) == 0  # from the spec's own text
    assert list(records(tmp_path)) == [SPECS[0].run_id]
    kept = tmp_path / "runs" / SPECS[0].run_id
    (kept / "records.parquet").unlink()
    command = failure.command(tmp_path)
    assert str(kept / "spec.json") in command
    assert main(shlex.split(command)[1:]) == 0  # from its file
    assert records(tmp_path)[SPECS[0].run_id] == simulate(SPECS[0]).to_parquet()
    capsys.readouterr()


def test_many_failures_are_not_all_listed(tmp_path: Path) -> None:
    with pytest.raises(RunsFailedError, match="and 2 more"):
        run_all([SPECS[0], *(replace(BAD, seed=seed) for seed in range(10))], tmp_path)


def test_one_reason_for_all_is_raised_itself() -> None:
    with pytest.raises(OptionError, match="learning_rate"):
        run_all([BAD, replace(BAD, seed=1)])


def test_unknown_engine_and_stray_address() -> None:
    with pytest.raises(OptionError, match="serial"):
        run_all(SPECS, engine="abacus")
    with pytest.raises(OptionError, match="ray"):
        run_all(SPECS, engine="serial", address="auto")
    with pytest.raises(OptionError, match="jobs is 0; expected a whole number, 1 or more"):
        run_all(SPECS, engine="processes", jobs=0)


def test_resume_is_the_default_and_can_be_refused(tmp_path: Path) -> None:
    run_all(SPECS[:1], tmp_path)
    timing = tmp_path / "runs" / SPECS[0].run_id / "timing.json"
    before, content = timing.read_bytes(), records(tmp_path)
    timing.write_bytes(before + b" ")  # a mark that a new run would wipe out
    run_all(SPECS[:1], tmp_path)
    assert timing.read_bytes() == before + b" "
    run_all(SPECS[:1], tmp_path, resume=False)
    assert timing.read_bytes() != before + b" "
    assert records(tmp_path) == content


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write to the folder"):
        run_all(SPECS, tmp_path / "file" / "out")
    code = main(["demo", "--out", str(tmp_path / "file" / "out"), "--rounds", "5", "--seeds", "1"])
    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.startswith("pairrank: cannot write to the folder")
    assert len(captured.err.splitlines()) == 1


def test_a_spec_of_a_newer_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = tmp_path / "spec.json"
    newer.write_text(BASE.to_json().replace('"version":1', '"version":2'))
    assert main(["simulate", "--spec", str(newer)]) == 1
    error = capsys.readouterr().err
    assert "version 2" in error
    assert "upgrade pairrank" in error


def test_records_of_a_newer_version_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pairrank.sim.spec.SPEC_VERSION", 2)
        newer = simulate(SPECS[0])
        blob = newer.to_parquet()
    folder = RunFolder(tmp_path, SPECS[0])
    folder.open()
    folder.save(newer)
    (folder.path / "records.parquet").write_bytes(blob)
    for engine in ("serial", "ray"):  # when nothing is left to run, no cluster is started
        with pytest.raises(RunsFailedError, match="upgrade pairrank") as caught:
            run_all(SPECS[:2], tmp_path, engine)
        assert [failure.spec for failure in caught.value.failures] == [SPECS[0]]
    assert (folder.path / "records.parquet").read_bytes() == blob  # not overwritten by an older version


def small_files_only() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))


def test_a_full_disk_harms_nothing_that_is_there(tmp_path: Path) -> None:
    run_all(SPECS[:1], tmp_path)
    before = records(tmp_path)
    # Files above a limit fail as on a full disk: the specs still fit, the records do not.
    command = [
        sys.executable,
        "-m",
        "pairrank",
        "simulate",
        "synthetic:tiny",
        "--ranker",
        "pdgd",
        "--clicks",
        "perfect",
    ]
    more = ["--rounds", "60", "--seeds", "2", "--out", str(tmp_path)]
    done = subprocess.run(command + more, preexec_fn=small_files_only, capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 of 2 runs failed; the others are unharmed" in done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert records(tmp_path) == before
    assert not list(tmp_path.rglob("*.part"))
    assert len(run_all(SPECS[:2], tmp_path)) == 2  # with room again, the same command ends well
    assert load_records(tmp_path / "runs" / SPECS[1].run_id) is not None


def test_unknown_ranker_comes_back() -> None:
    with pytest.raises(UnknownNameError, match="nobody"):
        run_all([replace(BASE, ranker="nobody")])
