"""The LETOR reader against a ten-line one, against its own writer, and against broken files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairrank.data import compressed_lines
from pairrank.data.letor import Raw, parse, write_letor
from pairrank.data.normalize import LARGEST
from pairrank.errors import DataError


def slow_twin(text: str) -> tuple[np.ndarray, list[int], list[str]]:
    """Features, grades and the query of each line, in the most obvious way."""
    rows, grades, queries = [], [], []
    for line in text.split("\n"):
        grade, _, rest = line.split("#")[0].strip().partition(" ")
        if grade:
            query, *tokens = rest.split()
            grades.append(int(grade))
            queries.append(query.removeprefix("qid:"))
            rows.append({int(i): float(v) for i, v in (token.split(":") for token in tokens)})
    features = np.zeros((len(rows), max((max(row, default=0) for row in rows), default=0)))
    for n, row in enumerate(rows):
        features[n, [i - 1 for i in row]] = list(row.values())
    return np.clip(features, -LARGEST, LARGEST).astype(np.float32), grades, queries


VALUES = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: str(np.float32(x))),
    st.decimals(-1000, 1000, places=6).map(str),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
IDS = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="#"), min_size=1, max_size=6)


@st.composite
def files(draw: st.DrawFn) -> str:
    """Sparse or dense LETOR text, indices in any order, with comments, blank lines and odd spacing."""
    lines = []
    for query in draw(st.lists(IDS, min_size=1, max_size=4, unique=True)):
        for _ in range(draw(st.integers(1, 3))):
            indices = draw(st.lists(st.integers(1, 12), unique=True, max_size=6))
            if draw(st.booleans()):
                indices.sort()
            tokens = [f"{i}:{draw(VALUES)}" for i in indices]
            blank, comment = draw(st.sampled_from([" ", "  ", "\t"])), draw(st.sampled_from(["", " # x:y 1:2", "#"]))
            lines.append(f"{draw(st.integers(0, 4))} qid:{query}{blank}{blank.join(tokens)}{comment}")
            lines += draw(st.sampled_from([[], [""], ["# only a comment"], ["  \r"]]))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(text=files(), block=st.sampled_from([1, 7, 64, 2**19]))
def test_reads_what_the_slow_twin_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int) -> None:
    monkeypatch.setattr(compressed_lines, "BLOCK", block)
    path = tmp_path / "file.txt"
    path.write_bytes(text.encode())
    raw = parse(path)
    features, grades, queries = slow_twin(text)
    assert raw.features.tobytes() == features.tobytes()
    assert raw.features.shape == features.shape
    assert raw.grades.tolist() == grades
    assert np.repeat(raw.query_ids, np.diff(raw.offsets)).tolist() == queries
    assert raw.query_ids.tolist() == list(dict.fromkeys(queries))


@st.composite
def raws(draw: st.DrawFn) -> Raw:
    """Parsed files of any shape."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    n, d = sum(sizes), draw(st.integers(1, 5))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    features = np.array(draw(st.lists(finite, min_size=n * d, max_size=n * d)), dtype=np.float32).reshape(n, d)
    grades = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    ids = draw(st.lists(IDS, min_size=len(sizes), max_size=len(sizes), unique=True))
    return Raw(features, grades, np.concatenate([[0], np.cumsum(sizes)]), np.array(ids))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(raw=raws(), suffix=st.sampled_from(compressed_lines.SUFFIXES))
def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path, raw: Raw, suffix: str) -> None:
    path = tmp_path / f"round.txt{suffix}"
    write_letor(raw, path)
    again = parse(path)
    assert again.features.tobytes() == raw.features.tobytes()
    assert again.grades.tolist() == raw.grades.tolist()
    assert again.offsets.tolist() == raw.offsets.tolist()
    assert again.query_ids.tolist() == raw.query_ids.tolist()


BROKEN = {
    "1:0.5 2:1": "line 3: the grade is '1:0.5'; expected a whole number from 0 to 30, in lines of LETOR text such as",
    "1 1:0.5 2:1": "line 3: '1:0.5' follows the grade; expected qid: and the query's id",
    "1": "line 3: nothing follows the grade; expected qid:",
    "1 qid: 1:2": "line 3: 'qid:' follows the grade",
    "1.5 qid:1 1:2": "line 3: the grade is '1.5'; expected a whole number",
    "-1 qid:1 1:2": "line 3: the grade is '-1'; expected a whole number",
    "31 qid:1 1:2": "line 3: the grade is '31'; expected a whole number from 0 to 30",
    "1 qid:1 1:abc": "line 3: the value of feature 1 is 'abc'; expected a number",
    "1 qid:1 1:nan": "line 3: the value of feature 1 is 'nan'; expected a number",
    "1 qid:1 2:inf": "line 3: the value of feature 2 is 'inf'; expected a number",
    "1 qid:1 1:": "line 3: the value of feature 1 is ''; expected a number",
    "1 qid:1 0:1 1:2": "line 3: the feature index is '0'; expected 1 to 100000; scikit-learn's",
    "1 qid:1 100001:1": "line 3: the feature index is '100001'; expected 1 to 100000",
    "1 qid:1 123456789:1": "line 3: the feature index is '123456789'",
    "1 qid:1 -1:1": "line 3: found '-1:1'; expected 'grade qid:id index:value",
    "1 qid:1 1:2 word": "line 3: found 'word'; expected 'grade qid:id index:value",
    "1 qid:1 2:1 2:2": "line 3: feature 2 comes twice",
    "1 qid:1 2:1 1:1 2:2": "line 3: feature 2 comes twice",
}


@pytest.mark.parametrize(("line", "message"), BROKEN.items())
def test_a_broken_line_is_named_with_what_was_expected(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"# a comment\n1 qid:1 1:0.5 3:2\n{line}\n1 qid:1 1:0.5\n")
    with pytest.raises(DataError) as caught:
        parse(path)
    assert f"{path}: {message}" in str(caught.value)


def test_line_numbers_go_on_from_block_to_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_lines, "BLOCK", 32)
    path = tmp_path / "train.txt"
    path.write_text("".join(f"0 qid:{n // 10} 1:{n}\n" for n in range(100)) + "0 qid:10 1:x\n")
    with pytest.raises(DataError, match="line 101: the value of feature 1 is 'x'"):
        parse(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_documents_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match="line 1: the file holds no documents; expected 'grade qid:id"):
        parse(path)


def test_values_beyond_float32_become_its_largest(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"0 qid:1 1:1.7976931348623157e308 2:-1e400 3:{'9' * 60} 4:{float(LARGEST)!r} 5:1e-400\n")
    assert parse(path).features.tolist() == [[LARGEST, -LARGEST, LARGEST, LARGEST, 0.0]]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_mark_of_byte_order_is_passed_over(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"1 qid:1 1:2{end}", encoding="utf-8-sig", newline="")
    assert parse(path).features.tolist() == [[2.0]]


def test_grades_may_be_spelt_as_floats(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("2.0 qid:1 1:1\n0.0 qid:1 1:2\n1e0 qid:1 1:2\n")
    assert parse(path).grades.tolist() == [2, 0, 1]


def test_a_query_in_two_places_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("0 qid:b 1:1\n1 qid:a 1:2\n2 qid:b 1:3\n3 qid:c 1:4\n4 qid:a 1:5\n")
    with pytest.raises(DataError, match=r"line 3: query 'b' goes on after other queries; .* sort the file by query"):
        parse(path)


def test_progress_counts_the_bytes_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_lines, "BLOCK", 100)
    text = "".join(f"0 qid:1 1:{n}\n" for n in range(2000)).encode()
    for name, content in {"a.txt": text, "a.txt.gz": gzip.compress(text)}.items():
        path = tmp_path / name
        path.write_bytes(content)
        seen: list[int] = []
        parse(path, progress=seen.append)
        assert seen == sorted(seen)
        assert seen[-1] == len(content)
