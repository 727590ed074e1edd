"""Re-rank what Elasticsearch finds, learn from the clicks, and hand the model to the Learning to Rank plugin.

    python examples/elasticsearch_rerank.py                                    # offline, on bodies kept here
    python examples/elasticsearch_rerank.py --url http://localhost:9200/shop   # against a cluster with the plugin

The search asks the plugin to log its features (``sltr`` with ``ext.ltr_log``); they come back with every hit in
``fields._ltrlog``. We order the hits, keep the impression, and learn when the clicks arrive. OpenSearch speaks the
same.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pairrank
from pairrank import export
from pairrank.data.normalize import Normaliser

BODIES = Path(__file__).parent / "elasticsearch"
LOG = "features"  # the name in ext.ltr_log.log_specs

# Fixed before the first search and never changed: a model means nothing without the scale of its features.
NAMES = ("title_match", "description_match", "rating", "days_online")
LOWEST, HIGHEST = np.array([0.0, 0.0, 0.0, 0.0]), np.array([20.0, 20.0, 5.0, 1000.0])
NORMALISER = Normaliser("global", LOWEST, HIGHEST - LOWEST)


def logged_features(hit: dict[str, Any]) -> list[float]:
    """The features of one hit in the order of NAMES; one that did not match has no value and counts as 0."""
    entries = next(log[LOG] for log in hit["fields"]["_ltrlog"] if LOG in log)
    values = {entry["name"]: entry.get("value", 0.0) for entry in entries}
    return [values[name] for name in NAMES]


def rerank(
    answer: dict[str, Any], ranker: pairrank.PairRank, explore: bool = True
) -> tuple[dict[str, Any], pairrank.Impression]:
    """The answer with its hits in our order, and the impression to learn from later."""
    hits = answer["hits"]["hits"]
    features = NORMALISER.apply(np.array([logged_features(hit) for hit in hits]))
    impression = ranker.rank(features, explore=explore)
    ordered = [hits[row] for row in impression.ranking]
    return {**answer, "hits": {**answer["hits"], "hits": ordered}}, impression


def search(number: int, url: str | None) -> dict[str, Any]:
    """The answer to a search: from the cluster at ``url``, or the one kept with the example."""
    if url is None:
        return json.loads((BODIES / f"search-{number}.response.json").read_text())
    body = (BODIES / f"search-{number}.request.json").read_bytes()
    request = urllib.request.Request(f"{url}/_search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main(argv: Sequence[str] | None = None) -> pairrank.PairRank:
    """Serve the searches a few times, with users who always want the same; then export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="an index of a cluster (default: offline)")
    parser.add_argument("--times", type=int, default=30, help="how often each search comes (default: %(default)s)")
    args = parser.parse_args(argv)
    wanted = {key: set(ids) for key, ids in json.loads((BODIES / "clicks.json").read_text()).items()}
    ranker = pairrank.PairRank(n_features=len(NAMES), seed=0)
    for _ in range(args.times):
        for number in range(1, len(wanted) + 1):
            answer, impression = rerank(search(number, args.url), ranker)
            shown = [hit["_id"] for hit in answer["hits"]["hits"]]
            # Between these two lines lies a user. The impression travels as bytes, and may take its time.
            ranker.learn(impression, [name in wanted[f"search-{number}"] for name in shown])
    for number in range(1, len(wanted) + 1):
        answer, _ = rerank(search(number, args.url), ranker, explore=False)
        print(f"search {number}:", *(hit["_source"]["title"] for hit in answer["hits"]["hits"][:3]), sep="\n    ")
    model = export.LinearModel.from_ranker(ranker, name="shop", feature_names=NAMES, normaliser=NORMALISER)
    print("POST _ltr/_featureset/shop_features/_createmodel")
    print(export.dumps(model, "elasticsearch").decode())
    return ranker


if __name__ == "__main__":
    main()
