"""The contract that every ranker keeps, as checks that anybody can run on a ranker of their own.

    from pairrank.checks import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_ranker_keeps_the_contract(check):
        check(lambda n_features, seed: MyRanker(n_features, seed=seed))

A check takes a function that makes a ranker from its width and seed, and raises `ContractError` with a sentence where
the contract is broken. `check_ranker` runs them all.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from pairrank.errors import (
    ClickError,
    CutoffError,
    FeatureError,
    FileFormatError,
    ForeignImpressionError,
    LearningError,
    NewerFormatError,
    OptionError,
    PairRankError,
)
from pairrank.kernel import jit
from pairrank.rankers.base import Ranker
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression

MakeRanker = Callable[[int, int], Ranker]
Check = Callable[[MakeRanker], None]

WIDTH = 6


class ContractError(PairRankError, AssertionError):
    """A ranker breaks the contract; the message says how."""


def check_ranker(make: MakeRanker) -> None:
    """Run every check."""
    if isinstance(make, type) or not callable(make):
        name = make.__name__ if isinstance(make, type) else type(make).__name__
        told = f"lambda n_features, seed: {name}(n_features, seed=seed)"
        raise OptionError(f"make is {make!r}; expected a function that makes a ranker, as in {told}")
    for check in CHECKS:
        check(make)


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise ContractError(sentence)


def _raises(error: type[PairRankError], action: Callable[[], object], what: str, ranker: Ranker) -> None:
    before = ranker.digest()
    try:
        action()
    except error:
        _require(ranker.digest() == before, f"{what} changed the state although it was refused")
    except Exception as problem:
        raise ContractError(f"{what} raised {type(problem).__name__}; expected {error.__name__}") from problem
    else:
        raise ContractError(f"{what} was accepted; expected {error.__name__}")


def _candidates(n: int, number: int, width: int = WIDTH) -> FloatArray:
    return generator(7, number, Purpose.DATA).random((n, width))


def _clicks(impression: Impression) -> BoolArray:
    """Clicks that prefer documents with a large first feature, noisily, as a function of the impression alone."""
    coins = generator(11, impression.number, Purpose.CLICKS).random(len(impression))
    return np.asarray(coins < 0.1 + 0.8 * impression.features[:, 0])


def _turn(ranker: Ranker, number: int) -> Impression:
    impression = ranker.rank(_candidates(12, number), k=5)
    ranker.learn(impression, _clicks(impression))
    return impression


def rank_gives_a_prefix_of_a_permutation(make: MakeRanker) -> None:
    """``ranking`` holds distinct row numbers, as many as asked for; features and blocks belong to them."""
    ranker = make(WIDTH, 0)
    for number, (n, k) in enumerate([(12, 5), (12, None), (3, 10), (1, 1), (1, None), (40, 40)]):
        X = _candidates(n, number)
        impression = ranker.rank(X, k)
        shown = min(n, k or n)
        _require(impression.ranking.shape == (shown,), f"asked for k={k} of {n}, got {impression.ranking.shape}")
        _require(impression.ranking.dtype == np.int64, f"ranking has type {impression.ranking.dtype}; expected int64")
        _require(len(set(impression.ranking.tolist())) == shown, "ranking shows a document twice")
        _require(set(impression.ranking.tolist()) <= set(range(n)), "ranking names rows that do not exist")
        _require(np.array_equal(impression.features, X[impression.ranking]), "features are not those of the ranking")
        _require(impression.blocks.shape == (shown,), "blocks are not one per shown position")
        _require(impression.blocks[0] == 0 and (np.diff(impression.blocks) >= 0).all(), "blocks do not rise from 0")
        _require(impression.n_docs == n, "n_docs is not the number of candidates")
        ranker.learn(impression, _clicks(impression))


def rank_changes_only_the_counter(make: MakeRanker) -> None:
    """Ranking, scoring and inspecting leave what was learned alone; ranking under an old number repeats the list."""
    ranker = make(WIDTH, 3)
    for number in range(5):
        _turn(ranker, number)
    before = {name: value for name, value in ranker.state.items() if name != "number"}
    X = _candidates(15, 99)
    first = ranker.rank(X, 7)
    ranker.score(X)
    ranker.inspect(X)
    after = {name: value for name, value in ranker.state.items() if name != "number"}
    _require(before.keys() == after.keys(), "rank changed the names in the state")
    _require(all(np.array_equal(before[n], after[n]) for n in before), "rank changed more than the counter")
    again = ranker.rank(X, 7, number=first.number)
    _require(again.to_bytes() == first.to_bytes(), "the same number and features gave another list")


def same_seed_same_bits(make: MakeRanker) -> None:
    """Two rankers with one seed agree to the bit, whatever is drawn from global generators meanwhile."""
    one, two = make(WIDTH, 5), make(WIDTH, 5)
    for number in range(25):
        a = _turn(one, number)
        np.random.default_rng().random(3)
        b = _turn(two, number)
        _require(a.to_bytes() == b.to_bytes(), f"impression {number} differs between equal rankers")
    _require(one.digest() == two.digest(), "equal rankers ended in different states")


def inputs_are_not_aliased(make: MakeRanker) -> None:
    """Neither the caller's arrays nor what was handed out can change the ranker or an impression afterwards."""
    ranker = make(WIDTH, 1)
    X = _candidates(10, 0)
    impression = ranker.rank(X, 5)
    blob = impression.to_bytes()
    X[:] = -1.0
    _require(impression.to_bytes() == blob, "changing the caller's features changed the impression")
    for array in (impression.features, impression.ranking, impression.blocks, *impression.memory.values()):
        _require(not array.flags.writeable, "an impression's arrays can be written to")
    clicks = _clicks(impression)
    ranker.learn(impression, clicks)
    digest = ranker.digest()
    clicks[:] = True
    for value in ranker.state.values():
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value.fill(0)
    weights = getattr(ranker, "weights", None)
    if weights is not None:
        weights.fill(7)
    _require(ranker.digest() == digest, "an array that was handed out or in shares memory with the state")


def saved_and_loaded_continues_as_if_never_stopped(make: MakeRanker) -> None:
    """Bytes out and in again, at any round, change nothing of what follows."""
    straight, broken = make(WIDTH, 2), make(WIDTH, 2)
    in_flight: list[Impression] = []
    for number in range(30):
        a = _turn(straight, number)
        impression = broken.rank(_candidates(12, number), 5)
        _require(impression.to_bytes() == a.to_bytes(), f"impression {number} differs after loading")
        in_flight.append(Impression.from_bytes(impression.to_bytes()))
        if number % 7 == 0:
            broken = type(broken).from_bytes(broken.to_bytes())
        broken.learn(in_flight[-1], _clicks(in_flight[-1]))
    _require(straight.digest() == broken.digest(), "saving and loading on the way changed the outcome")


def impressions_in_flight_keep_apart(make: MakeRanker) -> None:
    """Many lists may be out at once; each learns from its own, and the order of arrival is the only difference."""
    one, two = make(WIDTH, 4), make(WIDTH, 4)
    a = [one.rank(_candidates(12, n), 5) for n in range(8)]
    b = [two.rank(_candidates(12, n), 5) for n in range(8)]
    for index in (5, 0, 7, 2, 1, 6, 3, 4):
        one.learn(a[index], _clicks(a[index]))
    for index in (5, 0, 7, 2, 1, 6, 3, 4):
        two.rank(_candidates(4, 100 + index))  # other lists in between make no difference to what is learned
        two.learn(b[index], _clicks(b[index]))
    X = _candidates(9, 50)
    _require(np.array_equal(one.score(X), two.score(X)), "a list shown in between changed what was learned")


def doubled_feedback_is_ignored(make: MakeRanker) -> None:
    """The second ``learn`` of an impression answers False and changes nothing, also after saving and loading."""
    ranker = make(WIDTH, 6)
    impressions = [ranker.rank(_candidates(12, n), 5) for n in range(4)]
    for impression in impressions:
        _require(ranker.learn(impression, _clicks(impression)) is True, "the first learn did not answer True")
    digest = ranker.digest()
    for twin in (ranker, type(ranker).from_bytes(ranker.to_bytes())):
        for impression in impressions:
            _require(twin.learn(impression, ~_clicks(impression)) is False, "a doubled learn did not answer False")
        _require(twin.digest() == digest, "a doubled learn changed the state")


def wrong_input_is_refused(make: MakeRanker) -> None:
    """Each kind of wrong input raises its named error and leaves the state untouched."""
    ranker = make(WIDTH, 8)
    good = _turn(ranker, 0)
    X = _candidates(5, 1)
    impression = ranker.rank(X)
    bad_features: dict[str, object] = {
        "too many columns": np.ones((3, WIDTH + 1)),
        "1-D features": np.ones(WIDTH),
        "no documents": np.empty((0, WIDTH)),
        "NaN": np.full((2, WIDTH), np.nan),
        "infinity": np.full((2, WIDTH), np.inf),
        "text": [["a"] * WIDTH],
        "ragged rows": [[1.0], [1.0, 2.0]],
    }
    for what, features in bad_features.items():
        _raises(FeatureError, partial(ranker.rank, features), f"rank of {what}", ranker)
        _raises(FeatureError, partial(ranker.score, features), f"score of {what}", ranker)
    for k in (0, -1, 2.5, "3", True):
        _raises(CutoffError, partial(ranker.rank, X, k), f"k={k!r}", ranker)  # type: ignore[arg-type]
    for what, clicks in {"short": [True], "two-dimensional": np.ones((5, 1), bool), "text": ["yes"] * 5}.items():
        _raises(ClickError, partial(ranker.learn, impression, clicks), f"{what} clicks", ranker)  # type: ignore[arg-type]
    for value in (2, -1, np.nan, 0.5):
        _raises(ClickError, partial(ranker.learn, impression, [value] * 5), f"clicks {value}", ranker)
    stranger = make(WIDTH, 9).rank(X)
    _raises(ForeignImpressionError, lambda: ranker.learn(stranger, [False] * 5), "another ranker's list", ranker)
    wider = replace(good, features=np.ones((len(good), WIDTH + 1)))
    _raises(ForeignImpressionError, lambda: ranker.learn(wider, [False] * len(good)), "a wider list", ranker)
    _raises(ForeignImpressionError, lambda: ranker.learn("list", [True]), "no impression", ranker)  # type: ignore[arg-type]


def what_cannot_be_learned_leaves_no_trace(make: MakeRanker) -> None:
    """What ``_learn`` did is taken back where the state is no sound one: its arrays are replaced, never written to."""
    ranker = make(WIDTH, 9)
    for number in range(8):
        _turn(ranker, number)
    shown, clicks = ranker.rank(_candidates(12, 8), 5), np.arange(5) == 1
    vars(ranker)["_sound"] = lambda: False
    what = "a list that cannot be learned (arrays of the state are to be replaced, never changed in place)"
    _raises(LearningError, partial(ranker.learn, shown, clicks), what, ranker)


def damaged_files_are_refused(make: MakeRanker) -> None:
    """A file cut anywhere, changed anywhere or from elsewhere is refused; a newer version by its own name."""
    ranker = make(WIDTH, 0)
    _turn(ranker, 0)
    blob = ranker.to_bytes()
    cls = type(ranker)
    for cut in sorted({0, 1, 7, 8, 9, 40, len(blob) // 2, len(blob) - 1}):
        _raises(FileFormatError, partial(cls.from_bytes, blob[:cut]), f"a file cut at {cut}", ranker)
    flipped = blob[:-1] + bytes([blob[-1] ^ 1])
    _raises(FileFormatError, lambda: cls.from_bytes(flipped), "a file with a flipped bit", ranker)
    _raises(FileFormatError, lambda: cls.from_bytes(b"not a model at all"), "a foreign file", ranker)
    impression = ranker.rank(_candidates(3, 1)).to_bytes()
    _raises(FileFormatError, lambda: cls.from_bytes(impression), "an impression's bytes", ranker)
    newer = blob.replace(b'"format":"1"', b'"format":"9"')
    _require(newer != blob, "the file does not say its format version")
    _raises(NewerFormatError, lambda: cls.from_bytes(newer), "a file of a newer version", ranker)


def odd_lists_work(make: MakeRanker) -> None:
    """One document, identical documents, features of zero, k beyond the list, no click and every click."""
    ranker = make(WIDTH, 0)
    lists = [
        _candidates(1, 0),
        np.ones((6, WIDTH)),
        np.zeros((6, WIDTH)),
        _candidates(3, 1),
        1e6 * _candidates(4, 2),
        1e9 * _candidates(4, 4),
    ]
    for X in lists:
        for clicks in (False, True):
            impression = ranker.rank(X, 10)
            ranker.learn(impression, np.full(len(impression), clicks))
        half = ranker.rank(X, 10)
        ranker.learn(half, np.arange(len(half)) % 2 == 0)
    _require(np.isfinite(ranker.score(_candidates(5, 3))).all(), "scores are no longer finite")


def a_list_that_was_not_explored_teaches_nothing(make: MakeRanker) -> None:
    """``explore=False`` shows the documents by score; ``locked`` does so at the top; neither part is learned from."""
    ranker = make(WIDTH, 0)
    for number in range(10):
        _turn(ranker, number)
    X = _candidates(12, 77)
    by_score = np.argsort(-ranker.score(X), kind="stable")
    greedy = ranker.rank(X, 5, explore=False)
    _require(np.array_equal(greedy.ranking, by_score[:5]), "explore=False did not show the documents by score")
    _require(not greedy.explored, "explore=False says that it explored")
    scores = ranker.score(X)
    ranker.learn(greedy, [True, False, True, False, False])
    _require(np.array_equal(ranker.score(X), scores), "a list shown by score alone was learned from")
    locked = ranker.rank(X, 6, locked=2)
    _require(np.array_equal(locked.ranking[:2], by_score[:2]), "locked=2 did not keep the two best on top")
    ranker.learn(locked, [True, False, False, False, False, False])
    _require(np.array_equal(ranker.score(X), scores), "clicks on locked positions were learned from")


def higher_scores_are_better(make: MakeRanker) -> None:
    """After clear clicks on one feature, documents that have it score higher (a ranker that learns from clicks)."""
    ranker = make(WIDTH, 0)
    fixed = ranker.score(_candidates(20, 0))
    for number in range(300):
        impression = ranker.rank(_candidates(12, number), 6)
        ranker.learn(impression, impression.features[:, 0] > 0.6)
    X = _candidates(200, 1000)
    scores = ranker.score(X)
    if np.array_equal(ranker.score(_candidates(20, 0)), fixed):
        return  # it learns from labels, not from clicks
    _require(np.corrcoef(scores, X[:, 0])[0, 1] > 0.3, "scores do not rise with the feature that was clicked")


def memory_is_bounded(make: MakeRanker) -> None:
    """Showing lists keeps nothing: memory does not grow with impressions that are never learned."""
    jit.load()  # else they may be loaded while memory is being watched
    ranker = make(WIDTH, 0)
    X = _candidates(12, 0)
    tracemalloc.start()
    for _ in range(100):
        ranker.rank(X, 5)
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(500):
        ranker.rank(X, 5)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Some 60 kB are what Python itself keeps, for tuples to come.
    _require(grown < 100_000, f"500 impressions that nobody learned left {grown} bytes behind")


CHECKS: tuple[Check, ...] = (
    rank_gives_a_prefix_of_a_permutation,
    rank_changes_only_the_counter,
    same_seed_same_bits,
    inputs_are_not_aliased,
    saved_and_loaded_continues_as_if_never_stopped,
    impressions_in_flight_keep_apart,
    doubled_feedback_is_ignored,
    wrong_input_is_refused,
    what_cannot_be_learned_leaves_no_trace,
    damaged_files_are_refused,
    odd_lists_work,
    a_list_that_was_not_explored_teaches_nothing,
    higher_scores_are_better,
    memory_is_bounded,
)
