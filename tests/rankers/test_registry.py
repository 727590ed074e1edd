from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairrank
from pairrank import rankers
from pairrank.errors import FileFormatError, MissingExtraError, OptionError, PairRankError, UnknownNameError

numbers = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = numbers | st.text()
# feature_names, monotone; rankers of one's own may have deeper ones
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)


@given(
    st.sampled_from(rankers.names()), st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True), values)
)
def test_a_ranker_is_read_from_its_own_text(name: str, options: dict[str, object]) -> None:
    assert rankers.parse(rankers.spell(name, options)) == (name, options)


def test_bare_words_are_text() -> None:
    assert rankers.parse("pairrank-c(alpha=theory, refine=true, Q=2)") == (
        "pairrank-c",
        {"alpha": "theory", "refine": True, "Q": 2},
    )


@pytest.mark.parametrize("text", ["nobody", "pairrank(", "", "PairRank", "pairrank)x("])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(UnknownNameError, match="there are: "):
        rankers.parse(text)


def test_unknown_and_unreadable_options_are_refused() -> None:
    with pytest.raises(OptionError, match="colour"):
        rankers.make("pairrank", n_features=3, colour=1)
    with pytest.raises(OptionError, match="name=value"):
        rankers.parse("pairrank(alpha)")
    with pytest.raises(OptionError, match=r"cannot read \[1, \.5\]; expected JSON"):
        rankers.parse("pairrank(alpha=[1, .5])")
    with pytest.raises(OptionError, match="expected JSON"):
        rankers.parse(f"pairrank(alpha={'[' * 100_000}])")
    with pytest.raises(OptionError, match=r"'pairrank\(z=1, z=2\)' gives z twice; expected each option once"):
        rankers.parse("pairrank(z=1, z=2)")


def test_plain_pairrank_is_the_class_without_arguments() -> None:
    assert rankers.make("pairrank", n_features=3).fingerprint == pairrank.PairRank(3).fingerprint


@pytest.mark.parametrize("name", rankers.names())
def test_save_and_load(name: str, tmp_path: Path) -> None:
    ranker = rankers.make(name, n_features=4, seed=3)
    ranker.save(tmp_path / "model")
    loaded = pairrank.load(tmp_path / "model")
    assert type(loaded) is type(ranker)
    assert loaded.digest() == ranker.digest()


def test_a_ranker_unknown_here_is_refused(tmp_path: Path) -> None:
    from pairrank import archive

    (tmp_path / "model").write_bytes(archive.pack("ranker", {"name": "tomorrow"}, {}))
    with pytest.raises(FileFormatError, match="tomorrow"):
        pairrank.load(tmp_path / "model")


def test_what_an_extra_brings_is_not_imported_to_list_rankers() -> None:
    look = "rankers.names(); rankers.options('olranknet'); print('torch' in sys.modules)"
    code = f"import sys; from pairrank import rankers; {look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_ranker_whose_extra_is_missing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"PyTorch, which is not installed: pip install 'pairrank\[neural\]'"):
        rankers.make("olranknet", n_features=2)
    monkeypatch.setattr(rankers, "find_spec", lambda name: None)
    assert "olranknet" not in rankers.names()
    assert rankers.label("olranknet") == "olRankNet"
    monkeypatch.setattr(rankers, "find_spec", lambda name: name)
    assert "olranknet" in rankers.names()


def test_options_may_be_numpy_scalars() -> None:
    ranker = rankers.make("pairrank", n_features=2, z=np.float32(0.5), lam=np.int64(3), refine=np.bool_(True))
    assert type(ranker).from_bytes(ranker.to_bytes()).settings == ranker.settings
    assert ranker.fingerprint == rankers.make("pairrank", n_features=2, z=0.5, lam=3, refine=True).fingerprint


def test_rankers_whose_options_are_equal_share_impressions() -> None:
    whole, real = ({"z": number(1), "lam": number(3), "Q": None, "offsets": False} for number in (int, float))
    one, other = pairrank.PairRank(2, **whole), pairrank.PairRank(2, **real)
    assert one.fingerprint == other.fingerprint
    assert other.learn(one.rank(np.eye(2)), [True, False])
    assert one.fingerprint != pairrank.PairRank(2, **{**real, "z": 2}).fingerprint
    for name in ("pairrank", "mgd"):  # with counts that stay whole numbers
        assert (default := rankers.make(name, n_features=2)).fingerprint == _before(default)
    # What was shown before that was so is still learned, by the ranker of then, too.
    shown = replace(pairrank.PairRank(2, **whole).rank(np.eye(2)), ranker=_before(one))
    assert one.fingerprint != shown.ranker
    assert pairrank.PairRank.from_bytes(one.to_bytes()).learn(shown, [True, False])
    assert other.fingerprint == _before(other)


def _before(ranker: rankers.Ranker) -> str:
    """The fingerprint of when 1 was another option than 1.0."""
    settings = {name: value for name, value in ranker.settings.items() if name != "model"}
    text = json.dumps([ranker.name, ranker.n_features, ranker.seed, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ranker, shown: pairrank.load(None),
        lambda ranker, shown: pairrank.load(""),
        lambda ranker, shown: ranker.save(""),
        lambda ranker, shown: ranker.save(5),
        lambda ranker, shown: ranker.rank_many(5),
        lambda ranker, shown: ranker.learn_many(shown, [[True, False]]),
        lambda ranker, shown: ranker.learn_many([shown], None),
        lambda ranker, shown: pairrank.Impression.from_bytes(None),
        lambda ranker, shown: type(ranker).from_bytes("text"),
        lambda ranker, shown: rankers.make(None, n_features=2),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_in_one_sentence(wrong: Callable[..., object]) -> None:
    ranker = rankers.make("pdgd", n_features=2)
    shown = ranker.rank([[0.0, 1.0], [1.0, 0.0]])
    before = ranker.digest()
    with pytest.raises(PairRankError, match="; expected "):
        wrong(ranker, shown)
    assert ranker.digest() == before
