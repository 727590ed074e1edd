"""Where the splits of a data set lie on disk.

- a folder with ``Fold1``, ``Fold2``, ... that hold ``train.txt``, ``vali.txt`` and ``test.txt`` (``fold`` chooses);
- a folder that holds these files itself;
- a folder with Yahoo's ``set1.train.txt``, ``set1.valid.txt``, ... (``fold`` chooses the set);
- one file: its queries are dealt out, three fifths to train and a fifth each to vali and test. It has one fold.

``valid`` and ``validation`` are as good as ``vali``; files may be compressed and may lack the ``.txt``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pairrank.data.compressed_lines import SUFFIXES
from pairrank.errors import DataError, OptionError

SPLITS = ("train", "vali", "test")
WHOLE = "all"

_SPELLINGS = {"train": ("train",), "vali": ("vali", "valid", "validation"), "test": ("test",)}
_FOLD = re.compile(r"fold[ _-]?(\d+)", re.IGNORECASE)
_SET = re.compile(r"set(\d+)\..+", re.IGNORECASE)
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".7z", ".rar")  # as the public sets come


@dataclass(frozen=True)
class Source:
    """The file that a split is in, the file of the training split, and whether one file holds all splits."""

    name: str
    path: Path
    train: Path
    shared: bool


def check_split(split: str, *, whole: bool) -> None:
    """An error where ``split`` is none; "all" is one only of what is in one piece (``whole``)."""
    if split not in SPLITS and not (whole and split == WHOLE):
        also = f" or {WHOLE}" if whole else ""
        raise OptionError(f"split is {split!r}; expected one of {', '.join(SPLITS)}{also}")


def find(path: Path, split: str, fold: int) -> Source:
    """The files of a split; raises `DataError` with what was looked for and what is there."""
    if path.is_file():
        check_split(split, whole=True)
        if path.name.lower().endswith(_ARCHIVES):
            raise DataError(f"{path}: an archive of files; unpack it, and name the folder with what was in it")
        if fold != 1:
            raise DataError(f"{path}: one file has one fold, 1; fold is {fold}")
        return Source(path.name.split(".")[0], path, path, shared=True)
    check_split(split, whole=False)
    if not path.is_dir():
        raise DataError(f"{path}: no such file or folder; expected a LETOR file, its folder or a synthetic: name")
    folder, prefix = _fold_folder(path, fold)
    return Source(path.resolve().name, _file(folder, prefix, split), _file(folder, prefix, "train"), shared=False)


def available(text: str, fold: int) -> list[str]:
    """The splits that a folder (or a synthetic name) has; train is always among them, or `find` says what is wrong."""
    path = Path(text)
    if not path.is_dir():
        return list(SPLITS)
    find(path, "train", fold)
    folder, prefix = _fold_folder(path, fold)
    return [split for split in SPLITS if _candidates(folder, prefix, split)]


def _fold_folder(path: Path, fold: int) -> tuple[Path, str]:
    """The folder that holds the split files of ``fold``, and what their names begin with."""
    for pattern, what in ((_FOLD, "fold"), (_SET, "set")):
        matches = ((pattern.fullmatch(entry.name), entry) for entry in sorted(path.iterdir()))
        numbered = [(int(m[1]), entry) for m, entry in matches if m and entry.is_dir() == (pattern is _FOLD)]
        if numbered:
            asked = [entry for n, entry in numbered if n == fold]
            if not asked:
                known = ", ".join(map(str, sorted({n for n, _ in numbered})))
                raise DataError(f"{path}: there is no {what} {fold}; there are: {known}")
            if pattern is _SET:
                return path, f"set{fold}."
            if len(asked) > 1:
                names = ", ".join(entry.name for entry in asked)
                raise DataError(f"{path}: several folders are fold {fold}, {names}; expected one: rename the others")
            return asked[0], ""
    if fold != 1:
        raise DataError(f"{path}: has no Fold folders, so only fold 1 can be asked for; fold is {fold}")
    return path, ""


def _candidates(folder: Path, prefix: str, split: str) -> list[Path]:
    """The files that could be ``split``, the likeliest first."""
    present = {entry.name.lower(): entry for entry in folder.iterdir() if entry.is_file()}
    return [
        present[name]
        for spelling in _SPELLINGS[split]
        for extension in (".txt", "")
        for suffix in SUFFIXES
        if (name := f"{prefix}{spelling}{extension}{suffix}") in present
    ]


def _file(folder: Path, prefix: str, split: str) -> Path:
    found = _candidates(folder, prefix, split)
    if found:
        return found[0]
    there = ", ".join(sorted(entry.name for entry in folder.iterdir())[:12]) or "nothing"
    raise DataError(
        f"{folder}: no file for split {split!r}; expected {prefix}{split}.txt or the like, found {there}; a file "
        "that is given by its own path is dealt out into train, vali and test"
    )
