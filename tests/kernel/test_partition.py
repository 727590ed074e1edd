"""Blocks as contiguous runs of the score order, against the paper's definition in a graph library."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.kernel import confidence, partition

RULES = {"probability": partition.certain_by_probability, "score": partition.certain_by_score}


def graph_blocks(certain: np.ndarray, refine: bool) -> list[frozenset[int]]:
    """The paper's construction: components of uncertain pairs, merged along cycles, in topological order."""
    n = len(certain)
    orders = nx.DiGraph(list(zip(*np.nonzero(certain), strict=True)))
    orders.add_nodes_from(range(n))
    if refine:
        orders = nx.transitive_closure_dag(orders)
    uncertain = nx.Graph()
    uncertain.add_nodes_from(range(n))
    uncertain.add_edges_from(
        (i, j) for i in range(n) for j in range(i) if not orders.has_edge(i, j) and not orders.has_edge(j, i)
    )
    blocks = nx.DiGraph()
    member = {}
    for number, component in enumerate(nx.connected_components(uncertain)):
        blocks.add_node(number)
        member.update(dict.fromkeys(component, number))
    blocks.add_edges_from((member[i], member[j]) for i, j in orders.edges if member[i] != member[j])
    merged = nx.condensation(blocks)
    inverse = {number: set() for number in blocks}
    for document, number in member.items():
        inverse[number].add(document)
    return [
        frozenset().union(*(inverse[b] for b in merged.nodes[node]["members"])) for node in nx.topological_sort(merged)
    ]


def instance(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (with duplicates and ties), weights and an inverse, of a random kind."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 14)), int(rng.integers(1, 5))
    X = rng.integers(0, 3, (n, d)).astype(float) if rng.random() < 0.4 else rng.normal(size=(n, d))
    X[rng.integers(0, n, n // 3)] = X[rng.integers(n)]
    theta = np.zeros(d) if rng.random() < 0.05 else rng.normal(size=d) * rng.choice([0.3, 2.0, 8.0])
    pairs = rng.normal(size=(int(rng.integers(0, 200)), d))
    return X, theta, np.linalg.inv(np.eye(d) * rng.choice([0.1, 5.0]) + pairs.T @ pairs)


def sorted_certain(
    X: np.ndarray, theta: np.ndarray, inverse: np.ndarray, rule: str, factor: float
) -> tuple[np.ndarray, ...]:
    scores = X @ theta
    order = np.argsort(-scores, kind="stable")
    s = scores[order]
    return order, RULES[rule](s, s, confidence.squared_widths(X[order], inverse), factor)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("refine", [False, True])
def test_blocks_equal_the_graph_library(rule: str, refine: bool) -> None:
    several = 0
    for seed in range(1500):
        X, theta, inverse = instance(seed)
        _order, certain = sorted_certain(
            X, theta, inverse, rule, float(np.random.default_rng(seed).choice([0.05, 0.3, 1.0]))
        )
        expected = graph_blocks(certain, refine)
        closed = partition.transitive_closure(certain) if refine else certain
        ends = partition.block_ends(partition.reaches(closed))
        numbers = partition.block_numbers(ends, len(X))
        assert [frozenset(np.flatnonzero(numbers == b).tolist()) for b in range(len(ends))] == expected, seed
        several += len(expected) > 1
    assert several > 300  # the instances are not all trivial


@given(st.integers(0, 100_000))
def test_closure_equals_the_graph_library(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 25))
    certain = np.triu(rng.random((n, n)) < rng.random() * 0.5, 1)
    graph = nx.DiGraph(list(zip(*np.nonzero(certain), strict=True)))
    graph.add_nodes_from(range(n))
    expected = nx.to_numpy_array(nx.transitive_closure_dag(graph), nodelist=range(n)) > 0
    assert np.array_equal(partition.transitive_closure(certain), expected)


@given(st.integers(0, 100_000))
def test_certainty_in_score_space_is_transitive(seed: int) -> None:
    X, theta, inverse = instance(seed)
    _, certain = sorted_certain(X, theta, inverse, "score", 0.5)
    assert np.array_equal(partition.transitive_closure(certain), certain)


HALF = {"probability": partition.half_by_probability, "score": partition.half_by_score}


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(0, 100_000), st.integers(2, 120), st.integers(1, 14), st.sampled_from([0.0, 0.01, 0.1, 1.0]))
def test_leading_blocks_are_the_first_of_all_blocks(rule: str, seed: int, n: int, k: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    s = np.sort(rng.normal(size=n) * rng.choice([0.1, 1.0, 10.0]))[::-1]
    X = rng.normal(size=(n, 3)) * rng.choice([0.1, 1.0])
    own = np.sqrt((X**2).sum(axis=1))
    certain = RULES[rule](s, s, confidence.squared_widths(X, np.eye(3)), factor)
    margin = HALF[rule](own, factor)
    assert certain[np.subtract.outer(s - margin, s + margin) > 0].all()
    ends = partition.leading_blocks(lambda rows, columns: certain[rows, columns], (s - margin, s + margin), min(k, n))
    whole = partition.block_ends(partition.reaches(certain))
    assert ends.tolist() == whole[: np.searchsorted(whole, min(k, n) - 1) + 1].tolist()


@pytest.mark.parametrize("last", [2000, 1999, 1000])
def test_the_end_of_a_long_block_is_found_with_few_rows(last: int) -> None:
    n, near = 2000, 100
    s = -np.arange(n, dtype=np.float64)
    s[last:] -= 1000.0  # nobody above is uncertain of these
    asked, compared = [], []

    def over(rows: partition.Places, columns: partition.Places) -> np.ndarray:
        if not isinstance(rows, slice):  # the first ones
            asked.extend(rows.tolist())
            compared.append(len(rows) * len(s[columns]))
        return np.subtract.outer(s[rows], s[columns]) > near

    ends = partition.leading_blocks(over, (s - near / 2, s + near / 2), 10)
    assert ends.tolist() == [last - 1]
    assert len(asked) < n / 5
    assert len(set(asked)) == len(asked)
    assert sum(compared) < 20 * n


def test_no_more_rows_are_asked_for_when_the_top_is_closed() -> None:
    s = -np.arange(1000, dtype=np.float64)
    asked = []

    def over(rows: partition.Places, columns: partition.Places) -> np.ndarray:
        asked.append(rows)
        return np.subtract.outer(s[rows], s[columns]) > 0

    ends = partition.leading_blocks(over, (s, s), 10)
    assert ends.tolist() == list(range(10))
    assert asked == [slice(20)]
