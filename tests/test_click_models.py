from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairrank import click_models
from pairrank.errors import DataError, GradeError, InputError, OptionError, StorageError, UnknownNameError

PERFECT, NAVIGATIONAL, INFORMATIONAL, RANDOM = "perfect", "navigational", "informational", "almost-random"


def integrate(
    users: click_models.Users, grades: tuple[int, ...], click: list[float], stop: list[float]
) -> dict[tuple[bool, ...], float]:
    """P(click pattern), exactly: users compare each coin with one threshold, so they are constant on either side.

    ``click`` and ``stop`` are the thresholds by rank.
    """
    coins_of = [threshold for pair in zip(click, stop, strict=True) for threshold in pair]
    sides = [[(0.0, t), (t, 1 - t)] if 0 < t < 1 else [(0.5, 1.0)] for t in coins_of]
    found: dict[tuple[bool, ...], float] = {}
    for corner in product(*sides):
        coins = np.array([left for left, _ in corner]).reshape(-1, 2)
        pattern = tuple(users.clicks(np.array(grades), coins).tolist())
        found[pattern] = found.get(pattern, 0.0) + float(np.prod([width for _, width in corner]))
    return found


def enumerate_dependent(
    click: list[float], stop: list[float], grades: tuple[int, ...], anywhere: bool
) -> dict[tuple[bool, ...], float]:
    """P(click pattern) by walking the tree of decisions from the top of the list."""
    outcomes: dict[tuple[bool, ...], float] = {}

    def walk(rank: int, seen: tuple[bool, ...], p: float) -> None:
        if rank == len(grades) or p == 0:
            pattern = seen + (False,) * (len(grades) - len(seen))
            outcomes[pattern] = outcomes.get(pattern, 0.0) + p
            return
        g = grades[rank]
        for clicked, chance in ((True, click[g]), (False, 1 - click[g])):
            halt = stop[g] if clicked or anywhere else 0.0
            walk(len(grades), (*seen, clicked), p * chance * halt)
            walk(rank + 1, (*seen, clicked), p * chance * (1 - halt))

    walk(0, (), 1.0)
    return outcomes


def same(found: dict[tuple[bool, ...], float], expected: dict[tuple[bool, ...], float]) -> None:
    for pattern in found.keys() | expected.keys():
        assert found.get(pattern, 0.0) == pytest.approx(expected.get(pattern, 0.0), abs=1e-12), pattern


@pytest.mark.parametrize("stop", click_models.STOPS)
@pytest.mark.parametrize("name", [PERFECT, NAVIGATIONAL, INFORMATIONAL, RANDOM])
@pytest.mark.parametrize("n_grades", [2, 3, 5])
def test_dependent_clicks_equal_enumeration(name: str, n_grades: int, stop: str) -> None:
    users = click_models.make(name, n_grades=n_grades, stop=stop)
    assert isinstance(users, click_models.DependentClicks)
    lists = [g for n in (1, 2) for g in product(range(n_grades), repeat=n)]
    lists += list(product({0, 1, n_grades - 1}, repeat=3))
    for grades in lists:
        click, after = [[table[g] for g in grades] for table in (users.click, users.stop_after)]
        expected = enumerate_dependent(list(users.click), list(users.stop_after), grades, stop == "anywhere")
        same(integrate(users, grades, click, after), expected)


@settings(deadline=None)
@given(
    click=st.lists(st.floats(0, 1), min_size=2, max_size=2),
    stop=st.lists(st.floats(0, 1), min_size=2, max_size=2),
    grades=st.lists(st.integers(0, 1), min_size=1, max_size=3),
    anywhere=st.booleans(),
)
def test_any_table_equals_enumeration(click: list[float], stop: list[float], grades: list[int], anywhere: bool) -> None:
    users = click_models.DependentClicks("mine", tuple(click), tuple(stop), click_models.STOPS[anywhere])
    expected = enumerate_dependent(click, stop, tuple(grades), anywhere)
    found = integrate(users, tuple(grades), [click[g] for g in grades], [stop[g] for g in grades])
    same(found, expected)


@pytest.mark.parametrize("eta", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("grades", [(2,), (0, 2), (1, 0, 2), (2, 2, 1)])
def test_position_users_equal_enumeration(eta: float, grades: tuple[int, ...]) -> None:
    users = click_models.make(f"position(eta={eta}, noise=0.2)", n_grades=3)
    attraction = [0.2 + 0.8 * (2**g - 1) / (2**2 - 1) for g in grades]
    chance = [a * r**-eta for r, a in enumerate(attraction, start=1)]
    expected = {
        pattern: float(np.prod([p if c else 1 - p for p, c in zip(chance, pattern, strict=True)]))
        for pattern in product([False, True], repeat=len(grades))
    }
    looks = [r**-eta for r in range(1, len(grades) + 1)]
    same(integrate(users, grades, attraction, looks), expected)


@pytest.mark.parametrize("grades", [(2,), (0, 2), (1, 0, 2), (2, 2, 1)])
def test_cascade_users_equal_enumeration(grades: tuple[int, ...]) -> None:
    users = click_models.make("cascade", n_grades=3)
    attraction = [0.1 + 0.9 * (2**g - 1) / (2**2 - 1) for g in range(3)]
    expected = enumerate_dependent(attraction, [1.0] * 3, grades, anywhere=False)
    same(integrate(users, grades, [attraction[g] for g in grades], [1.0] * len(grades)), expected)


@pytest.mark.parametrize("text", ["mixed", "mixed(table=informational)"])
def test_mixed_users_are_each_kind_a_third_of_the_time_whatever_the_coins_say(text: str) -> None:
    options = text.removeprefix("mixed").strip("()")
    kinds = ["position(eta=1, {})", "position(eta=0.5, trust=0.3, {})", "cascade({})"]
    users, *alone = (click_models.make(who, n_grades=3) for who in (text, *(kind.format(options) for kind in kinds)))
    grades, coins = np.array([0, 2, 1, 0, 2]), np.random.default_rng(1).random((30_000, 5, 2))
    found = np.array([users.clicks(grades, each) for each in coins])
    apart = [np.array([kind.clicks(grades, each) for each in coins]) for kind in alone]
    # Every list is one that some kind would click, and each position is clicked as often as by the three on average.
    assert np.any([(found == kind).all(axis=1) for kind in apart], axis=0).all()
    np.testing.assert_allclose(found.mean(axis=0), np.mean(apart, axis=(0, 1)), atol=0.012)
    # Who comes does not hang on whether the first document looks good.
    first = coins[:, 0, 0] < 0.3
    np.testing.assert_allclose(
        found[first].mean(axis=0), np.mean([kind[first] for kind in apart], axis=(0, 1)), atol=0.025
    )
    assert users.clicks(grades[:0], coins[0, :0]).tolist() == []


def test_tables_are_the_papers() -> None:
    users = click_models.make(NAVIGATIONAL, n_grades=3)
    assert users.click == (0.05, 0.5, 0.95)
    assert users.stop_after == (0.2, 0.5, 0.9)
    for name in (PERFECT, NAVIGATIONAL, INFORMATIONAL, RANDOM):
        for n_grades in (2, 3, 5):
            table = click_models.make(name, n_grades=n_grades)
            assert len(table.click) == len(table.stop_after) == n_grades
            assert list(table.click) == sorted(table.click)


def test_the_coin_of_a_document_is_its_own() -> None:
    """Perfect users never stop: moving a document moves its click with it."""
    users = click_models.make(PERFECT, n_grades=5)
    rng = np.random.default_rng(0)
    grades, coins, order = rng.integers(0, 5, 20), rng.random((20, 2)), rng.permutation(20)
    np.testing.assert_array_equal(users.clicks(grades, coins)[order], users.clicks(grades[order], coins[order]))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("navigational", "navigational"),
        (" navigational ( stop = anywhere ) ", "navigational(stop=anywhere)"),
        ("position", "position(eta=1)"),
        ("position(eta=0.5)", "position(eta=0.5)"),
        ("position(eta=.5, noise=1.)", "position(eta=0.5, noise=1)"),
        ("position(eta=1,noise=0)", "position(eta=1, noise=0)"),
        ("cascade", "cascade"),
        ("cascade(noise=0.25)", "cascade(noise=0.25)"),
        ("cascade(table=informational)", "cascade(table=informational)"),
        ("mixed(table=informational, hostile=0.1)", "mixed(table=informational, hostile=0.1)"),
        ("position(trust=0.3,table=informational)", "position(eta=1, trust=0.3, table=informational)"),
        ("perfect(drift=2500)", "perfect(drift=2500)"),
        ("perfect(hostile=0.10, drift=30)", "perfect(drift=30, hostile=0.1)"),
        ("navigational(hostile=1, stop=anywhere)", "navigational(stop=anywhere, hostile=1)"),
        ("position(hostile=0.2)", "position(eta=1, hostile=0.2)"),
        (
            'table(name="a, (b", click=[0, 0.5, 1], stop_after=[0.1, 0.2, 0.3], drift=9)',
            'table(name="a, (b", click=[0, 0.5, 1], stop_after=[0.1, 0.2, 0.3], drift=9)',
        ),
        ("cascade(hostile=0, drift=None)", "cascade"),
        (
            'table(name="a b", click=[0, 0.5, 1], stop_after=[0.1, 0.2, 0.3], stop=anywhere)',
            'table(name="a b", click=[0, 0.5, 1], stop_after=[0.1, 0.2, 0.3], stop=anywhere)',
        ),
    ],
)
def test_text_round_trips(text: str, printed: str) -> None:
    users = click_models.make(text, n_grades=3)
    assert str(users) == printed
    assert click_models.make(printed, n_grades=3) == users
    assert hash(click_models.make(printed, n_grades=3)) == hash(users)


def test_stop_argument_is_a_default_for_tables() -> None:
    assert str(click_models.make("perfect", n_grades=3, stop="anywhere")) == "perfect(stop=anywhere)"
    assert str(click_models.make("perfect(stop=click)", n_grades=3, stop="anywhere")) == "perfect"
    assert str(click_models.make("cascade", n_grades=3, stop="anywhere")) == "cascade"


@pytest.mark.parametrize("suffix", ["json", "toml"])
@pytest.mark.parametrize("prefix", ["file:", ""])
def test_custom_table_from_a_file(tmp_path, suffix: str, prefix: str) -> None:
    path = tmp_path / f"mine.{suffix}"
    table = {"click": [0.1, 0.2, 0.9], "stop_after": [0.0, 0.5, 1.0], "stop": "anywhere"}
    path.write_text(
        json.dumps(table) if suffix == "json" else "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items())
    )
    users = click_models.make(f"{prefix}{path}", n_grades=3)
    assert users == click_models.DependentClicks("mine", (0.1, 0.2, 0.9), (0.0, 0.5, 1.0), "anywhere")
    assert click_models.make(str(users), n_grades=3) == users, "the text carries the table, not the path"
    assert click_models.make(path, n_grades=3) == users


@pytest.mark.parametrize("grades", [[0, 3], [-1], [0, 1, 7]])
@pytest.mark.parametrize("text", [NAVIGATIONAL, "position", "cascade", "mixed"])
def test_grade_outside_the_table(text: str, grades: list[int]) -> None:
    users = click_models.make(text, n_grades=3)
    with pytest.raises(GradeError, match="0 to 2"):
        users.clicks(np.array(grades), np.full((len(grades), 2), 0.5))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nobody", UnknownNameError),
        ("", UnknownNameError),
        ("position(eta=-1)", OptionError),
        ("position(speed=1)", OptionError),
        ("navigational(stop=never)", OptionError),
        ("navigational(stop", UnknownNameError),
        ("navigational(stop anywhere)", OptionError),
        ("cascade(noise=2)", OptionError),
        ("cascade(table=mine)", OptionError),
        ("position(trust=2)", OptionError),
        ("cascade(hostile=1.5)", OptionError),
        ("cascade(hostile=many)", OptionError),
        ("perfect(hostile=0.1, hostile=0.2)", OptionError),
        ("perfect(drift=0)", OptionError),
        ("perfect(drift=2.5)", OptionError),
        ("perfect(drift=true)", OptionError),
        ("table(click=[0, 1])", OptionError),
        ("table(click=[0, 1], stop_after=[0, 0])", GradeError),
        ("table(click=[0, 1, 2], stop_after=[0, 0, 0])", OptionError),
        ("table(click=[0, 1, 1], stop_after=[0, 0])", OptionError),
        ("file:no-such-file.json", StorageError),
    ],
)
def test_wrong_text(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        click_models.make(text, n_grades=3)


def test_no_table_for_four_grades() -> None:
    with pytest.raises(GradeError, match="2, 3, 5"):
        click_models.make(NAVIGATIONAL, n_grades=4)


@pytest.mark.parametrize("content", ["[1, 2]", "{", '{"click": 3}', '{"stop_after": [0, 0, 0]}'])
def test_broken_table_file(tmp_path, content: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(content)
    with pytest.raises((DataError, OptionError), match=r"users\.json"):
        click_models.make(f"file:{path}", n_grades=3)


def test_an_empty_list_gets_no_clicks() -> None:
    assert click_models.make(NAVIGATIONAL, n_grades=3).clicks(np.array([], dtype=int), np.empty((0, 2))).shape == (0,)


@pytest.mark.parametrize("n_grades", [2, 3, 5])
def test_attackers_are_perfect_users_of_reversed_grades(n_grades: int) -> None:
    users = click_models.make("informational(hostile=0.3)", n_grades=n_grades)
    assert isinstance(users, click_models.Unruly)
    perfect = click_models.make(PERFECT, n_grades=n_grades)
    assert isinstance(perfect, click_models.DependentClicks)
    for grades in product(range(n_grades), repeat=2):
        reversed_ = [n_grades - 1 - g for g in grades]
        chances = [perfect.click[g] for g in reversed_]
        expected = enumerate_dependent(list(perfect.click), [0.0] * n_grades, tuple(reversed_), anywhere=False)
        same(integrate(users.attackers, grades, chances, [0.0, 0.0]), expected)
        coins = np.random.default_rng(0).random((2, 2))
        ordinary = click_models.make(INFORMATIONAL, n_grades=n_grades).clicks(np.array(grades), coins)
        np.testing.assert_array_equal(users.clicks(np.array(grades), coins), ordinary)


def test_attackers_know_every_scale_of_grades() -> None:
    """Without a published table their chance of a click falls evenly from the worst grade to the best."""
    text = f"table(click={[0.5] * 11}, stop_after={[0.1] * 11}, hostile=0.1)"
    for users in (click_models.make(text, n_grades=11), click_models.make("cascade(hostile=0.1)", n_grades=11)):
        assert isinstance(users, click_models.Unruly)
        for grade in range(11):
            coins = np.column_stack([(np.arange(10) + 0.5) / 10, np.full(10, 0.5)])
            assert users.attackers.clicks(np.full(10, grade), coins).sum() == 10 - grade


def test_drift_and_attacks_of_a_table_from_a_file(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("click = [0.1, 0.2, 0.9]\nstop_after = [0.0, 0.5, 1.0]\nhostile = 0.25\ndrift = 7\n")
    users = click_models.make(path, n_grades=3)
    assert isinstance(users, click_models.Unruly)
    assert (users.drift, users.hostile) == (7, 0.25)
    assert click_models.make(str(users), n_grades=3) == users


def test_grade_error_is_an_input_error() -> None:
    assert issubclass(GradeError, InputError)


def test_chances_of_a_table_and_trust_in_what_stands_higher() -> None:
    users = click_models.make("position(eta=1, trust=0.2, table=informational)", n_grades=3)
    coins = np.random.default_rng(0).random((20_000, 3, 2))
    rates = np.mean([users.clicks(np.array([0, 1, 2]), pair) for pair in coins], axis=0)
    expected = np.array([0.4 + 0.2, 0.7 + 0.1, 0.9 + 0.2 / 3]) / [1, 2, 3]
    assert rates == pytest.approx(expected, abs=0.015)
