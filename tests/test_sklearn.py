"""The wrapper keeps scikit-learn's habits, and learns what the ranker learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import pairrank
from pairrank import data
from pairrank.errors import ClickError, DataError, FeatureError
from pairrank.sklearn import PairRankRanker, _shown


def expected_failures(estimator: Any) -> dict[str, str]:
    reason = "partial_fit takes clicks, one yes or no a row; the check gives it numbers or three classes"
    names = (
        "check_fit_score_takes_y",
        "check_n_features_in_after_fitting",
    )
    return dict.fromkeys(names, reason)


@parametrize_with_checks([PairRankRanker()], expected_failed_checks=expected_failures)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def tiny() -> data.Dataset:
    return data.load("synthetic:tiny", "train", 1)


def qid(labelled: Any) -> np.ndarray:
    return np.repeat(np.arange(labelled.n_queries), np.diff(labelled.offsets))


def test_labels_teach_an_order(tiny: Any) -> None:
    model = PairRankRanker().fit(tiny.features, tiny.grades, qid(tiny))
    untaught = PairRankRanker().partial_fit(tiny.features[:1], [False])
    taught, chance = (m.score(tiny.features, tiny.grades, qid(tiny)) for m in (model, untaught))
    assert taught > chance
    np.testing.assert_array_equal(model.coef_, model.ranker_.weights)


def test_only_the_order_of_labels_counts(tiny: Any) -> None:
    one = PairRankRanker().fit(tiny.features, tiny.grades, qid(tiny))
    two = PairRankRanker().fit(tiny.features, 10.0 * tiny.grades - 3.5, qid(tiny))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    texts = [PairRankRanker().fit([[0.0], [1.0]], y).coef_ for y in (["9", "10"], [9, 10])]
    np.testing.assert_array_equal(*texts)


def test_partial_fit_is_learn() -> None:
    rng = np.random.default_rng(0)
    X, clicks = rng.normal(size=(30, 4)), rng.random(30) < 0.4
    lists = np.repeat([7, 3, 5], 10)
    model = PairRankRanker(lam=2.0).partial_fit(X[:20], clicks[:20], lists[:20])
    model.partial_fit(X[20:], clicks[20:].astype(int), lists[20:])
    ranker = pairrank.PairRank(4, lam=2.0)
    for part in range(3):
        rows = slice(10 * part, 10 * part + 10)
        ranker.learn(_shown(ranker, X[rows]), clicks[rows])
    np.testing.assert_array_equal(model.coef_, ranker.weights)
    np.testing.assert_array_equal(model.predict(X), ranker.score(X))


def test_clicks_go_on_from_labels(tiny: Any) -> None:
    model = PairRankRanker(strength=50).fit(tiny.features, tiny.grades, qid(tiny))
    before = model.coef_
    model.partial_fit(tiny.features[:5], [False, True, False, False, False])
    assert not np.array_equal(model.coef_, before)
    assert model.ranker_.rank(tiny.features[:5]).number == 1


def test_groups_are_what_query_ids_are(tiny: Any) -> None:
    sizes = np.diff(tiny.offsets)
    by_id = PairRankRanker().fit(tiny.features, tiny.grades, qid(tiny))
    by_size = PairRankRanker().fit(
        tiny.features, tiny.grades, group=sizes, eval_set=[(tiny.features, tiny.grades)], eval_group=[sizes]
    )
    np.testing.assert_array_equal(by_id.coef_, by_size.coef_)
    assert by_size.evals_ == [by_id.score(tiny.features, tiny.grades, qid(tiny))]
    assert by_id.evals_ == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-6, 6), min_size=4, max_size=4), st.sampled_from([0.0, 1e6, -1e8]))
def test_units_and_constants_do_not_matter(exponents: list[float], constant: float) -> None:
    rng, units = np.random.default_rng(1), 10.0 ** np.array(exponents)
    X = rng.normal(size=(60, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=60) > 0.5).astype(np.int64)
    one = PairRankRanker().fit(X, y, group=[10] * 6)
    # As large as features may be, and no more digits than a double holds.
    other = X * units + constant * np.minimum(units, 1.0)
    two = PairRankRanker().fit(other, y, group=[10] * 6)
    np.testing.assert_allclose(two.predict(X * units), one.predict(X), rtol=1e-4, atol=1e-4)
    for model, rows in ((one, X), (two, other)):
        model.partial_fit(rows, y, group=[10] * 6)
    np.testing.assert_allclose(two.predict(X * units), one.predict(X), rtol=1e-4, atol=1e-4)
    one, two = (PairRankRanker().partial_fit(rows, y, group=[10] * 6) for rows in (X, other))
    np.testing.assert_allclose(two.predict(X * units), one.predict(X), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # PyTerrier's own, about pandas
def test_in_pyterrier(tiny: Any) -> None:
    """``form="ltr"`` fits with groups and a validation set, and ranks in a pipeline."""
    pt = pytest.importorskip("pyterrier")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "qid": [f"q{number}" for number in qid(tiny)],
            "query": "words",
            "docno": [f"d{row}" for row in range(len(tiny.grades))],
            "score": 0.0,
            "rank": 0,
            "features": list(tiny.features.astype(np.float64)),
        }
    )
    qrels = frame[["qid", "docno"]].assign(label=tiny.grades)
    learner = PairRankRanker()
    pipeline = pt.ltr.apply_learned_model(learner, form="ltr")
    pipeline.fit(frame.sample(frac=1.0, random_state=0), qrels, frame, qrels)
    ranked = pipeline(frame)
    assert learner.evals_[0] == pytest.approx(learner.score(tiny.features, tiny.grades, qid(tiny)))
    expected = dict(zip(frame["docno"], learner.predict(tiny.features), strict=True))
    assert dict(zip(ranked["docno"], ranked["score"], strict=True)) == pytest.approx(expected)
    best = ranked[ranked["rank"] == ranked["rank"].min()]
    assert (best["score"].to_numpy() == ranked.groupby("qid")["score"].max()[best["qid"]].to_numpy()).all()


def test_clones_and_parameters() -> None:
    model = PairRankRanker(lam=3.0, random_state=4)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(lam=5.0).lam == 5.0


def test_wrong_input(tiny: Any) -> None:
    X, y = np.ones((4, 2)), [0, 1, 0, 1]
    with pytest.raises(DataError, match="stand together"):
        PairRankRanker().fit(X, y, [0, 1, 0, 1])
    with pytest.raises(DataError, match="qid has shape"):
        PairRankRanker().fit(X, y, [0, 1])
    with pytest.raises(DataError, match="qid holds what cannot be sorted; expected all texts or all numbers"):
        PairRankRanker().fit(X, y, np.array(["a", "a", None, None], dtype=object))
    for group in ([2, 1], [4, 0], [2.0, 2.0], [[4]]):
        with pytest.raises(DataError, match="add up to 4"):
            PairRankRanker().fit(X, y, group=group)
    with pytest.raises(DataError, match="twice"):
        PairRankRanker().fit(X, y, [0, 0, 0, 0], group=[4])
    with pytest.raises(DataError, match="one group per set"):
        PairRankRanker().fit(X, y, group=[4], eval_set=[(X, y)])
    with pytest.raises(DataError, match="two different grades"):
        PairRankRanker().fit(X, [1, 1, 1, 1])
    with pytest.raises(ClickError):
        PairRankRanker().partial_fit(X, [0, 1, 2, 0])
    with pytest.raises(ClickError):
        PairRankRanker().partial_fit(X, None)
    with pytest.raises(NotFittedError):
        PairRankRanker().predict(X)
    with pytest.raises(NotFittedError):
        _ = PairRankRanker().coef_
    model = PairRankRanker().partial_fit(X, y)
    before = model.ranker_.digest()
    with pytest.raises(FeatureError, match="row 3, column 0 of the features is 1e"):  # in the second list
        model.partial_fit([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1e14, 0.0]], y, group=[2, 2])
    assert model.ranker_.digest() == before
    for grades in ([0.5, 1, 0, 1], ["a", "b", "a", "b"], [0, 5000, 20, 3]):  # numbers of clicks, of which 2^y is none
        with pytest.raises(DataError, match="grade for each row, a whole number up to 1000"):
            model.score(X, grades)
    assert model.score(X, np.array([0, 1, 0, 1], dtype=object)) == model.score(X, [0, 1, 0, 1])
    with pytest.raises(DataError, match="qid"):
        PairRankRanker().fit(np.ones((10_001, 1)), np.arange(10_001))


def test_a_fit_that_is_refused_leaves_the_estimator_as_it_was() -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"price": [3.0, 1.0, 2.0], "stars": [1.0, 2.0, 2.0]})
    model = PairRankRanker().fit(X, [0, 1, 0])
    before, scores = model.ranker_.digest(), model.predict(X)
    one_label, bad_sets = ([[1.0], [2.0]], [1, 1]), {"eval_set": [(X, [0.5, 1, 0])], "eval_group": [[3]]}
    for words, more in ((one_label, {}), ((X[["stars"]], [0, 1, 1]), {"group": [2]}), ((X, [1, 0, 0]), bad_sets)):
        with pytest.raises(DataError):
            model.fit(*words, **more)
        assert (model.n_features_in_, model.feature_names_in_.tolist()) == (2, ["price", "stars"])
        assert model.ranker_.digest() == before
        np.testing.assert_array_equal(model.predict(X), scores)


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_the_ranker_finds_the_columns_of_a_frame_by_name(learn: str) -> None:
    """Also where they come in another order than in the frame of the labels."""
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"price": [3.0, 1.0, 2.0], "stars": [100.0, 200.0, 200.0]})
    model = getattr(PairRankRanker(), learn)(X, [0, 1, 0])
    np.testing.assert_array_equal(model.ranker_.score(X[["stars", "price"]]), model.predict(X))
    assert model.ranker_.feature_names == ("price", "stars")
    again = model.fit(X.to_numpy(), [0, 1, 0])  # whatever was learned before: names, too
    assert again.ranker_.feature_names is None
