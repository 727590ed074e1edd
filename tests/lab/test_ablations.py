"""Studies: what the variants are, in terms of the default that they lead to or leave."""

from __future__ import annotations

from pairrank import PairRank, rankers
from pairrank.cli import ablate
from pairrank.lab import ablations
from pairrank.rankers.base import Settings
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
    # With width="score" certain orders are transitive, and refine changes nothing. λ is the paper's.
    assert settings(last) | {"refine": True} == settings("pairrank") | {"lam": settings("pairrank-c").lam}


def test_options_are_other_answers_to_the_defaults_choices() -> None:
    base, *others = variants("options")
    default = settings("pairrank")
    assert base == "pairrank"
    changes = [{key for key, value in settings(text).items() if value != default[key]} for text in others]
    assert all(changes)
    assert set().union(*changes) == {"pairs", "offsets", "units", "exploration"}


def test_the_default_is_in_the_middle_of_its_z() -> None:
    values = [settings(text).z for text in variants("z")]
    assert values[len(values) // 2] == settings("pairrank").z
    assert values == sorted(values)
