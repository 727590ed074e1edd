from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import pairrank
from pairrank import data as datasets
from pairrank import rankers, simulate
from pairrank.data import Dataset, write_letor
from pairrank.errors import DataError, FeatureError, FileFormatError, NewerFormatError, OptionError, UnknownNameError
from pairrank.rankers import priors
from pairrank.rankers.base import Draw
from pairrank.rankers.linear import LinearRanker
from pairrank.rankers.pdgd import PDGD
from pairrank.sim import Records, RunFolder, RunSpec, engine, load_records
from pairrank.types import IntArray

Splits = tuple[Dataset, Dataset]
SPEC = RunSpec(data="synthetic:tiny", ranker="pdgd", clicks="informational", rounds=150, seed=7)


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the run after every round."""
    monkeypatch.setattr(engine, "HEARTBEAT", 0.0)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_spec_and_its_fields_are_the_same_run() -> None:
    by_fields = simulate("synthetic:tiny", ranker="pdgd", clicks="informational", rounds=150, seed=7)
    assert by_fields.spec == SPEC
    assert by_fields.to_parquet() == simulate(SPEC).to_parquet()


def test_another_seed_is_another_run() -> None:
    assert simulate(replace(SPEC, seed=8)).to_parquet() != simulate(SPEC).to_parquet()


def test_a_finished_run_is_read_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = simulate(SPEC, out=tmp_path)
    folder = tmp_path / "runs" / SPEC.run_id
    assert files(folder) == {"spec.json", "records.parquet", "timing.json"}
    assert RunSpec.from_json((folder / "spec.json").read_text()) == SPEC

    def fail(*args: object) -> bool:
        raise AssertionError("the run was run again")

    monkeypatch.setattr(engine, "play", fail)
    again = simulate(SPEC, out=tmp_path)
    assert again.to_parquet() == first.to_parquet()
    assert again.seconds == first.seconds
    assert load_records(folder).spec == SPEC


@pytest.mark.parametrize("ranker", ["pdgd", "pairrank", "mgd"])
@pytest.mark.parametrize("stops", [[1], [40, 41, 149]])
def test_an_interrupted_run_resumes_to_the_same_bytes(
    tmp_path: Path, heartbeat: None, ranker: str, stops: list[int]
) -> None:
    spec = replace(SPEC, ranker=ranker)
    undisturbed = simulate(spec)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            simulate(spec, out=tmp_path, watch=lambda done, stop=stop: done < stop)
        assert files(tmp_path / "runs" / spec.run_id) == {"spec.json", "checkpoint.bin"}
    seen: list[int] = []
    resumed = simulate(spec, out=tmp_path, watch=lambda done: seen.append(done) or True)
    assert seen[0] == stops[-1] + 1, "it went on from the checkpoint"
    assert resumed.to_parquet() == undisturbed.to_parquet()
    assert "checkpoint.bin" not in files(tmp_path / "runs" / spec.run_id)


def test_a_damaged_checkpoint_means_a_fresh_start(tmp_path: Path, heartbeat: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(SPEC, out=tmp_path, watch=lambda done: done < 90)
    path = tmp_path / "runs" / SPEC.run_id / "checkpoint.bin"
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], whole[:-40] + bytes(40)):
        path.write_bytes(damaged)
        assert RunFolder(tmp_path, SPEC).load_checkpoint(rankers.make("pdgd", n_features=3)) is None
    assert simulate(SPEC, out=tmp_path).to_parquet() == simulate(SPEC).to_parquet()


def test_a_checkpoint_of_a_newer_version_is_not_thrown_away(tmp_path: Path, heartbeat: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(SPEC, out=tmp_path, watch=lambda done: done < 90)
    path = tmp_path / "runs" / SPEC.run_id / "checkpoint.bin"
    newer = path.read_bytes().replace(b'"format":"1"', b'"format":"9"')
    path.write_bytes(newer)
    with pytest.raises(NewerFormatError):
        simulate(SPEC, out=tmp_path)
    assert path.read_bytes() == newer


@pytest.mark.parametrize("rest", [b"", b"PAR1", None])
def test_half_written_records_are_not_taken_for_whole(tmp_path: Path, rest: bytes | None) -> None:
    whole = simulate(SPEC, out=tmp_path).to_parquet()
    path = tmp_path / "runs" / SPEC.run_id / "records.parquet"
    path.write_bytes(whole[: len(whole) // 2] if rest is None else rest)
    (path.parent / ".records.parquet.1.aa.part").write_bytes(whole[:50])
    assert load_records(path.parent) is None
    assert simulate(SPEC, out=tmp_path).to_parquet() == whole
    assert path.read_bytes() == whole


def test_records_of_another_spec_are_not_taken_for_these(tmp_path: Path) -> None:
    simulate(SPEC, out=tmp_path)
    other = replace(SPEC, seed=99)
    (tmp_path / "runs" / SPEC.run_id).rename(tmp_path / "runs" / other.run_id)
    assert simulate(other, out=tmp_path).spec == other


@pytest.fixture
def filed(splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set in files, and a cache of its own."""
    monkeypatch.setenv("PAIRRANK_CACHE", str(tmp_path / "cache"))
    fold = tmp_path / "here" / "Fold1"
    fold.mkdir(parents=True)
    for split, dataset in zip(("train", "vali", "test"), (*splits, splits[1]), strict=True):
        write_letor(dataset, fold / f"{split}.txt")
    return fold.parent


def test_data_that_were_moved_are_the_same(filed: Path, tmp_path: Path, heartbeat: None) -> None:
    out, moved = tmp_path / "out", filed.with_name("there")
    done = simulate(filed, ranker="pdgd", rounds=20, out=out)
    with pytest.raises(KeyboardInterrupt):
        simulate(filed, ranker="mgd", rounds=20, out=out, watch=lambda done: done < 10)
    filed.rename(moved)
    read = simulate(moved, ranker="pdgd", rounds=20, out=out)
    assert read.seconds == done.seconds  # read, not run
    assert read.summary().spec.data == str(moved), "quality tells data sets apart by their path"
    heard: list[int] = []
    resumed = simulate(moved, ranker="mgd", rounds=20, out=out, watch=lambda done: heard.append(done) or True)
    assert min(heard) >= 10
    np.testing.assert_array_equal(resumed["ndcg"], simulate(moved, ranker="mgd", rounds=20)["ndcg"])
    assert len(list((out / "runs").iterdir())) == 2


def test_data_that_were_changed_are_others(filed: Path, tmp_path: Path) -> None:
    before = simulate(filed, ranker="pdgd", rounds=20, out=tmp_path / "out")
    (filed / "Fold1" / "vali.txt").write_text("")  # no part of the run
    assert simulate(filed, ranker="pdgd", rounds=20, out=tmp_path / "out").seconds == before.seconds
    test = filed / "Fold1" / "test.txt"
    test.write_text(test.read_text() + "2 qid:99 1:0.5\n0 qid:99 1:0.1\n")
    after = simulate(filed, ranker="pdgd", rounds=20, out=tmp_path / "out")
    assert after.spec.run_id != before.spec.run_id
    assert after.ndcg != before.ndcg
    with pytest.raises(DataError, match="other data than the spec was made for"):
        simulate(before.spec)


def test_a_spec_from_before_data_were_told_by_content_keeps_its_id(filed: Path) -> None:
    new = RunSpec(data=str(filed))
    old = RunSpec.from_json(replace(new, content="").to_json())
    assert "content" not in old.to_json()
    assert old.run_id == replace(new, content="").run_id != new.run_id
    assert RunSpec.from_json(new.to_json()) == replace(new, content=new.contents)


def test_a_spec_reads_nothing_until_it_is_asked_for_its_id(filed: Path, tmp_path: Path) -> None:
    """A value that is made and compared must not touch the disk: the data may be elsewhere, or large."""
    spec = RunSpec(data=str(filed))
    filed.rename(tmp_path / "moved")
    assert replace(spec, seed=1).seed == 1
    assert spec.contents == ""  # asked now, there are no such files; loading them will say so


def test_data_in_memory(splits: Splits, tmp_path: Path) -> None:
    records = simulate(splits, ranker="pdgd", rounds=20, out=tmp_path)
    assert records.spec.data.startswith("memory:")
    assert simulate(data=splits, ranker="pdgd", rounds=20).to_parquet() == records.to_parquet()
    assert simulate(records.spec, data=splits).to_parquet() == records.to_parquet()
    assert simulate(splits[0], ranker="pdgd", rounds=20).spec.data != records.spec.data
    with pytest.raises(OptionError, match="memory"):
        simulate(records.spec)
    with pytest.raises(OptionError, match="give one"):
        simulate(records.spec, data=splits[0])


def test_data_in_memory_that_differ_in_more_than_their_documents_are_other_data(splits: Splits, tmp_path: Path) -> None:
    def label(**more: object) -> str:
        train = replace(splits[0], **{"scale": 0, "theta": None, **more})
        return simulate((train, splits[1]), ranker="pdgd", rounds=1, out=tmp_path).spec.data

    ones = np.ones(splits[0].n_features)
    assert len({label(), label(theta=ones), label(theta=2 * ones), label(scale=5)}) == 4
    assert label(scale=splits[0].n_grades) == label(), "the grades themselves say as much"


def test_data_with_gaps_have_no_ideal_weights(splits: Splits) -> None:
    train = replace(splits[0], features=np.where(splits[0].features > 0.9, np.nan, splits[0].features), theta=None)
    assert np.isnan(simulate((train, splits[1]), ranker="pairrank(missing=mean)", rounds=3)["cosine"]).all()
    with pytest.raises(FeatureError, match="for missing values say what they mean"):
        simulate((train, splits[1]), ranker="pairrank", rounds=3)


@pytest.mark.parametrize("model", ["linear", "additive"])
def test_a_gap_is_judged_by_its_own_list(splits: Splits, model: str) -> None:
    """Lists that each lie elsewhere are the same lists: what is missing has the mean of the others in its own."""
    found = []
    for step in (0.0, 1000.0):
        moved = []
        for split in splits:
            place = step * np.repeat(np.arange(split.n_queries), np.diff(split.offsets))
            X = split.features.astype(np.float64)
            moved.append(replace(split, features=np.where(X > 0.9, np.nan, X + place[:, None]), theta=None))
        ranker = f"pairrank(missing=mean, model={model})"
        found.append(simulate((moved[0], moved[1]), ranker=ranker, rounds=20)["ndcg"])
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_the_record_tells_how_data_in_memory_were_loaded() -> None:
    raw = datasets.load("synthetic:tiny", normalise="log1p")
    assert simulate(raw, ranker="pdgd", rounds=2).spec.normalise == "log1p"
    assert simulate(raw, ranker="pdgd", rounds=2, normalise="log1p").spec.normalise == "log1p"
    with pytest.raises(OptionError, match="normalise 'global' are asked for, and the data in memory have fold 1"):
        simulate(raw, ranker="pdgd", rounds=2, normalise="global")
    with pytest.raises(OptionError, match="fold 3"):
        simulate(raw, ranker="pdgd", rounds=2, fold=3)


@dataclass(eq=False, kw_only=True)
class Fixed(LinearRanker):
    """A ranker of somebody's own: always the first k rows."""

    name: ClassVar[str] = "fixed"

    def _rank(self, features, k, rng):  # type: ignore[no-untyped-def]
        return Draw(np.arange(k), np.zeros(k, dtype=np.int64), False, {})

    def _learn(self, impression, clicks):  # type: ignore[no-untyped-def]
        self._weights = self._weights + clicks.sum()


def test_a_ranker_of_ones_own(splits: Splits, tmp_path: Path, heartbeat: None) -> None:
    records = simulate(splits, ranker=Fixed(4, seed=0), rounds=30)
    assert records.spec.ranker == "fixed(model=linear)"
    with pytest.raises(KeyboardInterrupt):
        simulate(splits, ranker=Fixed(4, seed=0), rounds=30, out=tmp_path, watch=lambda done: done < 9)
    resumed = simulate(splits, ranker=Fixed(4, seed=0), rounds=30, out=tmp_path)
    assert resumed.to_parquet() == records.to_parquet()
    with pytest.raises(UnknownNameError):
        simulate(records.spec, data=splits)


@pytest.mark.parametrize("rows", [lambda k: np.zeros(k, dtype=np.int64), lambda k: np.arange(k - 1)])
def test_a_list_with_a_document_twice_or_too_short_has_no_figures(
    splits: Splits, rows: Callable[[int], IntArray]
) -> None:
    class Wrong(Fixed):
        def _rank(self, features, k, rng):  # type: ignore[no-untyped-def]
            return Draw(rows(k), np.zeros(len(rows(k)), dtype=np.int64), False, {})

    with pytest.raises(OptionError, match=r"fixed shows the rows \[0, .* in round 1; expected \d+ different ones"):
        simulate(splits, ranker=Wrong(4), rounds=3)


def test_what_a_kept_record_would_not_tell_is_refused(tmp_path: Path) -> None:
    cold = simulate("synthetic:tiny", ranker=pairrank.PairRank(12), rounds=5, out=tmp_path)
    warm = pairrank.PairRank(12)
    priors.from_weights(np.ones(12), strength=100, variance=1 / 6).apply(warm)
    for other in (warm, pairrank.PairRank(12, seed=1)):  # the same spec, and not the same records
        with pytest.raises(OptionError, match=r"another seed than the run's, 0, or knows something already"):
            simulate("synthetic:tiny", ranker=other, rounds=5, out=tmp_path)
        assert simulate("synthetic:tiny", ranker=other, rounds=5).cndcg != cold.cndcg
    seeded = pairrank.PairRank(12, seed=1)
    assert simulate("synthetic:tiny", ranker=seeded, seed=1, rounds=5, out=tmp_path).spec.seed == 1


def test_a_spec_and_other_fields_are_refused() -> None:
    assert simulate(SPEC, seed=7, clicks="informational").spec == SPEC
    with pytest.raises(OptionError, match=r"the spec has its own rounds, seed; for others use dataclasses\.replace"):
        simulate(SPEC, rounds=20, seed=4)
    with pytest.raises(OptionError, match="the spec has its own ranker"):
        simulate(SPEC, ranker=pairrank.PairRank(12))
    with pytest.raises(OptionError, match="data twice"):
        simulate("synthetic:tiny", data="synthetic:linear")


def test_a_used_ranker_is_refused_and_left_as_it_was(splits: Splits) -> None:
    own = Fixed(4, seed=0)
    simulate(splits, ranker=own, rounds=30)
    before = own.digest()
    with pytest.raises(OptionError, match="has ranked 30 lists already"):
        simulate(splits, ranker=own, rounds=30)
    assert own.digest() == before


def test_what_is_no_ranker_is_named(splits: Splits) -> None:
    with pytest.raises(OptionError, match=r"ranker is the class Fixed; expected .* YourRanker\(n_features\)"):
        simulate(splits, ranker=Fixed, rounds=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"ranker is a Fixed; a spec holds a short text .* pairrank\.simulate"):
        RunSpec(data="synthetic:tiny", ranker=Fixed(4))  # type: ignore[arg-type]


def test_a_ranker_of_ones_own_comes_back_from_its_file(tmp_path: Path) -> None:
    own = Fixed(4, seed=3)
    own.learn(own.rank(np.eye(4)), [True, False, False, True])
    own.save(tmp_path / "own")
    for back in (pairrank.load(tmp_path / "own"), pairrank.load(tmp_path / "own", ranker=Fixed)):
        assert type(back) is Fixed
        assert back.digest() == own.digest()
    with pytest.raises(FileFormatError, match="'fixed'; expected 'pdgd'"):
        pairrank.load(tmp_path / "own", ranker=PDGD)


@pytest.mark.parametrize("data", [None, 3, (1, 2)])
def test_wrong_data(data: object) -> None:
    with pytest.raises(OptionError, match="expected a path"):
        simulate(data)  # type: ignore[arg-type]


SCRIPT = """
import sys
from pairrank.sim import RunSpec, simulate
print("started", flush=True)
simulate(RunSpec.from_json(sys.argv[1]), out=sys.argv[2], checkpoint_seconds=0.0)
"""
LONG = replace(SPEC, rounds=2500, ranker="pairrank-c")


@pytest.fixture(scope="module")
def undisturbed() -> Records:
    return simulate(LONG)


def start(out: Path) -> subprocess.Popen[str]:
    """A process that runs LONG, past its first checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, LONG.to_json(), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The checkpoint may be there from before: a process that has not got as far as its imports dies without a word.
    assert process.stdout is not None
    process.stdout.readline()
    checkpoint = out / "runs" / LONG.run_id / "checkpoint.bin"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, process.stderr.read() if process.stderr else ""
    return process


@pytest.mark.slow
def test_ctrl_c_leaves_a_state_that_resumes(tmp_path: Path, undisturbed: Records) -> None:
    for _ in range(2):
        process = start(tmp_path)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (130, -signal.SIGINT, 1)
        assert "KeyboardInterrupt" in errors
        assert load_records(tmp_path / "runs" / LONG.run_id) is None
    assert simulate(LONG, out=tmp_path).to_parquet() == undisturbed.to_parquet()


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_kill_9_at_any_time_changes_nothing(tmp_path: Path, undisturbed: Records) -> None:
    for wait in (0.0, 0.05, 0.17, 0.3):
        process = start(tmp_path)
        time.sleep(wait)
        process.kill()
        process.communicate()
    assert simulate(LONG, out=tmp_path).to_parquet() == undisturbed.to_parquet()
