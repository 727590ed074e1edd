"""Learning from lists that a ranker did not make alone."""

from __future__ import annotations

import numpy as np
import pytest

from pairrank import PairRank, rankers
from pairrank.errors import InputError
from pairrank.rng import Purpose, generator
from pairrank.trials.interleaving import interleave
from pairrank.trials.shown import as_shown
from pairrank.types import Impression

TRUTH = np.array([2.0, -1.0, 0.5])


LEARNERS = [name for name in rankers.names() if name != "olranknet" and rankers.make(name, n_features=3).any_list]


def test_who_learns_from_any_list() -> None:
    """Those that learn from pairs; not those that weigh by the chances, or the winners, of a draw of their own."""
    assert {"pairrank", "p2linrank", "posterior-sampling", "sgd-ranknet", "epsilon-greedy"} <= set(LEARNERS)
    assert not {"pdgd", "dbgd", "mgd", "offline-ranknet"} & set(LEARNERS)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns_what_users_want(name: str, interleaved: bool) -> None:
    ranker = rankers.make(name, n_features=3, seed=1)
    for t in range(150):
        rng = generator(9, t, Purpose.DATA)
        X = rng.random((6, 3))
        own, as_sent = ranker.rank(X), rng.permutation(6)
        shown = interleave(own.ranking, as_sent, 4, rng.random(4)).ranking if interleaved else as_sent[:4]
        impression = as_shown(own, X, shown)
        clicks = rng.random(4) < 1 / (1 + np.exp(-4 * (impression.features @ TRUTH - 0.75)))
        assert ranker.learn(impression, clicks)
        assert not ranker.learn(impression, clicks)  # once
    weights = ranker.weights
    assert weights @ TRUTH / (np.linalg.norm(weights) * np.linalg.norm(TRUTH)) > 0.8


def test_it_goes_to_bytes_and_back() -> None:
    ranker, X = PairRank(3, seed=1), generator(0, 0, Purpose.DATA).random((5, 3))
    impression = as_shown(ranker.rank(X, 2), X, np.array([4, 0, 2]))
    again = Impression.from_bytes(impression.to_bytes())
    assert again.ranking.tolist() == [4, 0, 2]
    assert again.features.tolist() == X[[4, 0, 2]].tolist()
    assert ranker.learn(again, [True, False, False])


def test_a_list_that_was_not_explored_can_be_learned_as_shown() -> None:
    ranker, X = PairRank(3, seed=1), generator(0, 0, Purpose.DATA).random((5, 3))
    ranker.learn(as_shown(ranker.rank(X, explore=False), X, np.array([3, 1])), [False, True])
    assert ranker.weights @ (X[1] - X[3]) > 0


def test_ids_are_those_of_what_was_shown_where_they_are_known() -> None:
    ranker, X = PairRank(1, seed=1), np.array([[1.0], [0.0], [0.5]])
    whole, top = (ranker.rank(X, k, ids=["a", "b", "c"]) for k in (None, 2))
    impression = as_shown(whole, X, np.array([1, 0]))
    assert impression.ids == ("b", "a")
    ranker.learn(impression, clicks=["a"])
    assert ranker.weights > 0
    (row,) = {0, 1, 2} - set(top.ranking.tolist())  # whose id only the caller has
    assert as_shown(top, X, np.array([row])).ids is None


def test_wrong_input_says_so() -> None:
    ranker, X = PairRank(3, seed=1), generator(0, 0, Purpose.DATA).random((5, 3))
    own = ranker.rank(X)
    for features, ranking in ((X[:4], [0]), (X, [0, 0]), (X, [5]), (X, [-1])):
        with pytest.raises(InputError, match="candidates"):
            as_shown(own, features, np.array(ranking))
    frame = pytest.importorskip("pandas").DataFrame({"rating": [4.0, 3.0], "price": [9.0, None]})
    named = PairRank(feature_names=["price", "rating"], missing="mean")
    own = named.rank(frame)
    with pytest.raises(InputError, match="check_features"):
        as_shown(own, frame, own.ranking)
    assert as_shown(own, named.check_features(frame), own.ranking).features.tolist() == own.features.tolist()
