"""`load`: real and made-up folders, single files, what is learned from the training split, and the cache in between."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairrank.data import Dataset, letor, load, loading, write_letor
from pairrank.data.normalize import NAMES
from pairrank.errors import DataError, OptionError, StorageError, UnknownNameError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three splits; feature 2 is constant in training only, feature 4 comes in training only."""
    path = tmp_path / "Own"
    (path / "Fold1").mkdir(parents=True)
    (path / "Fold1" / "train.txt").write_text(
        "0 qid:1 1:1 2:7 3:-5 4:1\n1 qid:1 1:3 2:7 3:5 4:2\n2 qid:2 1:0 2:7\n0 qid:2 1:10 2:7 3:1\n"
    )
    (path / "Fold1" / "vali.txt").write_text("0 qid:9 1:5 2:3\n1 qid:9 1:6 2:4 3:2\n")
    (path / "Fold1" / "test.txt").write_text("0 qid:8 1:5 2:3 3:1 7:4\n1 qid:8 1:25 2:4 3:2\n")
    return path


def same(one: Dataset, other: Dataset) -> None:
    for name in ("features", "grades", "offsets", "query_ids", "feature_ids"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    for name in ("name", "split", "fold", "normalisation", "n_grades"):
        assert getattr(one, name) == getattr(other, name)


def test_constant_features_of_training_are_dropped_everywhere(folder: Path) -> None:
    for split in ("train", "vali", "test"):
        dataset = load(folder, split)
        assert dataset.feature_ids.tolist() == [1, 3, 4]
        assert dataset.n_grades == 3  # though vali and test have grades 0 and 1 alone
        assert (dataset.name, dataset.split, dataset.fold) == ("Own", split, 1)
        assert load(folder, split, drop_constant=False).feature_ids.tolist() == [1, 2, 3, 4]


def test_per_query_min_max_is_the_default(folder: Path) -> None:
    dataset = load(folder)
    assert dataset.normalisation == "query"
    assert dataset.features.tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0]]
    assert dataset.features.dtype == np.float32


def test_global_ranges_come_from_training(folder: Path) -> None:
    test = load(folder, "test", normalise="global")
    assert test.features.tolist() == [[np.float32(0.5), np.float32(0.6), 0], [2.5, np.float32(0.7), 0]]
    assert test.normaliser is not None
    np.testing.assert_array_equal(test.normaliser.shift, [0, -5, 0])
    np.testing.assert_array_equal(test.normaliser.spread, [10, 10, 2])


@pytest.mark.parametrize("normalise", NAMES)
@pytest.mark.parametrize("split", ["train", "vali", "test"])
def test_the_cache_changes_nothing(folder: Path, normalise: str, split: str) -> None:
    plain = load(folder, split, normalise=normalise, cache=False)
    same(load(folder, split, normalise=normalise), plain)
    same(load(folder, split, normalise=normalise), plain)


def test_a_second_load_reads_no_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(folder, "test")
    monkeypatch.setattr(letor, "parse", None)
    again = load(folder, "test")
    same(first, again)
    assert isinstance(again.features.base, np.memmap)
    with pytest.raises(TypeError):
        load(folder, "test", normalise="none")


def test_other_content_and_other_training_data_are_other_entries(folder: Path) -> None:
    load(folder, "test")
    train = folder / "Fold1" / "train.txt"
    train.write_text(train.read_text().replace("2:7", "2:8", 1))
    assert load(folder, "test").feature_ids.tolist() == [1, 2, 3, 4]


def test_a_damaged_cache_is_rebuilt(folder: Path, cache_folder: Path) -> None:
    first = load(folder, "vali", cache=False)
    load(folder, "vali")
    for file in cache_folder.rglob("features.npy"):
        file.unlink()
        file.write_bytes(b"damaged")
    same(load(folder, "vali"), first)
    same(load(folder, "vali"), first)


def test_a_copy_elsewhere_shares_the_entry(folder: Path, cache_folder: Path, tmp_path: Path) -> None:
    load(folder, "test")
    entries = len(list((cache_folder / "entries").iterdir()))
    shutil.copytree(folder, tmp_path / "copy")
    assert load(tmp_path / "copy", "test").name == "copy"
    assert len(list((cache_folder / "entries").iterdir())) == entries


def test_a_cache_that_cannot_be_written_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load(folder, "test", cache=False)
    monkeypatch.setenv("PAIRRANK_CACHE", str(folder / "Fold1" / "train.txt" / "cache"))
    same(load(folder, "test"), plain)


def test_one_file_is_dealt_out_by_query(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    path.write_text("".join(f"{n % 3} qid:q{n // 4} 1:{n} 2:{n * n % 7}\n" for n in range(4 * 23)))
    parts = {split: load(path, split) for split in ("train", "vali", "test")}
    assert [part.n_queries for part in parts.values()] == [15, 4, 4]
    ids = [name for part in parts.values() for name in part.query_ids.tolist()]
    assert sorted(ids) == sorted(f"q{n}" for n in range(23))
    everything = load(path, "all", normalise="none")
    assert everything.query_ids.tolist() == [f"q{n}" for n in range(23)]
    vali = load(path, "vali", normalise="none")
    for i, name in enumerate(vali.query_ids.tolist()):
        expected = everything.query(int(name[1:]))
        assert vali.query(i)[0].tolist() == expected[0].tolist()
        assert vali.query(i)[1].tolist() == expected[1].tolist()
    assert load(path, "test").query_ids.tolist() == parts["test"].query_ids.tolist()


def test_a_file_of_two_queries_cannot_be_dealt_out(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    path.write_text("0 qid:1 1:1\n0 qid:2 1:2\n")
    with pytest.raises(DataError, match="has 2 queries, too few to deal out; expected at least 3, or split='all'"):
        load(path)
    assert load(path, "all").n_queries == 2


def test_what_write_letor_wrote_loads_as_it_was(folder: Path, tmp_path: Path) -> None:
    dataset = load(folder, "test", normalise="none")
    write_letor(dataset, tmp_path / "again.txt.gz")
    again = load(tmp_path / "again.txt.gz", "all", normalise="none", drop_constant=False)
    assert again.features[:, dataset.feature_ids - 1].tolist() == dataset.features.tolist()
    assert again.query_ids.tolist() == dataset.query_ids.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_ids": np.array(["red shoes", "b"])}, "a query's id is 'red shoes'"),
        ({"query_ids": np.array(["a", "b#2"])}, "a query's id is 'b#2'"),
        ({"query_ids": np.array(["a", "a"])}, "two of one id"),
        ({"offsets": np.array([0, 4, 4])}, "one without documents"),
        ({"grades": np.array([0, 31, 0, 1])}, "a grade is 31; a LETOR file has 0 to 30"),
        ({"feature_ids": np.array([0, 1])}, "a feature has the number 0"),
        ({"feature_ids": np.array([1, 100_001])}, "one above 100000"),
        ({"feature_ids": np.array([1, 1])}, "that of another"),
        ({"features": np.array([[1.0, np.nan]] * 4, dtype=np.float32)}, "a value is not finite"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {"features": np.eye(4, 2, dtype=np.float32), "grades": np.array([0, 1, 0, 1])}
    arrays |= {"offsets": np.array([0, 2, 4]), "query_ids": np.array(["a", "b"]), "feature_ids": np.array([1, 2])}
    with pytest.raises(DataError, match=message):
        write_letor(Dataset(**(arrays | changes)), tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()
    with pytest.raises(StorageError, match="cannot be written: No such file or directory"):
        write_letor(Dataset(**arrays), tmp_path / "nowhere" / "out.txt")


def test_what_is_asked_for_wrongly_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no normalisation is called 'minmax'"):
        load(folder, normalise="minmax")
    with pytest.raises(OptionError, match="split is 'dev'"):
        load(folder, "dev")
    with pytest.raises(DataError, match="there is no fold 2; there are: 1"):
        load(folder, fold=2)
    flat = tmp_path / "flat.txt"
    flat.write_text("0 qid:1 1:1\n0 qid:2 1:1\n1 qid:3 1:1\n")
    with pytest.raises(DataError, match="no feature varies over the training split"):
        load(flat, "all")


def test_forty_of_the_features_of_mq2008_remain(real_data: Path) -> None:
    splits = {split: load(real_data / "MQ2008", split) for split in ("train", "vali", "test")}
    for dataset in splits.values():
        assert dataset.n_features == 40
        assert sorted({*range(1, 47)} - {*dataset.feature_ids.tolist()}) == [6, 7, 8, 9, 10, 43]
        assert dataset.n_grades == 3
        assert dataset.features.min() == 0
        assert dataset.features.max() == 1
    assert splits["train"].query_ids[0] == "10002"
    assert load(real_data / "MQ2008", fold=2).query_ids[0] != "10002"


def test_the_mslr_sample_keeps_all_features(real_data: Path) -> None:
    dataset = load(real_data / "MSLR-sample")
    assert (dataset.n_features, dataset.n_grades) == (136, 5)
    features, _ = dataset.query(0)
    spread = np.ptp(features, axis=0)
    assert set(spread.tolist()) <= {0.0, 1.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_for_long_files_on_terminals_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "_LONG", 1)
    load(folder, cache=False)
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    plain = load(folder, cache=False)
    assert "reading train.txt" in terminal.getvalue()
    for module in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, module, None)
    same(load(folder, cache=False), plain)
