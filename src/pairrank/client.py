"""A small client for the service: standard library only, one kept connection a thread, retries that are safe.

Retrying is safe because writes are idempotent: feedback that was taken answers "duplicate", an event is known by its
id, a ranker is created once. A rank request that is sent twice at worst leaves an impression that expires.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from urllib.parse import quote, urlsplit

from pairrank.checking import check_number_in, check_whole
from pairrank.errors import InputError, OptionError, PairRankError

MAX_PAUSE = 2.0
# The features of one document: in order, or by name; None or NaN where one is missing.
Row = Sequence[float | None] | Mapping[str, float | None]


class ServiceError(PairRankError):
    """The service refused: ``status`` is that of HTTP, ``code`` one word for programs, the message a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class UnreachableError(PairRankError):
    """The service could not be reached, or could not store anything, however often it was tried."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One document of a list.

    >>> top = Ranked(id="b", position=1, score=0.4, block=0)
    >>> f"{top.position}. {top.id}"
    '1. b'
    """

    id: str
    position: int
    score: float
    block: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two shown documents, one after the other by score: by how much, half its confidence interval, whether it is kept.

    ``width`` is None where the algorithm has none.

    >>> pair = Neighbours(above="b", below="a", gap=0.3, width=0.5, certain=False)
    >>> f"{pair.above} before {pair.below} by {pair.gap} ± {pair.width}"
    'b before a by 0.3 ± 0.5'
    """

    above: str
    below: str
    gap: float
    width: float | None
    certain: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the shown documents score as they do, whatever order exploration or an experiment shows them in.

    contributions : by document and feature (its name, or its number from 0 as a text), what it adds to the score, above
        the mean of the shown documents. neighbours : by falling score.

    >>> why = Explanation({"b": {"price": -0.1, "rating": 0.4}}, neighbours=())
    >>> max(why.contributions["b"], key=why.contributions["b"].get)
    'rating'
    """

    contributions: Mapping[str, Mapping[str, float]]
    neighbours: tuple[Neighbours, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """A list as it shall be shown; its clicks go back with ``impression_id``. ``explanation`` only where asked for.

    >>> shown = Ranking("3f2a", 7, False, documents=(Ranked("b", 1, 0.4, 0), Ranked("a", 2, 0.1, 1)))
    >>> shown.ids
    ('b', 'a')
    """

    impression_id: str
    model_version: int
    explored: bool
    documents: tuple[Ranked, ...]
    explanation: Explanation | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The documents' ids, best first."""
        return tuple(document.id for document in self.documents)


class Client:
    """Talks to one service.

    >>> client = Client("http://127.0.0.1:8000")
    >>> client.create("search", n_features=2)["feedback_count"]
    0
    >>> shown = client.rank("search", {"a": [0.1, 0.2], "b": [0.3, 0.4]}, k=10)
    >>> client.feedback("search", shown.impression_id, clicks=["b"])
    'accepted'
    >>> client.close()

    Parameters
    ----------
    url : address of the service.
    key : access key, where the service demands one.
    timeout : seconds for one attempt.
    retries : attempts after the first when the service cannot be reached or is busy; pauses double, with chance.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8000", *, key: str | None = None, timeout: float = 10.0, retries: int = 5
    ) -> None:
        try:
            parts, port = urlsplit(url), urlsplit(url).port
        except ValueError:  # a port that is none
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"the service's address is {str(url).rpartition('@')[2]!r}; expected http://host:port")
        if key is not None and not (key.isascii() and key.isprintable()):  # http.client's error would tell the key
            raise OptionError("the key holds a line break or another character that no header can carry")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._prefix, self._place = parts.path.rstrip("/"), parts.netloc.rpartition("@")[2]
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._timeout = check_number_in("timeout", timeout, 0.0, 1e6, open_low=True)
        self._retries = check_whole("retries", retries, 0)
        # By process and thread: a forked process that used its parent's would get the answers of others.
        self._connections: dict[tuple[int, int], http.client.HTTPConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_connections": {}}

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._connections:
            self._connections.popitem()[1].close()

    # Traffic.

    def rank(
        self,
        ranker: str,
        documents: Mapping[str, Row],
        *,
        k: int | None = None,
        query_id: str | None = None,
        client_id: str | None = None,
        page_of: str | None = None,
        explain: bool = False,
    ) -> Ranking:
        """Order documents, given as id → features (numbers, or by name where the ranker has feature names).

        A missing value is None or NaN, where the ranker knows what that means.

        Give them in the order of the present system, which experiments and launches call as-sent. ``client_id`` says
        who asks, so that experiments treat them alike each time. ``page_of`` is the impression_id of the list to go
        on with. ``explain`` asks why the documents score as they do.
        """
        if not isinstance(documents, Mapping):
            raise InputError(f"documents are a {type(documents).__name__}; expected a mapping from ids to features")
        rows = [{"id": name, "features": _plain(name, features)} for name, features in documents.items()]
        body = {"documents": rows, "k": k, "query_id": query_id}
        more = {"client_id": client_id, "page_of": page_of, "explain": explain or None}
        answer = self._call("POST", ranker, "rank", body | _given(more))
        # By name, one by one: a newer service may tell more.
        shown = tuple(Ranked(d["id"], d["position"], d["score"], d["block"]) for d in answer["ranking"])
        why = None
        if explain:
            told = answer["explanation"]
            pairs = (Neighbours(p["above"], p["below"], p["gap"], p["width"], p["certain"]) for p in told["neighbours"])
            why = Explanation(told["contributions"], tuple(pairs))
        return Ranking(answer["impression_id"], answer["model_version"], answer["explored"], shown, why)

    def feedback(self, ranker: str, impression_id: str, clicks: Iterable[str]) -> str:
        """Send the clicks of an impression, whole and final; "accepted" or "duplicate"."""
        if isinstance(clicks, (str, Mapping)) or not isinstance(clicks, Iterable):
            raise InputError(f"clicks are {clicks!r}; expected a list of ids")
        body = {"impression_id": impression_id, "clicks": list(clicks)}
        return str(self._call("POST", ranker, "feedback", body)["status"])

    def click(self, ranker: str, impression_id: str, document_id: str, *, event_id: str | None = None) -> str:
        """Send one click as it happens; its status. Give ``event_id`` if you may send the same click again."""
        return self.event(ranker, impression_id, "click", document_id, event_id=event_id)

    def event(
        self, ranker: str, impression_id: str, kind: str, document_id: str | None = None, *, event_id: str | None = None
    ) -> str:
        """Send a "click", a "purchase" of a document, or a "reformulation" of the query; its status."""
        event = {
            "event_id": event_id or str(uuid.uuid4()),
            "impression_id": impression_id,
            "document_id": document_id,
            "type": kind,
        }
        return str(self._call("POST", ranker, "events", [event])[0]["status"])

    # Administration.

    def create(
        self,
        name: str,
        n_features: int,
        *,
        ranker: str = "pairrank",
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        feature_names: Sequence[str] | None = None,
        start: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Create a ranker, or find the one that is there with the same configuration; its description.

        ``start`` says what is known already: ``{"weights": {"price": -1.0, "rating": 2.0}, "strength": 100}``.
        """
        body = {"n_features": n_features, "ranker": ranker, "seed": seed, "options": dict(options or {})}
        names = None if feature_names is None else list(feature_names)
        more = {"start": None if start is None else dict(start), "feature_names": names}
        return dict(self._call("PUT", name, None, body | _given(more) | dict(limits or {})))

    def ranker(self, name: str) -> dict[str, Any]:
        """A ranker's description: configuration, feedback_count, model_version, state_digest and more."""
        return dict(self._call("GET", name))

    def rankers(self) -> list[dict[str, Any]]:
        """All rankers."""
        return list(self._call("GET", None)["rankers"])

    def delete(self, name: str) -> None:
        """Delete a ranker with its log and models. Deleting twice is not an error."""
        try:
            self._call("DELETE", name)
        except ServiceError as problem:
            if problem.status != 404:
                raise

    def versions(self, name: str) -> list[dict[str, Any]]:
        """The versions that can be pinned or rolled back to, newest first."""
        return list(self._call("GET", name, "versions")["versions"])

    def pin(self, name: str, version: int | None) -> dict[str, Any]:
        """Serve one version (None: the newest) while learning goes on."""
        return dict(self._call("POST", name, "pin", {"version": version}))

    def rollback(self, name: str, version: int) -> dict[str, Any]:
        """Go on learning from a version."""
        return dict(self._call("POST", name, "rollback", {"version": version}))

    def freeze(self, name: str, frozen: bool = True) -> dict[str, Any]:
        """Stop learning, or resume it."""
        return dict(self._call("POST", name, "freeze", {"frozen": frozen}))

    def limit(self, name: str, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Change limits: explore_share, locked, window_seconds, retention_seconds, max_open, keep_candidates."""
        return dict(self._call("POST", name, "limits", dict(limits)))

    # Experiments and launches.

    def experiment(self, name: str, a: str, b: str, **options: Any) -> dict[str, Any]:
        """Start an experiment, or find the one that is there with the same definition; what it has shown so far.

        ``a`` and ``b`` : a ranker, a version of one such as "shop@1200", or "as-sent". Options: kind ("interleave" or
        "split"), share, credit, level, learn, ranker, signals (["purchase", "reformulation"], counted beside clicks).
        """
        return dict(self._call("PUT", name, None, {"a": a, "b": b, **options}, under="experiments"))

    def verdict(self, name: str) -> dict[str, Any]:
        """What an experiment has shown so far: effect, interval, p_value, verdict and more; valid at any time."""
        return dict(self._call("GET", name, under="experiments"))

    def experiments(self) -> list[dict[str, Any]]:
        """The newest experiments and all that run, newest first."""
        return list(self._call("GET", None, under="experiments")["experiments"])

    def stop_experiment(self, name: str) -> dict[str, Any]:
        """Stop an experiment; lists that were served still count when they come back."""
        return dict(self._call("POST", name, "stop", {}, under="experiments"))

    def launch(self, ranker: str, mode: str | None = None, **options: Any) -> dict[str, Any]:
        """How a ranker is launched, and with ``mode`` ("shadow", "guarded", "free") from now on.

        Options: margin, holdout, delta, most_lost, auto.
        """
        if mode is None:
            return dict(self._call("GET", ranker, "launch"))
        return dict(self._call("PUT", ranker, "launch", {"mode": mode, **options}))

    # One request.

    def _call(
        self, method: str, name: str | None, act: str | None = None, body: Any = None, *, under: str = "rankers"
    ) -> Any:
        path = "/".join([f"/v1/{under}", *(quote(str(part), safe="") for part in (name, act) if part is not None)])
        try:
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as problem:
            raise InputError(f"the request holds NaN, infinity or something that JSON cannot: {problem}") from None
        trouble = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**attempt, MAX_PAUSE))
            try:
                status, text = self._once(method, self._prefix + path, data)
            except (OSError, http.client.HTTPException) as problem:
                broken = self._connections.pop(_here(), None)
                if broken is not None:
                    broken.close()
                trouble = f"{str(problem) or type(problem).__name__}; is a service running there?"
                continue
            if status < 300:
                try:
                    return json.loads(text)
                except ValueError:
                    told = f"{self._place} answered something else than JSON; expected a PairRank service there"
                    raise ServiceError(status, "http", told) from None
            refused = _refusal(status, text)
            if status not in (429, 502, 503, 504):  # a proxy says 502 and 504 while the service restarts
                raise refused
            trouble = str(refused)
        raise UnreachableError(f"gave up on {self._place} after {self._retries + 1} attempts: {trouble}")

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        connection = self._connections.get(_here())
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = kind(self._host, self._port, timeout=self._timeout)
            self._connections[_here()] = connection
        connection.request(method, path, body=data, headers=self._headers)
        response = connection.getresponse()
        return response.status, response.read()


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited.

    >>> async def visit():
    ...     async with AsyncClient("http://127.0.0.1:8000") as client:
    ...         await client.create("news", n_features=2)
    ...         shown = await client.rank("news", {"a": [0.1, 0.2], "b": [0.3, 0.4]})
    ...         return await client.feedback("news", shown.impression_id, clicks=["b"])
    >>> asyncio.run(visit())
    'accepted'

    Parameters
    ----------
    url, key, timeout, retries : as `Client` takes them.
    connections : threads, each with a connection of its own; requests beyond that many wait.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", *, connections: int = 8, **options: Any) -> None:
        self._client = Client(url, **options)
        connections = check_whole("connections", connections, 1)
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="pairrank-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for what is under way, then close the connections."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        self._client.close()

    async def rank(self, ranker: str, documents: Mapping[str, Row], **more: Any) -> Ranking:
        """`Client.rank`."""
        shown: Ranking = await self._call("rank", ranker, documents, **more)
        return shown

    async def feedback(self, ranker: str, impression_id: str, clicks: Iterable[str]) -> str:
        """`Client.feedback`."""
        return str(await self._call("feedback", ranker, impression_id, clicks))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Any other method of `Client`."""
        if name.startswith("_") or not hasattr(Client, name):
            raise AttributeError(f"neither AsyncClient nor Client has {name!r}")
        return partial(self._call, name)

    async def _call(self, name: str, *words: Any, **more: Any) -> Any:
        method = partial(getattr(self._client, name), *words, **more)
        return await asyncio.get_running_loop().run_in_executor(self._pool, method)


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _plain(document: str, features: Any) -> Any:
    try:
        # A row of a pandas frame is none, and has names all the same, unless its columns are only numbered.
        if isinstance(features, Mapping) or (hasattr(features, "keys") and str in map(type, features.keys())):
            return {name: _number(value) for name, value in features.items()}
        return [_number(value) for value in features]
    except (TypeError, OverflowError) as problem:
        raise InputError(f"the features of document {document!r} are not numbers: {problem}") from None


def _number(value: float | None) -> float | None:
    """A value as JSON has it: what is missing, also as pandas' NA, is null."""
    return None if value is None or type(value).__name__ == "NAType" or math.isnan(value) else float(value)


def _refusal(status: int, text: bytes) -> ServiceError:
    try:
        body = json.loads(text)
        return ServiceError(status, str(body["error"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        return ServiceError(status, "http", f"the service answered {status}")
