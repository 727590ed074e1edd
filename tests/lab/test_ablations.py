"""Studies: what the variants are, in terms of the default that they lead to or leave."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pairrank import PairRank, rankers
from pairrank.cli import ablate
from pairrank.lab import ablations
from pairrank.rankers.pairrank import Settings
from pairrank.sim import Protocol


def settings(text: str) -> Settings:
    ranker = rankers.make(text, n_features=3)
    assert isinstance(ranker, PairRank)
    return ranker.settings


def variants(study: str) -> list[str]:
    chosen = ablations.STUDIES[study]
    made = ablations.experiment(study, Protocol(data="synthetic:tiny", rounds=1), command="by hand", seeds=1).rankers
    return [text for text in made if text not in chosen.beside]


def test_the_command_explains_every_study() -> None:
    assert all(f"\n  {study} " in ablate._EPILOG for study in ablations.STUDIES)


def test_the_remedies_lead_from_the_paper_to_the_default() -> None:
    first, *_, last = variants("remedies")
    assert settings(first) == settings("pairrank-c")
    # With width="score" certain orders are transitive, and refine changes nothing.
    assert asdict(settings(last)) | {"refine": True} == asdict(settings("pairrank"))


def test_options_change_one_thing_of_the_default_at_a_time() -> None:
    base, *others = variants("options")
    default = asdict(settings("pairrank"))
    assert base == "pairrank"
    changes = [{key for key, value in asdict(settings(text)).items() if value != default[key]} for text in others]
    assert all(len(changed) == 1 for changed in changes)
    off = {"repeats", "robust", "covariance", "evidence", "calibrate", "caution", "stake"}
    on = {"learn_from", "biased_weight", "read_factor", "mirrored", "confirm", "examine_next"}
    assert off | on == set().union(*changes)


def test_the_default_is_in_the_middle_of_its_z() -> None:
    values = [settings(text).z for text in variants("z")]
    assert values[len(values) // 2] == settings("pairrank").z
    assert values == sorted(values)


@pytest.mark.parametrize("text", ["pairrank(lam=scaled)", 'pairrank(lam="scaled")', "pairrank"])
def test_a_word_for_lambda_is_read_from_a_ranker_s_text(text: str) -> None:
    assert settings(text).lam == "scaled"
    assert rankers.parse(rankers.spell(*rankers.parse(text))) == rankers.parse(text)
