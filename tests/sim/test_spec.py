from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.errors import FileFormatError, NewerFormatError, OptionError
from pairrank.sim import RunSpec
from pairrank.sim.spec import SPEC_VERSION, data_name


def test_json_round_trip() -> None:
    spec = RunSpec(data="synthetic:tiny", ranker="pdgd(learning_rate=0.2)", clicks="position(eta=0.5)", seed=2**64 - 1)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert hash(RunSpec.from_json(spec.to_json())) == hash(spec)


def test_numbers_of_numpy_are_numbers() -> None:
    spec = RunSpec(data="synthetic:tiny", rounds=np.int64(5), seed=np.uint8(3))  # type: ignore[arg-type]
    assert spec.run_id == RunSpec(data="synthetic:tiny", rounds=5, seed=3).run_id


@pytest.mark.parametrize("name", ["data", "normalise", "evaluation", "schedule", "ideal", "clicks"])
def test_what_is_no_text_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is 7; expected a text"):
        RunSpec.from_json(json.dumps({"version": SPEC_VERSION, "data": "synthetic:tiny", name: 7}))


def test_data_may_be_a_path() -> None:
    assert RunSpec(data=Path("a")) == RunSpec(data="a")  # type: ignore[arg-type]


def test_the_id_depends_on_every_field() -> None:
    spec = RunSpec(data="a")
    others = [
        replace(spec, data="b"),
        replace(spec, ranker="pdgd"),
        replace(spec, clicks="perfect"),
        replace(spec, rounds=7),
        replace(spec, seed=1),
        replace(spec, k=3),
        replace(spec, fold=2),
        replace(spec, normalise="none"),
        replace(spec, evaluation="vali"),
        replace(spec, schedule="every:5"),
        replace(spec, panel=3),
        replace(spec, ideal=""),
        replace(spec, content="0"),
        replace(spec, content="1"),
    ]
    assert len({s.run_id for s in [spec, *others]}) == len(others) + 1


def test_the_id_does_not_depend_on_spelling() -> None:
    one = RunSpec(data="a", ranker="pairrank-c( pairs=all,alpha = 0.3 )", clicks="position")
    other = RunSpec(data="a", ranker="pairrank-c(alpha=0.3, pairs=all)", clicks="position(eta=1.0)")
    assert one.run_id == other.run_id


def test_a_newer_version_is_refused() -> None:
    values = json.loads(RunSpec(data="a").to_json()) | {"version": SPEC_VERSION + 1, "something": "new"}
    with pytest.raises(NewerFormatError, match="upgrade"):
        RunSpec.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": "x", "data": "a"}', "nonsense"])
def test_damaged_json(text: str) -> None:
    with pytest.raises(FileFormatError):
        RunSpec.from_json(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"k": 0},
        {"fold": True},
        {"seed": -1},
        {"evaluation": "dev"},
        {"schedule": "often"},
        {"panel": -1},
    ],
)
def test_impossible_values(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        RunSpec(data="a", **wrong)  # type: ignore[arg-type]


@given(st.integers(1, 100_000), st.integers(1, 30))
def test_a_geometric_schedule_is_dense_early_and_ends_at_the_end(rounds: int, per_decade: int) -> None:
    evaluated = RunSpec(data="a", rounds=rounds, schedule=f"geometric:{per_decade}").evaluation_rounds()
    assert evaluated[0] == 1
    assert evaluated[-1] == rounds
    assert (np.diff(evaluated) > 0).all()
    assert len(evaluated) <= per_decade * np.log10(rounds) + 2
    powers = 10 ** np.arange(int(np.log10(rounds)) + 1)
    assert set(powers[powers <= rounds]) <= set(evaluated)


def test_an_even_schedule() -> None:
    assert RunSpec(data="a", rounds=10, schedule="every:4").evaluation_rounds().tolist() == [4, 8, 10]


def test_data_have_a_name_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SHOP" / "Fold1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "SHOP")
    assert {data_name(data) for data in (".", "Fold1/..", "../SHOP/", str(tmp_path / "SHOP"))} == {"SHOP"}
    assert data_name("synthetic:linear(docs=25)") == "synthetic:linear(docs=25)"
