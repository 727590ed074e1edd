from __future__ import annotations

import sys

import numpy as np
import pytest

from pairrank import simulate
from pairrank.data import Dataset
from pairrank.errors import FileFormatError, MissingExtraError
from pairrank.sim import Records
from pairrank.sim.records import EVALUATION_COLUMNS, ROUND_COLUMNS


@pytest.fixture(scope="module")
def records(splits: tuple[Dataset, Dataset]) -> Records:
    return simulate(splits, ranker="pairrank-c", rounds=150)


def same_records(a: Records, b: Records) -> None:
    assert a.spec == b.spec
    assert a.columns.keys() == b.columns.keys()
    for name in a.columns:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        assert a[name].dtype == b[name].dtype
    assert a.profiles.keys() == b.profiles.keys()
    for t in a.profiles:
        np.testing.assert_array_equal(a.profiles[t], b.profiles[t])


def test_records_show_themselves_in_a_line_and_have_columns(records: Records) -> None:
    told = f"150 rounds, NDCG@10 {records.ndcg:.4f}, cNDCG@10 {records.cndcg:.1f}, regret {records.regret}>"
    assert repr(records).startswith("<Records of pairrank-c, navigational users, memory:")
    assert repr(records).endswith(f", seed 0: {told}")
    assert list(records) == list(records.columns)
    assert "ndcg" in records


def test_parquet_round_trip(records: Records) -> None:
    blob = records.to_parquet()
    again = Records.from_parquet(blob, seconds=records.seconds)
    same_records(again, records)
    assert again.summary() == records.summary()
    assert again.to_parquet() == blob


def test_absent_values_are_null_on_disk(records: Records) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = parquet.read_table(pa.BufferReader(records.to_parquet()))
    assert table["ndcg"].null_count == 150 - len(records.evaluated)
    assert set(table.column_names) == {"round", "block_size_by_rank", *ROUND_COLUMNS, *EVALUATION_COLUMNS}
    assert table["round"].to_pylist() == list(range(1, 151))


def test_a_truncated_file_is_refused(records: Records) -> None:
    blob = records.to_parquet()
    for length in (0, 3, len(blob) // 2, len(blob) - 1):
        with pytest.raises(FileFormatError):
            Records.from_parquet(blob[:length], seconds={})


def test_a_flipped_bit_is_refused_or_harmless(records: Records) -> None:
    blob = records.to_parquet()
    refused = 0
    for place in np.random.default_rng(0).integers(0, len(blob), 60):
        damaged = bytearray(blob)
        damaged[place] ^= 0x10
        try:
            found = Records.from_parquet(bytes(damaged), seconds=records.seconds)
        except FileFormatError:
            refused += 1
        else:
            same_records(found, records)
    assert refused > 20


def test_another_parquet_file_is_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    import io

    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pa.table({"x": [1, 2]}), sink)
    with pytest.raises(FileFormatError):
        Records.from_parquet(sink.getvalue(), seconds={})


def test_columns_are_read_only(records: Records) -> None:
    with pytest.raises(ValueError, match="read-only"):
        records["ndcg"][0] = 1


def test_without_pyarrow_the_message_installs_it(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pairrank\[lab\]'"):
        records.to_parquet()
