"""Launches: what is summed has the right mean, the bound holds whatever users do, the same lists give the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from pairrank.errors import InputError, OptionError
from pairrank.rng import Purpose, generator
from pairrank.trials.interleaving import exposure
from pairrank.trials.launch import SHADOW_LISTS, Guard, Launch, bounded

Values = Callable[[int], tuple[float, float]]  # of list t: the probability of a click as sent, and with ours


def play(values: Values, seed: int, lists: int, *, auto: bool = True) -> tuple[Launch, float, int]:
    """A launch, the most that was ever lost beyond the margin, and the list after which it was over."""
    rng = generator(seed, 0, Purpose.CLICKS)
    launch, lost, worst = Launch(mode="guarded", auto=auto), 0.0, -np.inf
    for t in range(1, lists + 1):
        as_sent, with_ours = values(t)
        share = launch.share()
        ours, coin = rng.random() < share, rng.random()
        lost += share * (as_sent - with_ours)
        worst = max(worst, lost - launch.guard.margin * t)
        launch = launch.after(ours, float(coin < (with_ours if ours else as_sent)))
        if launch.mode != "guarded":
            return launch, worst, t
    return launch, worst, lists


def test_what_is_summed_has_the_right_mean() -> None:
    """Over the coin of the arms: z is what the list lost, g the gain times s (1 - s), whatever was guessed."""
    for lists, value in ((0, 0.0), (10, 3.0), (10, 9.0)):
        before = Launch(mode="guarded", lists=lists, value=value)
        for share, expected in ((0.1, None), (0.5, None), (0.5, 0.9)):
            ours = before.after(True, 0.4, share, expected)
            as_sent = before.after(False, 0.7, share, expected)
            assert share * ours.loss + (1 - share) * as_sent.loss == pytest.approx(share * (0.7 - 0.4))
            gain = share * ours.gain + (1 - share) * as_sent.gain
            assert gain == pytest.approx(share * (1 - share) * (0.4 - 0.7))
            assert ours.overlap == as_sent.overlap == pytest.approx(share * (1 - share))


def test_the_first_lists_are_as_sent_and_the_share_grows() -> None:
    assert Launch(mode="guarded").share() == 0.0
    launch, _, _ = play(lambda t: (0.5, 0.7), 0, 700, auto=False)
    assert launch.share() > 0.4


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("good", lambda t: (0.5, 0.75)),
        ("useless", lambda t: (0.5, 0.5)),
        ("hostile", lambda t: (0.6, 0.1)),
        ("a little worse", lambda t: (0.5, 0.45)),
        ("good, then hostile", lambda t: (0.5, 0.6 if t < 900 else 0.0)),
        ("everybody leaves", lambda t: (0.9 if t % 2 else 0.1, 0.2)),
    ],
)
def test_the_margin_holds(name: str, values: Values) -> None:
    lists = 3000 if name == "hostile" else 1500  # once it serves nothing of ours, it also learns nothing of it
    ended = [play(values, seed, lists, auto=name == "good") for seed in range(5)]
    assert sum(worst > 0 for _, worst, _ in ended) == 0  # δ is 5 %, and the bound is not tight
    modes = [launch.mode for launch, _, _ in ended]
    if name == "good":
        assert modes == ["free"] * 5
    if name == "hostile":
        assert modes == ["frozen"] * 5
    if name == "useless":
        assert modes == ["guarded"] * 5


def test_frozen_and_shadow_serve_as_sent_and_free_serves_ours() -> None:
    assert [Launch(mode=mode).share() for mode in ("shadow", "frozen", "free")] == [0.0, 0.0, 1.0]
    frozen = Launch(mode="frozen", auto=True).after(False, 1.0)
    assert frozen.mode == "frozen"  # nothing but a person thaws it
    assert frozen.turned("guarded").mode == "guarded"


def test_shadow_goes_on_by_itself_only_when_told_to() -> None:
    for auto, mode in ((True, "guarded"), (False, "shadow")):
        launch = Launch(auto=auto)
        for _ in range(SHADOW_LISTS):
            assert launch.mode == "shadow"
            launch = launch.after(False, 0.5)
        assert launch.mode == mode


def test_guarded_begins_anew() -> None:
    worn, _, _ = play(lambda t: (0.9, 0.1), 0, 3000)
    assert worn.mode == "frozen"
    again = worn.turned("guarded")
    assert (again.guarded, again.loss, again.gain, again.overlap, again.stage) == (0, 0.0, 0.0, 0.0, 0)
    assert again.lists == worn.lists
    assert worn.turned("shadow").gain == worn.gain


def test_lists_in_flight_are_taken_for_lost() -> None:
    launch, _, _ = play(lambda t: (0.5, 0.5), 1, 600, auto=False)
    alone = launch.share()
    assert alone > 0
    assert launch.share(in_flight=1, at_stake=alone) <= launch.guard.margin * 2
    assert launch.share(in_flight=10, at_stake=10.0) == 0.0


def test_a_restart_anywhere_gives_the_same_bits() -> None:
    rng = generator(4, 0, Purpose.CLICKS)
    launch = kept = Launch(auto=True)
    for _ in range(900):
        share = launch.share()
        ours, value = bool(rng.random() < share), float(rng.random() < 0.6)
        launch, kept = launch.after(ours, value, share), kept.after(ours, value, share)
        if rng.random() < 0.1:
            kept = Launch.from_json(json.loads(json.dumps(kept.to_json())))
    assert launch.guarded > 500
    assert kept == launch


@pytest.mark.parametrize("most_lost", [0.0, 0.2, 0.4, 0.6, 0.99])
def test_exposure_is_bounded_and_our_order_kept_where_it_can_be(most_lost: float) -> None:
    """Against every order of five documents: the first, by our preferences, of those that keep the bound."""
    as_sent = np.arange(5)
    for k in (3, 5):
        e = exposure(np.arange(1, k + 1))
        kept = [p[:k] for p in permutations(range(5)) if _keeps(p[:k], e, most_lost)]
        for ours in (np.array(p) for p in ((4, 3, 2, 1, 0), (1, 0, 4, 3, 2), (2, 4, 0, 1, 3), (0, 1, 2, 3, 4))):
            place = {d: i for i, d in enumerate(ours.tolist())}
            best = min(kept, key=lambda p: [place[d] for d in p])
            assert bounded(ours, as_sent, k, most_lost).tolist() == list(best)


def _keeps(shown: tuple[int, ...], e: np.ndarray, most_lost: float) -> bool:
    got = {d: e[p] for p, d in enumerate(shown)}
    return all(got.get(d, 0.0) >= (1 - most_lost) * e[d] - 1e-12 for d in range(len(shown)))


def test_the_ends_of_the_bound() -> None:
    ours, as_sent = np.array([3, 1, 0, 2]), np.arange(4)
    assert bounded(ours, as_sent, 9, 0.0).tolist() == as_sent.tolist()
    assert bounded(ours, as_sent, 9, 1.0).tolist() == ours.tolist()


def test_wrong_input_says_so() -> None:
    with pytest.raises(OptionError, match="mode"):
        Launch(mode="wild")
    with pytest.raises(OptionError, match="mode"):
        Launch().turned("wild")
    with pytest.raises(OptionError, match="margin is 0"):
        Guard(margin=0)
    with pytest.raises(OptionError, match="holdout"):
        Guard(holdout=0.7)
    with pytest.raises(OptionError, match="delta is 1e-310"):
        Guard(delta=1e-310)
    with pytest.raises(InputError, match="value is 2"):
        Launch().after(False, 2)
    with pytest.raises(InputError, match="expected value is -1"):
        Launch().after(False, 1, expected=-1)
    with pytest.raises(InputError, match="share"):
        Launch(mode="guarded").after(True, 1.0, 0.9)
    with pytest.raises(OptionError, match="most_lost"):
        bounded(np.arange(3), np.arange(3), 3, 1.5)
    with pytest.raises(InputError, match="same ones"):
        bounded(np.arange(3), np.arange(4), 3, 0.5)
