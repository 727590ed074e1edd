"""Experiments as values: who takes part, what they get, what the lists have shown, the same bits after a restart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pairrank.errors import InputError, OptionError
from pairrank.rng import Purpose, generator
from pairrank.trials.experiment import Arm, Definition, Tally, room


def define(**more: Any) -> Definition:
    return Definition(**{"name": "new", "a": "shop", "b": "as-sent", **more})


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("shop", Arm("shop")),
        ("shop@1200", Arm("shop", 1200)),
        ("shop@0", Arm("shop", 0)),
        ("as-sent", Arm(None)),
        ("other_2.x", Arm("other_2.x")),
    ],
)
def test_arms_parse_and_print(text: str, arm: Arm) -> None:
    assert Arm.parse(text) == arm
    assert str(arm) == text


@pytest.mark.parametrize("text", ["", "shop@", "shop@01", "shop@-1", "a b", "@12", "shop@1@2"])
def test_what_is_no_arm_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="arm"):
        Arm.parse(text)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"b": "shop"}, "both arms"),
        ({"kind": "guess"}, "kind"),
        ({"share": 0.0}, "share"),
        ({"share": 1.5}, "share"),
        ({"share": 0.6, "start": 0.5}, "sum to 1"),
        ({"credit": "none"}, "credit"),
    ],
)
def test_wrong_definitions_say_so(more: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        define(**more)


def test_an_a_a_experiment_is_one() -> None:
    assert define(a="as-sent", credit="team").digest != define(a="as-sent", kind="split").digest


def test_a_changed_definition_is_another_experiment() -> None:
    changes = ({}, {"b": "shop@3"}, {"kind": "split"}, {"share": 0.5}, {"level": 0.01}, {"name": "newer"})
    assert len({define(**more).digest for more in changes}) == len(changes)
    assert define().digest == define().digest


def test_clients_are_divided_by_hash_for_good() -> None:
    first, second = define(name="one", share=0.3), define(name="two", share=0.5, start=0.3)
    clients = [f"client {i}" for i in range(4000)]
    parts = [{c for c in clients if d.takes_part(c)} for d in (first, second)]
    assert not parts[0] & parts[1]
    assert [len(p) / 4000 for p in parts] == pytest.approx([0.3, 0.5], abs=0.03)
    arms = np.array([[d.gets_a(c) for c in clients] for d in (first, second)])
    assert arms.mean(axis=1) == pytest.approx(0.5, abs=0.03)
    assert (arms[0] == arms[1]).mean() == pytest.approx(0.5, abs=0.03)  # one says nothing of the other
    assert define(name="one").gets_a("somebody") == define(name="one").gets_a("somebody")


def test_shares_find_room_beside_each_other() -> None:
    running = [define(name="one", share=0.3), define(name="two", share=0.2, start=0.6)]
    assert room(0.3, running) == pytest.approx(0.3)
    assert room(0.2, running[1:]) == 0.0
    assert room(0.1, running) == pytest.approx(0.3)
    with pytest.raises(InputError, match="no gap"):
        room(0.5, running)
    assert room(1.0, []) == 0.0


def outcomes(seed: int, n: int) -> list[dict[str, float]]:
    rng = generator(seed, 0, Purpose.DATA)
    return [
        {"click": float(rng.choice([-1, 0, 1], p=[0.2, 0.3, 0.5])), **({"purchase": 1.0} if rng.random() < 0.1 else {})}
        for _ in range(n)
    ]


def test_an_interleaved_experiment_is_decided() -> None:
    tally = Tally.start(define())
    for outcome in outcomes(0, 400):
        tally = tally.after(outcome, clicked=outcome["click"] != 0)
    told = tally.answer()
    assert (told["impressions"], told["verdict"]) == (400, "a")
    assert told["wins_a"] + told["wins_b"] + told["ties"] == 400
    assert told["interval"][0] <= told["effect"] <= told["interval"][1]
    assert told["p_value"] <= 0.05
    assert 0 < told["decided_after"] <= 400
    assert told["more_lists"] == 0
    assert told["signals"]["purchase"]["wins_a"] > 10
    assert told["guardrails"]["lists_without_a_click"]["both"]["share"] == pytest.approx(told["ties"] / 400)
    assert told["sentence"].startswith("shop is better than as-sent")
    json.dumps(told)


def test_a_split_measures_the_difference_of_its_arms() -> None:
    rng = generator(1, 0, Purpose.DATA)
    tally = Tally.start(define(kind="split"))
    for _ in range(4000):
        is_a = bool(rng.random() < 0.5)
        value = float(rng.random() < (0.3 if is_a else 0.6))
        tally = tally.after({"click": value}, clicked=value > 0, is_a=is_a)
    told = tally.answer()
    assert told["verdict"] == "b"
    assert told["effect"] == pytest.approx(-0.3, abs=0.05)
    empty = told["guardrails"]["lists_without_a_click"]
    for arm, share in (("a", 0.7), ("b", 0.4)):
        assert empty[arm]["share"] == pytest.approx(share, abs=0.05)
        assert empty[arm]["interval"][0] < share < empty[arm]["interval"][1]
    assert empty["b"]["interval"][1] < empty["a"]["interval"][0]
    assert told["sentence"].startswith("as-sent is better than shop")


def test_before_a_verdict_it_says_when() -> None:
    tally = Tally.start(define())
    assert "nothing leads" in tally.answer()["sentence"]
    for x in (1.0, 0.0, 0.0, 1.0, -1.0):
        tally = tally.after({"click": x}, clicked=x != 0)
    assert "more lists will decide" in tally.answer()["sentence"]


def test_a_restart_anywhere_gives_the_same_bits() -> None:
    whole = kept = Tally.start(define())
    for i, outcome in enumerate(outcomes(2, 120)):
        whole, kept = whole.after(outcome, clicked=True), kept.after(outcome, clicked=True)
        if i % 17 == 0:
            kept = Tally.from_json(json.loads(json.dumps(kept.to_json())))
    assert kept == whole
    assert kept.answer() == whole.answer()


def test_an_experiment_from_before_signals_goes_on() -> None:
    definition = define(kind="split")
    assert definition.digest == "c60c4bf8c1a29190"  # of then: its clients keep their arm
    values = json.loads(json.dumps(Tally.start(definition).after({"click": 1.0}, clicked=True, is_a=True).to_json()))
    del values["guards"], values["definition"]["signals"]
    later = Tally.from_json(values).after({"click": 0.0}, clicked=False, is_a=False)
    assert later.lists == 2
    assert later.answer()["guardrails"].keys() == {"lists_without_a_click"}


def test_wrong_lists_say_so() -> None:
    with pytest.raises(InputError, match="missing"):
        Tally.start(define()).after({"purchase": 1.0}, clicked=True)
    with pytest.raises(InputError, match="missing"):
        Tally.start(define(kind="split")).after({"click": 1.0}, clicked=True)
    with pytest.raises(InputError, match="value"):
        Tally.start(define(kind="split")).after({"click": 2.0}, clicked=True, is_a=True)
