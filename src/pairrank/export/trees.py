"""Additive models as regression trees, one per feature: XGBoost's JSON, LightGBM's text, Solr's own.

Trees are steps, so a function goes out in fine ones (`AdditiveModel.steps`): exact at its knots, which are all values
where a feature takes few, and between them within the error that is stated. Elasticsearch, OpenSearch and Vespa take
XGBoost's and LightGBM's models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.additive import AdditiveModel, Steps, check_resolution, largest_error

# Above every number that XGBoost, in 32 bits, can be given here: only what is missing goes the other way.
ABOVE_ALL = 3e38
# What Solr adds to every threshold, in 32 bits; else a value that is a millionth above one would go the other way.
SOLR_SLACK = np.float32(1e-6)
# What 32 bits may add to the stated error, as a share of it: a fifth of a step.
ROUNDED = 0.4
# XGBoost's word for "no parent".
NOBODY = 2**31 - 1


class Tree(NamedTuple):
    """A tree over one feature. Node i has ``bound[i]``; x < bound goes to ``left[i]``, else to ``right[i]``.

    Children at or above 0 are nodes, leaf j is -1 - j with ``values[j]``. Missing values go left where ``lost_left``.
    """

    feature: int
    bound: list[float]
    left: list[int]
    right: list[int]
    values: list[float]
    lost_left: bool = True


def balanced(feature: int, steps: Steps) -> Tree:
    """Steps as a tree of least depth."""
    tree = Tree(feature, [], [], [], steps.values.tolist())

    def grow(first: int, last: int) -> int:
        """The subtree of the leaves ``first`` to ``last``."""
        if first == last:
            return -1 - first
        middle = (first + last) // 2
        node = len(tree.bound)
        tree.bound.append(float(steps.bounds[middle]))
        tree.left.append(0)
        tree.right.append(0)
        tree.left[node], tree.right[node] = grow(first, middle), grow(middle + 1, last)
        return node

    grow(0, len(steps.values) - 1)
    return tree


def trees(model: AdditiveModel, leaves: int) -> tuple[list[Tree], float]:
    """All trees, and the largest error between the knots."""
    steps = model.steps(leaves)
    found = [balanced(f, step) for f, step in enumerate(steps)]
    for f, step in enumerate(steps):
        if step.missing is not None:
            # Missing values stand in the feature's lowest leaf; here they get the rest.
            rest = step.missing - float(step.values[0])
            found.append(Tree(f, [ABOVE_ALL], [-1], [-2], [0.0, rest], lost_left=False))
    return found, largest_error(steps)


def _check_names(names: Sequence[str], forbidden: str, whose: str) -> None:
    """`ExportError` for names with characters with which ``whose`` library reads a model and then cannot use it."""
    if wrong := next((name for name in names if not set(forbidden).isdisjoint(name)), None):
        raise ExportError(f"{whose} cannot take {wrong!r} for a name: it has one of {forbidden}; rename it (--names)")


def xgboost(model: AdditiveModel, leaves: int) -> bytes:
    """What ``xgboost.Booster(model_file=…)`` reads."""
    _check_names(model.feature_names, "[]<", "XGBoost")
    found, error = trees(model, leaves)
    check_resolution(model, ROUNDED * error, "XGBoost can tell, which counts in 32 bits", steps=True)
    learner = {
        "attributes": {"pairrank": model.name, "largest_error": repr(error)},
        "feature_names": list(model.feature_names),
        "feature_types": [],
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(found))},
                "iteration_indptr": list(range(len(found) + 1)),
                "tree_info": [0] * len(found),
                "trees": [_xgboost_tree(i, tree, model.n_features) for i, tree in enumerate(found)],
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": "0E0",
            "boost_from_average": "0",
            "num_class": "0",
            "num_feature": str(model.n_features),
            "num_target": "1",
        },
        "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    return strict_json.write({"learner": learner, "version": [2, 1, 0]})


def _xgboost_tree(number: int, tree: Tree, n_features: int) -> dict[str, Any]:
    """Parallel arrays, one entry per node or leaf; a leaf's value stands where a node has its bound.

    XGBoost's predictors take the right child to follow the left one, as in all trees that it grows itself.
    """
    waiting, parents = [0 if tree.bound else -1], [NOBODY]
    left: list[int] = []
    for place, node in enumerate(waiting):  # grows as it is read
        left.append(len(waiting) if node >= 0 else -1)
        if node >= 0:
            waiting += [tree.left[node], tree.right[node]]
            parents += [place, place]
    size = len(waiting)
    return {
        "base_weights": [0.0 if node >= 0 else tree.values[-1 - node] for node in waiting],
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [int(tree.lost_left and node >= 0) for node in waiting],
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * size,
        "parents": parents,
        "right_children": [child + 1 if child >= 0 else -1 for child in left],
        "split_conditions": [tree.bound[node] if node >= 0 else tree.values[-1 - node] for node in waiting],
        "split_indices": [tree.feature if node >= 0 else 0 for node in waiting],
        "split_type": [0] * size,
        "sum_hessian": [1.0] * size,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(size),
            "size_leaf_vector": "1",
        },
    }


def lightgbm(model: AdditiveModel, leaves: int) -> bytes:
    """What ``lightgbm.Booster(model_str=…)`` reads. Its feature names hold no blanks."""
    found, error = trees(model, leaves)
    bodies = [_lightgbm_tree(i, tree) for i, tree in enumerate(found)]
    names = ["_".join(name.split()) for name in model.feature_names]
    _check_names(names, '"\\', "LightGBM")  # it writes them into JSON as they are
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ExportError(f"two features would be called {twice!r}, since LightGBM's names hold no blanks: rename one")
    ranges = " ".join(f"[{float(f.x[0])!r}:{float(f.x[-1])!r}]" for f in model.functions)
    head = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={model.n_features - 1}",
        "objective=regression",
        f"feature_names={' '.join(names)}",
        f"feature_infos={ranges}",
        f"tree_sizes={' '.join(str(len(body)) for body in bodies)}",
    ]
    tail = f"end of trees\n\nparameters:\nend of parameters\n\npandas_categorical:null\n\nlargest_error:{error!r}\n"
    return ("\n".join(head) + "\n\n" + "".join(bodies) + tail).encode()


def _lightgbm_tree(number: int, tree: Tree) -> str:
    # x <= threshold goes left there: the next number below stands for "less than".
    bounds = [float(np.nextafter(bound, -np.inf)) for bound in tree.bound]
    # NaN is a missing value (8), and goes left by default (2) or not.
    kind = 8 + 2 * tree.lost_left
    n, m = len(bounds), len(tree.values)
    lines: dict[str, Sequence[float]] = {
        "num_leaves": [m],
        "num_cat": [0],
        "split_feature": [tree.feature] * n,
        "split_gain": [0] * n,
        "threshold": bounds,
        "decision_type": [kind] * n,
        "left_child": tree.left,
        "right_child": tree.right,
        "leaf_value": tree.values,
        "leaf_weight": [1] * m,
        "leaf_count": [1] * m,
        "internal_value": [0] * n,
        "internal_weight": [1] * n,
        "internal_count": [1] * n,
        "is_linear": [0],
        "shrinkage": [1],
    }
    text = "\n".join(f"{key}={' '.join(map(repr, values))}" for key, values in lines.items())
    return f"Tree={number}\n{text}\n\n\n"


def solr(model: AdditiveModel, store: str, leaves: int) -> bytes:
    """A ``MultipleAdditiveTreesModel``. Solr knows no missing values: a feature that has none is 0 there."""
    told = "Solr can tell, which counts in 32 bits and adds 1e-6 to every threshold"
    found, error = trees(model, leaves)
    check_resolution(model, ROUNDED * error, told, steps=True, slack=float(SOLR_SLACK))
    content = {
        "class": "org.apache.solr.ltr.model.MultipleAdditiveTreesModel",
        "name": model.name,
        "store": store,
        "features": [{"name": name} for name in model.feature_names],
        "params": {
            "trees": [
                {"weight": "1", "root": _solr_node(tree, 0 if tree.bound else -1, model.feature_names)}
                for tree in found
                if tree.lost_left
            ]
        },
    }
    return strict_json.write(content)


def _solr_threshold(bound: float) -> float:
    """What to write so that x < bound goes left: Solr adds a slack as it reads, and takes what is not above it left."""
    down = np.float32(-np.inf)
    highest = np.nextafter(np.float32(bound), down)  # of those that go left
    written = highest - SOLR_SLACK
    while written + SOLR_SLACK > highest:
        written = np.nextafter(written, down)
    return float(written)


def _solr_node(tree: Tree, node: int, names: tuple[str, ...]) -> dict[str, Any]:
    if node < 0:
        return {"value": repr(tree.values[-1 - node])}
    return {
        "feature": names[tree.feature],
        "threshold": repr(_solr_threshold(tree.bound[node])),
        "left": _solr_node(tree, tree.left[node], names),
        "right": _solr_node(tree, tree.right[node], names),
    }
