"""Finding the splits of a data set under all the names that are in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairrank.data.layout import available, find
from pairrank.errors import DataError, OptionError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_folds(tmp_path: Path) -> None:
    touch(tmp_path, "Fold1/train.txt", "Fold1/vali.txt", "Fold2/train.txt.gz", "Fold2/test.txt.bz2")
    assert find(tmp_path, "vali", 1).path == tmp_path / "Fold1/vali.txt"
    second = find(tmp_path, "test", 2)
    assert (second.path, second.train) == (tmp_path / "Fold2/test.txt.bz2", tmp_path / "Fold2/train.txt.gz")
    assert second.name == tmp_path.name
    assert not second.shared
    assert available(str(tmp_path), 1) == ["train", "vali"]
    assert available(str(tmp_path), 2) == ["train", "test"]
    with pytest.raises(DataError, match="there is no fold 3; there are: 1, 2"):
        find(tmp_path, "train", 3)
    with pytest.raises(DataError, match=r"no file for split 'test'; .* found train.txt, vali.txt; .* dealt out"):
        find(tmp_path, "test", 1)


def test_a_folder_is_a_fold_by_its_whole_name_and_a_number_has_one(tmp_path: Path) -> None:
    touch(tmp_path, "Fold1/train.txt", "Fold1_backup/train.txt", "Fold2/train.txt", "fold 2/train.txt")
    assert find(tmp_path, "train", 1).path == tmp_path / "Fold1/train.txt"
    with pytest.raises(DataError, match="several folders are fold 2, Fold2, fold 2; expected one"):
        find(tmp_path, "train", 2)


@pytest.mark.parametrize("name", ["vali", "valid", "validation"])
@pytest.mark.parametrize("ending", [".txt", "", ".txt.gz", ".txt.bz2", ".txt.zst", ".gz"])
def test_spellings(tmp_path: Path, name: str, ending: str) -> None:
    touch(tmp_path, "train.txt", name + ending)
    assert find(tmp_path, "vali", 1).path == tmp_path / (name + ending)


def test_yahoo_sets(tmp_path: Path) -> None:
    touch(tmp_path, *(f"set{n}.{split}.txt" for n in (1, 2) for split in ("train", "valid", "test")))
    assert find(tmp_path, "vali", 2).path == tmp_path / "set2.valid.txt"
    assert find(tmp_path, "test", 1).train == tmp_path / "set1.train.txt"
    with pytest.raises(DataError, match="there is no set 3; there are: 1, 2"):
        find(tmp_path, "train", 3)


def test_plain_text_is_preferred_to_compressed(tmp_path: Path) -> None:
    touch(tmp_path, "train.txt.gz", "train.txt")
    assert find(tmp_path, "train", 1).path == tmp_path / "train.txt"


def test_a_folder_without_folds_has_only_the_first(tmp_path: Path) -> None:
    touch(tmp_path, "train.txt")
    with pytest.raises(DataError, match="has no Fold folders, so only fold 1 can be asked for; fold is 2"):
        find(tmp_path, "train", 2)


def test_one_file_holds_all_splits(tmp_path: Path) -> None:
    touch(tmp_path, "clicks.txt.gz")
    source = find(tmp_path / "clicks.txt.gz", "test", 1)
    assert source.shared
    assert source.name == "clicks"
    assert source.path == source.train
    with pytest.raises(DataError, match="one file has one fold, 1; fold is 2"):  # the same runs, counted as others
        find(tmp_path / "clicks.txt.gz", "test", 2)


@pytest.mark.parametrize("name", ["MSLR-WEB30K.zip", "ltrc_yahoo.tgz", "istella-s-letor.tar.gz", "MQ2008.RAR"])
def test_an_archive_is_to_be_unpacked(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    with pytest.raises(DataError, match="an archive of files; unpack it"):
        find(tmp_path / name, "train", 1)


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "train.txt")
    with pytest.raises(OptionError, match=r"split is 'dev'; expected one of train, vali, test$"):
        find(tmp_path, "dev", 1)
    with pytest.raises(OptionError, match="expected one of train, vali, test or all"):
        find(tmp_path / "train.txt", "dev", 1)
    with pytest.raises(DataError, match="no such file or folder"):
        find(tmp_path / "nowhere", "train", 1)
