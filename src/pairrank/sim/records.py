"""What a simulated run gives: one row a round, in memory as arrays and on disk as Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from pairrank import metrics
from pairrank.checking import import_extra
from pairrank.errors import FileFormatError
from pairrank.sim.spec import RunSpec, data_name
from pairrank.types import AnyArray, FloatArray, IntArray

# Written in every round, about the list that was shown.
ROUND_COLUMNS: Mapping[str, type] = MappingProxyType(
    {"query": np.int64, "clicks": np.int64, "online_ndcg": np.float64, "regret": np.int64}
)
# Written after the scheduled rounds, about the ranker; NaN elsewhere, and where a ranker has no such thing.
EVALUATION_COLUMNS = ("ndcg", "cosine", "n_blocks", "block_at_1", "block_at_5", "block_at_10")
# Where a Parquet file says which run it holds; the id guards the spec, which Parquet keeps without a checksum.
_SPEC, _RUN = b"pairrank.spec", b"pairrank.run_id"
PHASES = ("rank", "users", "learn", "evaluate")


@dataclass(frozen=True)
class Summary:
    """A run in four numbers: final held-out NDCG@10, cNDCG, total regret, and the seconds that it took.

    ``curve`` has the held-out NDCG@10 after each scheduled round, where it is known.

    >>> import pairrank
    >>> run = pairrank.simulate("synthetic:tiny", rounds=20, schedule="every:10", ideal="").summary()
    >>> run.ndcg == run.curve[-1], len(run.curve)
    (True, 2)
    """

    spec: RunSpec
    ndcg: float
    cndcg: float
    regret: int
    seconds: float
    curve: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """The records of one run.

    Attributes
    ----------
    spec : what was run.
    columns : by name, one value a round (rounds count from 1):
        ``query`` index of the query in the training split, ``clicks`` how many, ``online_ndcg`` NDCG@10 of the shown
        list (0 where no candidate is relevant), ``regret`` mis-ordered pairs of the full list (what was shown, then
        the rest by the ranker's score before it learned); and, NaN except after scheduled rounds, ``ndcg`` the mean
        held-out NDCG@10 over queries with a relevant document (ties broken at random), ``cosine`` to the ideal
        weights, ``n_blocks`` and ``block_at_1``, ``_5``, ``_10`` the number of blocks and the size of the block at a
        rank, as means over a fixed panel of training queries.
    profiles : by round (1, 10, 100, ... and the last), the mean size of the block at every rank.
    seconds : spent in each phase; never part of what must be equal between equal runs.
    functions : what each feature adds to the score at the end, where the model is additive and was run just now.

    >>> import pairrank
    >>> records = pairrank.simulate("synthetic:tiny", rounds=20, schedule="every:10", ideal="")
    >>> len(records), records.evaluated.tolist()
    (20, [10, 20])
    >>> records.ndcg == records["ndcg"][-1]
    np.True_
    """

    spec: RunSpec
    columns: Mapping[str, AnyArray]
    profiles: Mapping[int, FloatArray] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    functions: list[dict[str, Any]] | None = None

    def __getitem__(self, name: str) -> AnyArray:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return self.spec.rounds

    def __repr__(self) -> str:
        spec = self.spec
        told = f"NDCG@10 {self.ndcg:.4f}, cNDCG@10 {self.cndcg:.1f}, regret {self.regret}"
        who = f"{spec.ranker}, {spec.clicks} users, {data_name(spec.data)}, seed {spec.seed}"
        return f"<Records of {who}: {spec.rounds} rounds, {told}>"

    @cached_property
    def evaluated(self) -> IntArray:
        """The rounds after which the ranker was evaluated; ``records["ndcg"][records.evaluated - 1]`` is the curve."""
        return self.spec.evaluation_rounds()

    @property
    def ndcg(self) -> float:
        """Held-out NDCG@10 after the last round."""
        return float(self.columns["ndcg"][-1])

    @property
    def cndcg(self) -> float:
        """Σ_t γ^(t-1) NDCG@10 of the shown lists, γ = 0.9995."""
        return metrics.cndcg(self.columns["online_ndcg"])

    @property
    def regret(self) -> int:
        """Mis-ordered pairs over all rounds."""
        return int(self.columns["regret"].sum())

    def summary(self) -> Summary:
        """The run in four numbers."""
        curve = tuple(self.columns["ndcg"][self.evaluated - 1].tolist())
        return Summary(self.spec, self.ndcg, self.cndcg, self.regret, sum(self.seconds.values()), curve)

    def to_parquet(self) -> bytes:
        """The records (without the seconds) as a Parquet file that carries its spec; equal records, equal bytes."""
        pa, parquet = _arrow()
        rounds = range(1, self.spec.rounds + 1)
        table = {"round": pa.array(rounds, pa.int64())}
        table |= {name: pa.array(self.columns[name]) for name in ROUND_COLUMNS}
        # An absent value is a null on disk: readers other than ours then leave it out of their means.
        table |= {name: pa.array(self.columns[name], from_pandas=True) for name in EVALUATION_COLUMNS}
        profiles = [self.profiles.get(t) for t in rounds]
        table["block_size_by_rank"] = pa.array(profiles, pa.list_(pa.float64()))
        written = pa.table(table).replace_schema_metadata({_SPEC: self.spec.to_json(), _RUN: self.spec.run_id})
        sink = io.BytesIO()
        parquet.write_table(written, sink, compression="zstd", write_page_checksum=True)
        return sink.getvalue()

    @classmethod
    def from_parquet(cls, blob: bytes, *, seconds: Mapping[str, float], source: str = "these bytes") -> Records:
        """The records that `to_parquet` wrote; raises `FileFormatError` for anything truncated or damaged."""
        pa, parquet = _arrow()
        try:
            table = parquet.read_table(pa.BufferReader(blob), page_checksum_verification=True)
            metadata = table.schema.metadata or {}
            spec = RunSpec.from_json(metadata[_SPEC], source=source)
            columns = {name: table[name].to_numpy() for name in ROUND_COLUMNS}
            columns |= {name: table[name].to_numpy().astype(np.float64) for name in EVALUATION_COLUMNS}
            lists = table["block_size_by_rank"].to_pylist()
        except (pa.ArrowException, KeyError, OSError, ValueError) as problem:
            raise FileFormatError(f"{source} is truncated, damaged or not a run's records: {problem}") from None
        if table.num_rows != spec.rounds or metadata.get(_RUN) != spec.run_id.encode():
            raise FileFormatError(f"{source} is damaged: its spec and its records do not fit")
        profiles = {t: np.array(sizes) for t, sizes in enumerate(lists, start=1) if sizes is not None}
        return cls(spec, columns, profiles, seconds)


def _arrow() -> tuple[Any, Any]:
    return import_extra("pyarrow", "lab"), import_extra("pyarrow.parquet", "lab")
