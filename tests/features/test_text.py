"""Features of texts: what each column says, and that nothing but the list decides it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.errors import InputError, OptionError
from pairrank.features.text import TextFeatures, bm25, inverse_frequency, words

EXTRACT = TextFeatures()


def column(name: str, query: str, documents: list, extract: TextFeatures = EXTRACT, **given: object) -> np.ndarray:
    return extract(query, documents, **given)[:, extract.names.index(name)]


def test_the_names_of_version_one_are_fixed() -> None:
    assert EXTRACT.version == "text-1"
    assert " ".join(EXTRACT.names) == "first_rank first_score upstream bm25 overlap phrase early title length recency"
    assert TextFeatures(numbers=("views",)).names[-1] == "number:views"


def test_bm25_is_that_of_a_search_library() -> None:
    bm25s = pytest.importorskip("bm25s", reason="pip install bm25s")
    rng = np.random.default_rng(0)
    texts = [[f"w{w}" for w in rng.zipf(1.5, size) % 50] for size in rng.integers(3, 60, 25)]
    query = ["w1", "w2", "w7", "w49", "never"]
    library = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    library.index(texts, show_progress=False)
    known = [word for word in query if any(word in text for text in texts)]
    theirs = library.get_scores(known)
    occurs = np.array([[text.count(word) for word in query] for text in texts], dtype=float)
    lengths = np.array([len(text) for text in texts], dtype=float)
    ours = bm25(occurs, lengths, inverse_frequency(occurs), k1=1.5, b=0.75)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    mine = column("bm25", " ".join(query), [" ".join(text) for text in texts])
    np.testing.assert_allclose(mine, theirs / theirs.max(), rtol=1e-5)


def test_first_rank_falls_as_dcg_discounts() -> None:
    assert column("first_rank", "q", ["a", "b", "c"]).tolist() == [1 / math.log2(1 + rank) for rank in (1, 2, 3)]


def test_scores_are_scaled_over_the_list_and_missing_ones_say_nothing() -> None:
    documents = ["a", "b", "c"]
    assert column("first_score", "q", documents, scores=[7, 3, 5]).tolist() == [1.0, 0.0, 0.5]
    assert column("first_score", "q", documents, scores=[9, math.nan, 3]).tolist() == [1.0, 0.5, 0.0]
    assert column("first_score", "q", documents).tolist() == [0.0, 0.0, 0.0]
    assert column("upstream", "q", documents, upstream=[0.2, 0.2, 0.2]).tolist() == [0.0, 0.0, 0.0]


def test_overlap_weighs_rare_words_more() -> None:
    documents = ["the engine", "the car", "the the"]
    # "engine" is in one of three texts, "the" in all.
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 0.5 / 3.5)
    np.testing.assert_allclose(
        column("overlap", "the engine", documents), [1.0, common / (rare + common), common / (rare + common)]
    )


def test_phrases_and_early_matches() -> None:
    documents = ["solar power plant", "power plant, solar", "x x x solar"]
    assert column("phrase", "solar power plant", documents).tolist() == [1.0, 0.5, 0.0]
    first, second, third = column("early", "solar", documents)
    np.testing.assert_allclose([first, second, third], [1.0, 1 - 2 / 3, 1 - 3 / 4])


def test_titles_lengths_numbers_and_dates_come_from_metadata() -> None:
    extract = TextFeatures(numbers=("views",))
    documents = [
        {"text": "one two three", "title": "Solar power", "metadata": {"views": 0, "date": "2026-01-01"}},
        {"text": "one", "metadata": {"views": "9", "date": datetime(2025, 1, 1, tzinfo=UTC)}},
        {"text": "", "views": Decimal("99"), "date": 1767225600},  # as databases give them; 2026-01-01 in seconds
        {"text": "one", "views": True, "date": "yesterday"},
    ]
    assert column("title", "power", documents, extract).tolist() == [1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(
        column("length", "q", documents, extract), [1.0, math.log(2) / math.log(4), 0.0, math.log(2) / math.log(4)]
    )
    np.testing.assert_allclose(
        column("number:views", "q", documents, extract), [0.0, 0.5, 1.0, 0.5], err_msg="log(10) is half of log(100)"
    )
    year = 1 - math.log1p(365) / math.log1p(3652.5)
    np.testing.assert_allclose(column("recency", "q", documents, extract), [1.0, year, 1.0, (2 + year) / 3])


@pytest.mark.parametrize(
    "value", ["2020", 2020, "2020-01-01", "20200101", "2020-01-01T00:00:00Z", 1577836800, 1577836800000]
)
def test_dates_may_be_written_in_many_ways(value: object) -> None:
    newest = {"text": "a", "date": "2021-01-01"}
    expected = 1 - math.log1p(366) / math.log1p(3652.5)
    assert column("recency", "q", [newest, {"text": "b", "date": value}])[1] == pytest.approx(expected, abs=1e-3)


def test_what_frames_write_for_nothing_is_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    dates = pandas.to_datetime(["2021-01-01", None, "2020-01-01"])
    titles = [None, math.nan, "None"]
    documents = [{"text": "a", "date": dates[n], "title": titles[n]} for n in range(3)]
    recency = column("recency", "q", documents)
    assert recency[1] == pytest.approx((recency[0] + recency[2]) / 2)
    assert column("title", "none", documents).tolist() == [0.0, 0.0, 1.0]
    assert not column("title", "nan", documents).any()
    for gap in (pandas.NaT, pandas.NA, math.nan, np.float32("nan")):
        other = [{"text": "a", "title": gap, "date": gap, "updated": dates[n]} for n in (0, 2)]
        assert column("recency", "q", other).tolist() == [recency[0], recency[2]]
        assert not column("title", "nat na nan", other).any()


def test_words_are_folded_and_unspaced_scripts_split() -> None:
    assert words("ＦＵＬＬ width, STRASSE straße 東京タワーabc") == [
        "full", "width", "strasse", "strasse", "東", "京", "タ", "ワ", "ー", "abc",
    ]  # fmt: skip


def test_vowel_signs_and_points_are_parts_of_words() -> None:
    assert words("हिन्दी भाषा। தமிழ் বাংলা") == ["हिन्दी", "भाषा", "தமிழ்", "বাংলা"]
    assert words("שָׁלוֹם، العَرَبِيَّة İzmir") == ["שָׁלוֹם", "العَرَبِيَّة", "i\u0307zmir"]
    assert words("ไทย") == ["ไ", "ท", "ย"]  # no spaces between words, either
    documents = ["हद नद", "हिन्दी का इतिहास", "बिल्ली"]  # the first has the same consonants
    assert column("overlap", "हिन्दी", documents).tolist() == [0.0, 1.0, 0.0]


@given(
    st.text(),
    st.lists(st.one_of(st.text(), st.fixed_dictionaries({"text": st.text(), "n": st.floats()})), min_size=1),
    st.data(),
)
def test_any_text_gives_finite_features_within_the_unit_interval(
    query: str, documents: list, data: st.DataObject
) -> None:
    n = len(documents)
    scores = data.draw(st.lists(st.floats(allow_infinity=False), min_size=n, max_size=n))
    extract = TextFeatures(numbers=("n",), dates=("n",))
    X = extract(query, documents, scores=scores)
    assert X.shape == (n, len(extract.names))
    assert ((X >= 0) & (X <= 1 + 1e-12)).all()
    np.testing.assert_array_equal(X, extract(query, documents, scores=scores))


@pytest.mark.parametrize(
    ("documents", "more", "sentence"),
    [
        ([], {}, "there are no documents"),
        ([3], {}, "a document is int"),
        ([{"title": "x"}], {}, "a document has no text"),
        ([{"text": None}], {}, "a document has no text"),
        (["a"], {"scores": [1, 2]}, r"scores have shape \(2,\)"),
        (["a"], {"scores": [math.inf]}, "scores hold infinity"),
        (["a"], {"upstream": ["x"]}, "upstream cannot be read as numbers"),
        (["a"], {"scores": [10**400]}, "scores cannot be read as numbers"),
        ("green tea", {}, "documents are one str; expected a list"),
        ({"text": "green tea"}, {}, "documents are one dict; expected a list"),
        (None, {}, "documents are one NoneType; expected a list"),
    ],
)
def test_wrong_input_is_named(documents: list, more: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        EXTRACT("q", documents, **more)


def test_a_frame_is_no_list_of_documents() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"text": ["a", "b"], "date": ["2024-05-01", "2024-05-02"]})
    with pytest.raises(InputError, match="documents are one DataFrame; expected a list"):
        EXTRACT("q", frame)
    assert len(EXTRACT("q", frame.to_dict("records"))) == len(EXTRACT("q", frame["text"])) == 2


def test_one_text_is_no_list_of_names_and_none_is_no_query() -> None:
    for wrong in ({"numbers": "views"}, {"dates": "updated"}):
        with pytest.raises(OptionError, match=r"expected a tuple, as in \('\w+',\)"):
            TextFeatures(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the query is NoneType; expected a text"):
        EXTRACT(None, ["a"])  # type: ignore[arg-type]
