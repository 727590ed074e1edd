"""Scores of another re-ranker over HTTP, ``POST /v1/rerank``: a cross-encoder behind vLLM, Infinity, Cohere, Jina, ...

Standard library only. The scores become one feature among others: how far to trust them is learned.
"""

from __future__ import annotations

import json
import logging
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.parse import urlsplit

from pairrank.errors import OptionError, PairRankError
from pairrank.features.text import Document, passage

logger = logging.getLogger("pairrank.upstream")

# What a score of another re-ranker is asked with: the query and the texts; a number per text, higher is better.
Upstream = Callable[[str, Sequence[str]], Sequence[float]]


class UpstreamError(PairRankError):
    """The other re-ranker could not be reached, refused, or answered something else than scores."""


@dataclass(frozen=True)
class RerankEndpoint:
    """Asks another re-ranker for the scores of texts; an object to give as ``upstream``.

    Parameters
    ----------
    url : the whole address, as in http://127.0.0.1:8080/v1/rerank.
    model : its name there. key : access key, where one is demanded. timeout : seconds for one request.
    """

    url: str
    model: str = ""
    key: str | None = field(default=None, repr=False)
    timeout: float = 5.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            place = self.url.rpartition("@")[2]  # without a password, which urllib would take for a part of the host
            raise OptionError(f"the upstream's address is {place!r}; expected http://host:port/v1/rerank")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):  # urllib's error would tell it
            raise OptionError("the upstream's key holds a line break or another character that no header can carry")

    def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        """(n_texts,), the other's ``relevance_score`` of each text; NaN where it gives none."""
        asked = {"model": self.model, "query": query, "documents": list(texts), "return_documents": False}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        request = urllib.request.Request(self.url, json.dumps(asked).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as problem:
            problem.close()
            raise UpstreamError(f"the upstream {self.url} answered {problem.code}") from None
        except (OSError, ValueError, HTTPException) as problem:
            raise UpstreamError(f"the upstream {self.url} gave no answer: {problem}") from None
        scores = [math.nan] * len(texts)
        try:
            for result in answer["results"]:
                place = int(result["index"])
                if not 0 <= place < len(texts):
                    raise IndexError(place)
                scores[place] = float(result["relevance_score"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise UpstreamError(f"the upstream {self.url} answered something else than indices and scores") from None
        return [score if math.isfinite(score) else math.nan for score in scores]


def scores_of(upstream: Upstream | None, query: str, documents: Sequence[Document]) -> Sequence[float] | None:
    """What another re-ranker says of documents; None where there is none, or where it fails, which is logged."""
    if upstream is None:
        return None
    try:
        return upstream(query, [passage(document).text for document in documents])
    except UpstreamError as problem:
        logger.warning("ranked without the upstream's scores: %s", problem)
        return None
