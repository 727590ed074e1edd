"""Documents and clicks as people have them: every way to say the same thing gives the same bytes."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import pairrank
from pairrank import Impression, PairRank
from pairrank.documents import COUNTED, Columns, clicked
from pairrank.errors import ClickError, CutoffError, FeatureError, OptionError
from pairrank.export.model import LinearModel

NAMES = ["price", "rating", "stock"]
ROWS = [[9.5, 4.0, 1.0], [7.0, 2.0, 0.0], [3.0, 5.0, 1.0], [8.0, 1.0, 0.0]]
IDS = ["boots", "sandals", "slippers", "clogs"]
DICTS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
FRAME = pd.DataFrame(ROWS, columns=NAMES)

WAYS: dict[str, Callable[[], Any]] = {
    "mapping": lambda: dict(zip(IDS, ROWS, strict=True)),
    "mapping by name": lambda: dict(zip(IDS, DICTS, strict=True)),
    "dicts with id": lambda: [{"id": id_, **row, "title": "x"} for id_, row in zip(IDS, DICTS, strict=True)],
    "pandas, index": lambda: FRAME.set_axis(IDS)[NAMES[::-1]],
    "pandas, column": lambda: FRAME.assign(title="text", id=IDS)[["title", "stock", "id", "price", "rating"]],
    "pandas, nullable": lambda: FRAME.convert_dtypes().assign(id=IDS),
    "polars": lambda: pl.DataFrame(ROWS, schema=NAMES, orient="row").select(pl.Series("id", IDS), *NAMES[::-1]),
    "Arrow": lambda: (
        pl.DataFrame(ROWS, schema=NAMES, orient="row").select(pl.Series("id", IDS), *NAMES[::-1]).to_arrow()
    ),
}


def new(**options: Any) -> PairRank:
    return PairRank(feature_names=NAMES, seed=3, **options)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_impression_and_the_same_model(way: str) -> None:
    plain, other = new(), new()
    for _ in range(5):
        expected, shown = plain.rank(ROWS, 3, ids=IDS), other.rank(WAYS[way](), 3)
        assert shown.to_bytes() == expected.to_bytes()
        assert shown.ids == tuple(IDS[row] for row in shown.ranking)
        plain.learn(expected, [True, False, False])
        later = Impression.from_bytes(shown.to_bytes())
        assert other.learn(later, [later.ids[0]])  # type: ignore[index]
    assert other.to_bytes() == plain.to_bytes()
    assert np.array_equal(other.score(WAYS[way]()), plain.score(ROWS))
    assert np.array_equal(other.inspect(WAYS[way]()).blocks, plain.inspect(ROWS).blocks)


def test_the_layout_in_memory_changes_no_bit() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 46))
    scores = []
    for layout in (rows, np.asfortranarray(rows), rows[::-1, ::-1].copy()[::-1, ::-1], pd.DataFrame(rows)):
        ranker = PairRank(46, seed=3)
        for _ in range(20):
            ranker.learn(ranker.rank(layout, 10), [False, True] * 5)
        scores.append(ranker.score(layout).tobytes())
    assert len(set(scores)) == 1


def test_the_name_of_the_only_feature_may_be_an_id() -> None:
    ranker = PairRank(1, feature_names=["a"])
    assert ranker.rank({"a": [1.0], "b": [2.0]}, explore=False).ids == ("a", "b")
    with pytest.raises(FeatureError, match="the keys are the features, a; expected documents by id"):
        ranker.rank({"a": [1.0]})


def test_ids_change_nothing_of_what_is_learned() -> None:
    named, bare = PairRank(3, seed=3), PairRank(3, seed=3)
    for _ in range(70):  # beyond the first lists, which are kept whole
        named.learn(named.rank(ROWS, 3, ids=IDS, locked=1), [False, True, False])
        bare.learn(bare.rank(ROWS, 3, locked=1), [False, True, False])
    assert named.to_bytes() == bare.to_bytes()


@pytest.mark.parametrize("frame", [FRAME.assign(sku=IDS), pl.DataFrame({**FRAME.to_dict("list"), "sku": IDS})])
def test_ids_by_the_name_of_their_column(frame: Any) -> None:
    assert set(new().rank(frame, ids="sku").ids or ()) == set(IDS)
    assert set(new().rank([{**row, "sku": i} for i, row in enumerate(DICTS)], ids="sku").ids or ()) == {0, 1, 2, 3}
    with pytest.raises(FeatureError, match="ids is the text 'ean', and the documents have no such column"):
        new().rank(frame, ids="ean")


def test_a_frame_for_a_ranker_without_names_is_an_array_with_ids() -> None:
    ranker = PairRank(3)
    assert ranker.rank(FRAME).ids is None  # its index only counts the rows
    assert ranker.rank(FRAME[2:]).ids in ((2, 3), (3, 2))
    for index in ([7, 7, 8, 9], [0.5, 1.5, 2.5, 3.5], pd.date_range("2026-01-01", periods=4), [("a", 1)] * 4):
        assert ranker.rank(FRAME.set_axis(index)).ids is None  # nobody meant those as ids
    assert set(ranker.rank(FRAME.assign(id=IDS)).ids or ()) == set(IDS)
    assert np.array_equal(ranker.score(FRAME), ranker.score(ROWS))


def test_names_live_in_the_ranker(tmp_path: Any) -> None:
    ranker = new(missing="mean")
    assert ranker.n_features == 3
    assert ranker.settings["feature_names"] == tuple(NAMES)
    assert ranker.fingerprint not in (PairRank(3, seed=3).fingerprint, new().fingerprint)
    ranker.save(tmp_path / "model.pairrank")
    again = pairrank.load(tmp_path / "model.pairrank")
    assert again.fingerprint == ranker.fingerprint
    assert (again.feature_names, again.missing) == (tuple(NAMES), "mean")
    assert LinearModel.from_ranker(again).feature_names == tuple(NAMES)
    assert "feature_names=('price', 'rating', 'stock')" in repr(again)
    assert "feature_names" not in PairRank(3).settings  # nor in the fingerprint: rankers of before keep theirs


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_what_is_missing_means_what_the_option_says(gap: Any) -> None:
    frame = FRAME.astype(object)
    frame.loc[1, "rating"] = gap
    X = np.array(ROWS)
    for missing, value in [(0.0, 0.0), (-1, -1.0), ("mean", (4.0 + 5.0 + 1.0) / 3)]:
        X[1, 1] = value
        rows = [row._asdict() for row in frame.itertuples(index=False)]
        for given in (frame, rows, dict(zip(IDS, rows, strict=True))):
            assert np.array_equal(new(missing=missing).check_features(given), X)
    with pytest.raises(FeatureError, match=r"row 1, feature 'rating' of the features is nan; .* say what they mean"):
        new().rank(frame)
    with pytest.raises(FeatureError, match="document 'sandals', feature 'rating' of the features is nan"):
        new().rank(frame, ids=IDS)


def test_documents_may_be_called_as_features_are() -> None:
    rows = dict(zip(NAMES, DICTS, strict=False))
    assert np.array_equal(new().score(rows), new().score(ROWS[:3]))


@pytest.mark.parametrize("options", [{"missing": "mean"}, {"model": "additive"}])
def test_a_feature_that_is_constant_but_for_gaps_does_not_vary(options: dict[str, Any]) -> None:
    rng, ranker = np.random.default_rng(0), PairRank(n_features=2, **options)
    for _ in range(70):
        X = np.column_stack([rng.random(10), np.where(rng.random(10) < 0.3, np.nan, 0.1)])
        ranker.learn(ranker.rank(X), X[:, 0] > 0.5)
    assert ranker._units.values[1] == 0.0  # the mean of several 0.1 is not 0.1


@pytest.mark.parametrize("wrong", [np.inf, 1e308])
def test_of_a_gap_and_an_infinite_value_the_value_is_wrong(wrong: float) -> None:
    with pytest.raises(FeatureError, match=r"document 'b', feature 'price' of the features is (inf|1e\+308)"):
        new(missing="mean").rank({"a": [np.nan, 1, 2], "b": [wrong, 3, 4], "c": [-wrong, 3, 4]})


def test_a_feature_that_a_document_lacks_is_missing_and_one_that_all_lack_is_a_mistake() -> None:
    rows: list[dict[str, float]] = [{"price": 1.0, "rating": 2.0, "stock": 3.0}, {"price": 4.0, "rating": 5.0}]
    assert new(missing="mean").check_features(rows).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 3.0]]
    with pytest.raises(FeatureError, match="row 1, feature 'stock' of the features is nan"):
        new().rank(rows)
    with pytest.raises(FeatureError, match="no document has the feature 'price'; did you mean 'prcie'"):
        new(missing=0.0).rank([{"prcie": 1.0, "rating": 2.0, "stock": 3.0}])
    assert new(missing="mean").check_features([[np.nan, 1, 2]]).tolist() == [[0.0, 1.0, 2.0]]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (FRAME.rename(columns={"rating": "ratings"}), "no column is called 'rating'; did you mean 'ratings'?"),
        (FRAME[["price"]], "no column is called 'rating'; there are: price"),
        (FRAME[["price", "rating", "stock", "price"]], "the frame has 2 columns 'price'; expected one"),
        (FRAME.assign(price="cheap"), "column 'price' of the frame is not all numbers"),
        (pl.DataFrame({"price": ["cheap"], "rating": [1], "stock": [2]}), "column 'price' of the frame is not all num"),
        (pl.DataFrame({"price": [{"net": 1}], "rating": [1], "stock": [2]}), "column 'price' of the frame is not"),
        (FRAME.assign(price=[10**400, 1, 1, 1]), "column 'price' of the frame is not all numbers"),
        (pa.table([[1], [1], [2], [3]], names=["price", "price", "rating", "stock"]), "the frame has 2 columns"),
        ({"a": [1, 2, 3], "b": DICTS[0]}, "some documents came as mappings and some as rows of numbers"),
        ([[1, 2, "much"]], "row 0, column 2 of the features is 'much'; expected a number"),
        ([{**DICTS[0], "stock": "much"}], "row 0, feature 'stock' of the features is 'much'; expected a number"),
        ([{"id": "a", **DICTS[0]}, DICTS[1]], "document 1 (counted from 0) has no 'id', although others have"),
        ({"a": ROWS[0], 1: ROWS[1]}, "1 came as an id; expected ids that are all texts or all whole numbers"),
        (dict(zip(NAMES, ROWS[:3], strict=True)), "the keys are the features, price, rating, stock; expected"),
        (DICTS[0], "the keys are the features, price, rating, stock; expected documents by id"),
        (FRAME[:3].assign(size=[1, 2, 3]).to_dict("list"), "the keys are the features, price, rating, stock; expected"),
        ({}, "features have shape (0,); expected 2-D, (n_docs, 3)"),
        (FRAME[:0], "features have no rows; expected one document at least"),
        (pl.DataFrame(ROWS, schema=NAMES, orient="row").lazy(), "features are a LazyFrame, which has to be collected"),
        (iter(ROWS), "features are a list_iterator; expected an array"),
        ([[1.0]], "features have 1 columns; this ranker was made for 3: price, rating, stock"),
    ],
)
def test_what_is_wrong_is_named(given: Any, sentence: str) -> None:
    with pytest.raises(FeatureError) as caught:
        new().rank(given)
    assert sentence in str(caught.value)


def test_wrong_ids_are_named() -> None:
    with pytest.raises(FeatureError, match="two documents have the id 'a'"):
        new().rank(ROWS, ids=["a", "b", "a", "c"])
    with pytest.raises(FeatureError, match="3 ids came for 4 documents"):
        new().rank(ROWS, ids=["a", "b", "c"])
    with pytest.raises(FeatureError, match="<NA> came as an id"):  # the others are whole numbers
        new().rank(FRAME, ids=pd.array([7, 8, None, 9], dtype="Int64"))
    with pytest.raises(FeatureError, match="by feature name, and this ranker has none; make it with feature_names="):
        PairRank(3).rank(DICTS)


def test_wrong_names_are_refused() -> None:
    for options, sentence in [
        ({"feature_names": ["a", "a"]}, "feature_names has 'a' twice"),
        ({"feature_names": "abc"}, "feature_names is 'abc'; expected texts, one per feature"),
        ({"feature_names": ["a", ""]}, "expected texts, one per feature"),
        ({"feature_names": ["a"], "n_features": 2}, "1 feature_names came for 2 features"),
        ({"n_features": 2, "missing": "zero"}, "missing is 'zero'; expected a number"),
        ({"n_features": 2, "missing": float("nan")}, "missing is nan; expected a number"),
        ({"n_features": 2, "missing": np.zeros(2)}, "missing is array([0., 0.]); expected a number"),
        ({"n_features": 2, "alpha": np.zeros(2)}, "alpha is array([0., 0.]); expected a number"),
        ({"n_features": 2, "pairs": np.array(["shown"])}, "pairs is array(['shown'], dtype='<U5'); expected one of"),
        ({"n_features": 2, "z": 10**400}, "expected a number from 0 to 1e+09"),
        ({}, "neither n_features nor feature_names came; expected one of them"),
    ]:
        with pytest.raises(OptionError) as caught:
            PairRank(**options)  # type: ignore[arg-type]
        assert sentence in str(caught.value)


def test_ids_of_an_arrow_column() -> None:
    for ids in (pa.array(["a", "b"]), pa.chunked_array([["a"], ["b"]])):
        assert Columns.of(1, None).read(np.array([[1.0], [2.0]]), ids).ids == ("a", "b")


def test_clicks_by_id() -> None:
    ids = ("a", "b", "c")
    for clicks in (
        ["b"],
        ("b",),
        {"b"},
        ["b", "b"],
        np.array(["b"]),
        pd.Series(["b"]),
        pa.array(["b"]),
        pa.chunked_array([["b"], ["b"]]),
        [False, True, False],
        [0, 1, 0],
        pd.Series([False, True, None], dtype=object).fillna(value=False),
        pd.Series([True, False, False], index=["b", "a", "c"]),  # by id, as groupby has it
        pd.Series({"c": 0, "b": 1, "a": 0}),
    ):
        assert clicked(clicks, 3, ids).tolist() == [False, True, False]
    assert not clicked([], 3, ids).any()
    assert not clicked(set(), 3, ids).any()
    numbers = (17, 1, 4)
    for clicks in ([17, 4], {17, 4}, np.array([17, 4]), pa.array([17, 4]), [True, False, True]):
        assert clicked(clicks, 3, numbers).tolist() == [True, False, True]
    assert clicked([1], 3, numbers).tolist() == [False, True, False]
    assert clicked(pd.Series([True, False, False]), 3, (2, 1, 0)).tolist() == [True, False, False]  # the index counts
    assert clicked(pd.Series([True, False, False], index=[0, 2, 1]), 3, (2, 1, 0)).tolist() == [False, False, True]
    for clicks, known, sentence in [
        (["d"], ids, "clicks name 'd', which the impression did not show; it showed a, b, c"),
        ("b", ids, "clicks are 'b'; expected a list of ids, or one yes or no per shown position"),
        ({"a": 0, "b": 1}, ids, "clicks are {'a': 0, 'b': 1}; expected a list of ids"),
        (None, ids, "clicks are None; expected a list of ids"),
        ([["b"]], ids, "clicks name ['b'], which the impression did not show"),
        ([["b"], ["b", "c"]], ids, "clicks are rows of different lengths"),
        ([0, 1, 0], numbers, "clicks of 0 and 1 may be ids here"),
        (["b"], None, "clicks came by id, and the documents had none when they were ranked"),
        ({"b"}, None, "clicks came by id, and the documents had none when they were ranked"),
        ([0.5, 0.5, 0.0], ids, "clicks hold values other than 0 and 1"),
        (np.ma.masked_array([1, 1, 0], [0, 1, 0]), None, "clicks are masked_array("),
        ([True, False], ids, "clicks have shape (2,); expected one per shown position, (3,)"),
    ]:
        with pytest.raises(ClickError) as caught:
            clicked(clicks, 3, known)
        assert sentence in str(caught.value)


def test_rows_of_a_frame_are_read_by_name() -> None:
    frame = pd.DataFrame({"rating": [4.5, 3.9], "price": [89, 25]}, index=["boots", "clogs"])
    columns = Columns.of(COUNTED, ["price", "rating"])
    expected = [[89, 4.5], [25, 3.9]]
    for rows in (dict(frame.iterrows()), [row for _, row in frame.iterrows()]):
        assert columns.read(rows).features.tolist() == expected
    counted = pd.Series([89, 4.5])
    assert columns.read({"boots": counted}).features.tolist() == expected[:1]


def test_masked_values_are_missing() -> None:
    masked = np.ma.masked_array([[1, 7], [3, 4]], mask=[[False, True], [False, False]])
    assert Columns.of(2, None, "mean").read(masked).features.tolist() == [[1, 4], [3, 4]]
    with pytest.raises(FeatureError, match="row 0, column 1 of the features is nan"):
        Columns.of(2, None).read(masked)


DATES = [dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)]


@pytest.mark.parametrize(
    "given",
    [
        np.array(DATES, dtype="datetime64[D]")[:, None],
        np.array([[1], [2]], dtype="timedelta64[s]"),
        np.array([[1 + 0j], [2 + 1j]]),
        [{"price": np.datetime64("2020-01-01")}, {"price": np.datetime64("2021-01-01")}],
        {"a": [np.datetime64("2020-01-01")], "b": [np.datetime64("2021-01-01")]},
        {"a": [np.datetime64("2020-01-01")], "b": [1]},
        pd.DataFrame({"price": DATES}),
        pd.DataFrame({"price": DATES, "other": [1, 2]}),
        pl.DataFrame({"price": [moment.date() for moment in DATES]}),
    ],
)
def test_dates_and_complex_numbers_are_no_features(given: Any) -> None:
    with pytest.raises(FeatureError, match=r"(?s)^(features|column|row).*expected (a )?number"):
        Columns.of(COUNTED, ["price"]).read(given)


def test_numbers_of_other_kinds_are_read_as_they_were() -> None:
    columns = Columns.of(2, None, 0.0)
    for given in ([["1", 2.5], [None, 2**70 / 2**62]], np.array([["1", "2.5"], ["nan", "256"]])):
        assert columns.read(given).features.tolist() == [[1, 2.5], [0, 256]]
    assert columns.read(np.array([[True, False]])).features.tolist() == [[1, 0]]


@pytest.mark.parametrize("ids", [5, 1.5, b"ab", True, {"a", "b"}, frozenset([1, 2])])
def test_ids_that_are_none(ids: Any) -> None:
    with pytest.raises(FeatureError, match=r"^ids are .*; expected one text or whole number per document"):
        PairRank(1).rank([[1.0], [2.0]], ids=ids)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_array, sparse.csc_matrix])
def test_sparse_arrays_are_read(kind: Any) -> None:
    assert Columns.of(3, None).read(kind(np.array(ROWS))).features.tolist() == ROWS


@pytest.mark.parametrize("given", [pl.LazyFrame({"price": [1.0]}), pl.Series([1.0])])
def test_what_is_no_frame_is_refused_without_a_warning(given: Any) -> None:
    with pytest.raises(FeatureError, match=r"expected 2-D|collected first"):
        Columns.of(COUNTED, ["price"]).read(given)


def test_clicks_of_a_generator() -> None:
    assert clicked((n == 1 for n in range(3)), 3).tolist() == [False, True, False]
    assert clicked(iter("b"), 2, ("a", "b")).tolist() == [False, True]
    assert clicked({"a": False, "b": True}.values(), 2, ("a", "b")).tolist() == [False, True]


@pytest.mark.parametrize("names", [5, True, [1, 2], {"a", "b"}])
def test_names_that_are_none(names: Any) -> None:
    with pytest.raises(OptionError, match=r"^feature_names is .*; expected texts, one per feature"):
        PairRank(feature_names=names)


@pytest.mark.parametrize("x", [["a"], [None], [[1.0, 2.0], [3.0]], ["2020-01-01"], [np.datetime64("2020-01-01")]])
def test_values_of_an_effect_that_are_no_numbers(x: Any) -> None:
    with pytest.raises(FeatureError, match=r"^x holds what is no finite number"):
        PairRank(1).effect(0, x)


def test_numbers_of_impressions_end_where_they_can_be_asked_for_again() -> None:
    ranker = PairRank(1)
    last = ranker.rank([[1.0], [2.0]], number=2**63 - 1)
    assert ranker.rank([[1.0], [2.0]], number=last.number).number == last.number
    with pytest.raises(OptionError, match="number is 9223372036854775808; expected a whole number"):
        ranker.rank([[1.0], [2.0]])


def test_no_number_of_locked_positions_is_a_mistake() -> None:
    with pytest.raises(CutoffError, match="locked is None; expected a whole number of positions, 0 or more"):
        PairRank(1).rank([[1.0], [2.0]], locked=None)  # type: ignore[arg-type]


def test_notebooks_get_tables_and_the_block_drawing() -> None:
    ranker = PairRank(feature_names=["price <€>", "rating"])
    shown = ranker.rank({"a&b": [1.0, 2.0], "c": [2.0, 1.0]})
    assert "a&amp;b" in shown._repr_html_()
    assert "price &lt;€&gt;" in ranker._repr_html_()
    assert ranker.inspect([[1.0, 2.0], [2.0, 1.0]])._repr_html_().startswith("<svg")
    assert "and 10 more" in PairRank(60)._repr_html_()
    assert len(repr(ranker.rank(np.zeros((500, 2)), 10))) < 200


def test_no_frame_package_is_imported_unasked() -> None:
    code = (
        "import sys, pairrank; r = pairrank.PairRank(feature_names=['a', 'b'])\n"
        "r.learn(r.rank({'x': {'a': 1, 'b': 2}, 'y': {'a': 2, 'b': 1}}), ['x'])\n"
        "sys.exit('pandas' in sys.modules or 'polars' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_everything_that_dir_names_is_there() -> None:
    assert {"PairRank", "load", "simulate", "data", "click_models"} <= set(dir(pairrank))
    for name in dir(pairrank):
        assert getattr(pairrank, name) is not None
