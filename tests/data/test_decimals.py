"""The readers of many numbers at once against ``float`` and ``int``, token by token."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairrank.data import decimals


@pytest.fixture(params=["pyarrow", "float"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pyarrow and without."""
    if request.param == "float":
        monkeypatch.setitem(sys.modules, "pyarrow", None)


pytestmark = pytest.mark.usefixtures("reader")
DIGITS = st.text("0123456789", min_size=1, max_size=22)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """Decimal numbers in every spelling, of any length: also longer than a float holds."""
    sign = draw(st.sampled_from(["", "-", "+"]))
    mantissa = draw(st.one_of(DIGITS, st.builds("{}.{}".format, DIGITS, DIGITS), DIGITS.map("{}.".format)))
    exponent = draw(st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-330, 330))))
    return sign + mantissa + exponent


VALUES = st.one_of(
    numbers(),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: str(np.float32(x))),
    st.decimals(-1000, 1000, places=6).map(str),
    st.integers(0, 10**9).map(str),
    st.sampled_from([".5", "-.5", "9007199254740993", "9007199254740991e22", "1e22", "1e23", "1e+5", "-0", "0e999"]),
)
LINES = st.lists(st.lists(st.tuples(st.integers(0, 99_999_999), VALUES), max_size=5), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one reader for all examples
@given(LINES, st.sampled_from([" ", "  ", "\t", " \r"]))
def test_values_are_those_of_float_bit_for_bit(lines: list[list[tuple[int, str]]], blank: str) -> None:
    text = "".join(blank.join(f"{i}:{v}" for i, v in line) + blank + "\n" for line in lines)
    found = decimals.pairs(text.encode())
    assert found is not None
    tokens = [token for line in lines for token in line]
    assert found.counts.tolist() == [len(line) for line in lines]
    assert found.indices.tolist() == [i for i, _ in tokens]
    expected = np.array([float(v) for _, v in tokens], dtype=np.float64)
    assert found.values.tobytes() == expected.tobytes()


REFUSED = """3|3:|:3|a:3|1:b|1:2:3|1:-|1:.|1:1.2.3|1:1e|1:1e+|1:--1|1:nan|1:inf|-1:3|1:1_000|1:0x10|0x10:1|1:2 3|1 :2
1: 2|1:2\x003:4|1:1e5.5|1:2e-""".replace("\n", "|")


@pytest.mark.parametrize("text", REFUSED.split("|"))
def test_any_other_text_is_refused(text: str) -> None:
    assert decimals.pairs(f"1:1 2:2\n{text}\n".encode()) is None


def test_lines_without_tokens_count_none() -> None:
    found = decimals.pairs(b"\n  \n1:2\n\n")
    assert found is not None
    assert found.counts.tolist() == [0, 0, 1, 0]
    nothing = decimals.pairs(b"")
    assert nothing is not None
    assert [len(part) for part in nothing] == [0, 0, 0]


@pytest.mark.parametrize("whole", ["", "0", "1", "12"])
@pytest.mark.parametrize("places", range(14, 20))
def test_long_fractions_keep_their_first_digits(whole: str, places: int) -> None:
    """No digit may be dropped, from the front or the end."""
    spelt = f"{whole}.{'23294054447491017394'[:places]}"
    found = decimals.pairs(f"1:{spelt}\n".encode())
    assert found is not None
    assert found.values.tolist() == [float(spelt)]
