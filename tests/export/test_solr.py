"""Our models in a real Solr, through its own HTTP: the same scores as ours, and the guide from features to the model.

The jars come from Maven Central: ``mvn -f tests/export/solr/pom.xml dependency:copy``, once.
"""

from __future__ import annotations

import http.client
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from numpy.typing import NDArray

from pairrank import PairRank, data, export
from test_docs import DOCS, Session, blocks, session, small_data  # noqa: F401  (fixtures)

HERE = Path(__file__).resolve().parent / "solr"
CONFIGURATION = HERE.parent.parent.parent / "examples" / "solr" / "conf"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def solr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Solr with two empty cores, ``letor`` and ``shop``."""
    if shutil.which("javac") is None or not (HERE / "lib").is_dir():
        pytest.skip(
            "no Solr: apt-get install default-jdk-headless maven && mvn -f tests/export/solr/pom.xml dependency:copy"
        )
    home = tmp_path_factory.mktemp("solr")
    (home / "solr.xml").write_text("<solr/>")
    for core in ("letor", "shop"):
        shutil.copytree(CONFIGURATION, home / core / "conf")
        (home / core / "core.properties").write_text(f"name={core}")
    quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java = ["java", *quick, f"-Dsolr.log.dir={home}", "-cp", f"{HERE / 'lib'}/*", str(HERE / "Server.java")]
    with open(home / "errors", "w") as errors:
        server = subprocess.Popen(
            [*java, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            said = iter(server.stdout.readline, "")
            port = next((line.split()[1] for line in said if line.startswith("PORT ")), None)
            assert port, (home / "errors").read_text()[-2000:]
            yield int(port)
            server.stdin.close()  # it stops by itself
            assert server.wait(30) == 0
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


class Letor:
    """The core ``letor`` over one connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, f"/solr/letor{path}", sent, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text[:2000]
        return json.loads(text)


def additive(fold: data.Dataset, names: list[str]) -> export.AdditiveModel:
    """An additive model that has seen some clicks on the queries of ``fold``."""
    ranker = PairRank(len(names), model="additive")
    for X, grades in itertools.islice(fold.queries(), 100):
        impression = ranker.rank(X, k=min(10, len(X)))
        ranker.learn(impression, grades[impression.ranking] > 0)
    return export.AdditiveModel.from_ranker(ranker, name="additive", feature_names=names)


def trees(body: dict[str, Any], names: list[str], X: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n_docs,), what the exported trees say."""
    columns = dict(zip(names, X.T, strict=True))

    def value(node: dict[str, Any]) -> Any:
        if "value" in node:
            return float(node["value"])
        goes_left = columns[node["feature"]] <= np.float32(node["threshold"]) + np.float32(1e-6)
        return np.where(goes_left, value(node["left"]), value(node["right"]))

    return np.zeros(len(X)) + sum(value(tree["root"]) for tree in body["params"]["trees"])


def test_every_test_query_of_mq2008_has_our_scores(solr: int, real_data: Path) -> None:
    letor = Letor(solr)
    folds = [
        data.load(real_data / "MQ2008", "test", fold, normalise="none", drop_constant=False) for fold in range(1, 6)
    ]
    names = [f"feature {number}" for number in range(folds[0].n_features)]
    field = "org.apache.solr.ltr.feature.FieldValueFeature"
    rows = [{"name": name, "class": field, "params": {"field": f"{n}_f"}} for n, name in enumerate(names)]
    letor("PUT", "/schema/feature-store", rows)
    rng = np.random.default_rng(0)
    plain = rng.normal(size=len(names))
    ranges: list[export.MinMax | export.Standard | None] = [
        [None, export.MinMax(-0.5, 1.5), export.Standard(0.25, 0.5)][n % 3] for n in range(len(names))
    ]
    models = [
        export.LinearModel.of(plain, name="plain", feature_names=names),
        export.LinearModel.of(plain, name="normalised", feature_names=names, normaliser=ranges),
    ]
    for model in models:
        letor("PUT", "/schema/model-store", export.dumps(model, "solr"))
    bodies = json.loads(export.dumps(additive(folds[0], names), "solr", leaves=512))
    letor("PUT", "/schema/model-store", bodies)
    n_queries, worst = 0, 0.0
    for fold in folds:
        lists = {str(query): fold.query(place)[0] for place, query in enumerate(fold.query_ids)}
        documents = [
            {"id": f"{query}-{row}", "query": query, **{f"{n}_f": float(value) for n, value in enumerate(x)}}
            for query, X in lists.items()
            for row, x in enumerate(X)
        ]
        letor("POST", "/update?commit=true", documents)
        for place, (query, X) in enumerate(lists.items()):
            name = ("plain", "normalised", "additive")[place % 3]
            scores = trees(bodies, names, X) if name == "additive" else models[place % 3].score(X)
            rerank = quote(f"{{!ltr model={name} reRankDocs=1000}}")
            hits = letor("GET", f"/select?q=query:{query}&rows=1000&fl=id,score&rq={rerank}")["response"]["docs"]
            assert len(hits) == len(X)
            ours = scores[[int(hit["id"].rsplit("-", 1)[1]) for hit in hits]]
            worst = max(worst, np.abs(ours - [hit["score"] for hit in hits]).max())
            n_queries += 1
    letor.connection.close()
    assert n_queries == 784
    assert worst < 1e-5


def test_the_guide_from_features_to_the_model(solr: int, session: Session) -> None:  # noqa: F811
    page = DOCS / "guide" / "solr.md"
    for block in blocks(page):
        session.run(block._replace(code=block.code.replace("8983", str(solr))), page.name)
