"""What comes in and what goes out, for the OpenAPI text: bodies that pydantic checks, answers that tests hold it to.

Answers are declared, not checked while serving: `tests/service/test_openapi.py` walks the real ones.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from pairrank.service.http.rank_request import MAX_ID
from pairrank.service.store.values import Aside, Limits, Prior

T = TypeVar("T")
Text = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Many = Annotated[list[T], Field(fail_fast=True)]  # one fault is told: to find a million takes many seconds


class Body(BaseModel):
    """Strict: no conversion, no unknown names, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class LimitsBody(Body):
    """Limits to change; those left out stay."""

    explore_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="share of the lists that may explore (a new ranker: 1); the rest is by score and teaches nothing",
    )
    locked: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="positions at the top that are always by score (0)"
    )
    window_seconds: Annotated[float, Field(gt=0, le=3650 * 86_400)] | None = Field(
        default=None, description="how long single events are collected before a list is learned (600)"
    )
    retention_seconds: Annotated[float, Field(gt=0, le=3650 * 86_400)] | None = Field(
        default=None, description="how long a list waits for feedback before it expires (86,400)"
    )
    max_open: Annotated[int, Field(ge=1, le=2**62)] | None = Field(
        default=None, description="lists that may wait for feedback at once (1,000,000)"
    )
    keep_candidates: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        default=None, description="lists of up to so many documents are logged whole, for pairrank evaluate (0)"
    )


Positive = Annotated[float, Field(gt=0, le=1e12)]


class StartBody(Body):
    """Where a ranker starts: with weights, as if it had learned them from some pairs of clicks."""

    weights: Many[float | None] | dict[Text, float | None] = Field(
        description="one per feature, or by feature name; null, or left out by name, where one is not known"
    )
    strength: Positive = Field(100.0, description="how many pairs of clicks they are worth")
    variance: Positive | Many[Positive] | None = Field(
        default=None,
        description="of the difference of two documents of one list, for all features or one each, since weights do "
        "not tell in which units features are; null is 1/6, that of features spread evenly over [0, 1]",
    )


class CreateBody(LimitsBody):
    """A new ranker: n_features is all that it needs."""

    n_features: Annotated[int, Field(ge=1, le=100_000)]
    ranker: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        default="pairrank", description="see pairrank rankers"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    options: dict[Annotated[str, Field(max_length=64)], Any] = Field(
        default_factory=dict, description="of the ranker, by name: pairrank rankers NAME lists them"
    )
    feature_names: Many[Text] | None = Field(default=None, description="so that features can be sent by name")
    start: StartBody | None = Field(
        default=None, description="what is known before the first click: the present ranking, say"
    )


class FreezeBody(Body):
    """Whether the ranker shall stop learning."""

    frozen: bool = True


class PinBody(Body):
    """The version to serve; null for the newest."""

    version: Annotated[int, Field(ge=0, lt=2**63)] | None


class RollbackBody(Body):
    """The version to go on learning from."""

    version: Annotated[int, Field(ge=0, lt=2**63)]


class FeedbackBody(Body):
    """The clicks on one impression, whole and final."""

    impression_id: Text
    clicks: Many[Annotated[str, Field(max_length=MAX_ID)]] = Field(description="ids of clicked documents; may be empty")


class EventBody(Body):
    """One click, or what experiments count beside clicks; a reformulation of the query needs no document."""

    event_id: Text
    impression_id: Text
    document_id: Text | None = None
    type: Literal["click", "purchase", "reformulation"] = "click"


class DocumentBody(Body):
    """One candidate."""

    id: Text
    features: list[float | None] | dict[str, float | None] = Field(
        description="numbers in order, or by name where the ranker has feature names; null where one is missing and "
        "the ranker knows what that means"
    )


class RankBody(Body):
    """Documents to order."""  # `rank_request` reads it by hand

    query_id: str | None = Field(
        default=None, max_length=MAX_ID, description="for the log; a guarded launch proves a gain sooner with it"
    )
    documents: list[DocumentBody] = Field(
        min_length=1, description="in the order of the present system, which experiments call as-sent"
    )
    k: Annotated[int, Field(ge=1, lt=2**63)] | None = Field(
        default=None, description="positions to show; all, if left out"
    )
    client_id: str | None = Field(
        default=None, max_length=MAX_ID, description="who asks, so that experiments treat them alike each time"
    )
    page_of: str | None = Field(
        default=None, max_length=MAX_ID, description="an impression_id, to go on where that list ended"
    )
    explain: bool | None = Field(default=None, description="whether the answer shall have an explanation")


class TextDocument(BaseModel):
    """A document with its text; what else it holds comes back with it."""

    text: str


class RerankBody(BaseModel):
    """Texts to order; fields that are not listed here are passed over."""  # `rerank_request` reads it by hand

    model: str | None = Field(default=None, description="the ranker's name")
    query: str = Field(min_length=1)
    documents: list[str | TextDocument] = Field(min_length=1)
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None


class Answer(BaseModel):
    """The base of all answers. More fields may come in later versions; those that are here stay."""


class Problem(Answer):
    """Whatever is refused: a short code for programs, one sentence for people."""

    error: str
    message: str
    detail: str | None = None  # the message again, where clients of the rerank family look for it


class StatusAnswer(Answer):
    """That it is done, or that all is well."""

    status: Literal["ok", "deleted"]


class ReadyAnswer(Answer):
    """That rank and feedback will be answered, and by which database."""

    status: Literal["ready"]
    store: str


class RankedAnswer(Answer):
    """One shown document."""

    id: str
    position: Annotated[int, Field(ge=1)]
    score: float
    block: Annotated[int, Field(ge=0)]


class NeighboursAnswer(Answer):
    """Two shown documents, one after the other by score."""

    above: str
    below: str
    gap: float = Field(description="by how much the score of the first is above that of the second")
    width: float | None = Field(
        default=None, description="half the confidence interval of that; null where the algorithm has none"
    )
    certain: bool = Field(description="whether this order is kept; what is not may be shown either way")


class ExplanationAnswer(Answer):
    """Why the shown documents score as they do. The list may stand otherwise: by exploration, rules or experiments."""

    contributions: dict[str, dict[str, float]] = Field(
        description="by document and feature (its name, or its number from 0): what it adds to the score, above the "
        "mean of the shown documents"
    )
    neighbours: list[NeighboursAnswer] = Field(description="by falling score")


class RankAnswer(Answer):
    """The list to show, best first, and the id that its feedback must name."""

    impression_id: str
    model_version: int
    explored: bool
    ranking: list[RankedAnswer]
    explanation: ExplanationAnswer | None = Field(default=None, description="there where the request asks for it")


class RerankResult(Answer):
    """One document of a re-ranked list; ``document`` where the request asks for documents."""

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None


class RerankAnswer(Answer):
    """Documents by their index in the request, best first; ``id`` is the impression's, for feedback."""

    id: str
    object: Literal["list"]
    model: str
    results: list[RerankResult]
    meta: dict[str, Any]
    usage: dict[str, Any]


class FeedbackAnswer(Answer):
    """What became of the feedback; ``late`` when it came after the window of single events."""

    status: Literal["accepted", "duplicate"]
    late: bool = False


class EventAnswer(Answer):
    """What became of one event."""

    event_id: str
    status: Literal["accepted", "duplicate", "late", "expired", "unknown", "foreign"]


class RankerAnswer(Answer):
    """A ranker: its configuration, the head of its log and of its model."""

    name: str
    n_features: int
    ranker: str
    seed: int
    options: dict[str, Any]
    feature_names: list[str] | None
    start: Prior | None
    limits: Limits
    frozen: bool
    pinned: int | None
    launch: Literal["shadow", "guarded", "free", "frozen"] | None = Field(description="null: never launched; ours")
    created: float
    model_version: int
    served_version: int
    state_digest: str
    feedback_count: int
    learned_count: int
    skipped_count: int
    set_aside: int
    last_set_aside: Aside | None
    stopped: str | None
    log_length: int
    log_applied: int
    lag: int
    open_impressions: int
    updated: float


class VersionAnswer(Answer):
    """One published model."""

    version: int
    created: float
    state_digest: str
    learned_count: int
    kept: bool
    current: bool
    pinned: bool


class ImpressionAnswer(Answer):
    """One list that was shown. ``clicks`` has one value per shown position, and is null while nothing has come."""

    impression_id: str
    number: int
    state: Literal["open", "collecting", "logged", "learned"]
    time: float
    closes: float | None = Field(description="when the window of single events closes; null once it is logged")
    model_version: int
    query_id: str | None
    ids: list[str]
    clicks: list[bool] | None
    log_entry: int | None


class PointAnswer(Answer):
    """Means over neighbouring lists with feedback; null where there is nothing to take a mean of."""

    time: float = Field(description="of the last list")
    log_entry: int
    lists: int
    ctr: float | None = Field(description="share of lists with a click")
    ndcg: float | None = Field(description="gain of the clicks over that of as many clicks at the top")
    explored: float | None = Field(description="share of shown positions whose order was drawn")
    blocks: float | None = Field(description="blocks in a shown list")
    size_1: float | None = Field(description="size of the block at rank 1")
    size_5: float | None
    size_10: float | None


class KeptAnswer(Answer):
    """Orders of shown pairs that the newest model keeps, and the share of them that it expects to be wrong itself."""

    lists: int
    share: float
    wrong: float | None


class StatisticsAnswer(Answer):
    """How a ranker has been doing, by the newest lists of its log; ``oldest`` and ``newest`` are tenths of them."""

    name: str
    model_version: int
    lag: int
    lag_seconds: float
    points: list[PointAnswer]
    oldest: PointAnswer
    newest: PointAnswer
    kept: KeptAnswer | None
    behind: bool = Field(description="the log is still being read: ask again")


class WeightAnswer(Answer):
    """One weight with its standard deviation, where the model knows it."""

    name: str
    weight: float
    deviation: float | None


class MissingAnswer(Answer):
    """What a missing value adds to the score, with its standard deviation."""

    value: float
    deviation: float | None


class FunctionAnswer(Answer):
    """What a feature adds to the score: straight lines between the points of ``x``."""

    name: str
    x: list[float]
    value: list[float] = Field(description="at each x, above that at reference")
    deviation: list[float] | None = Field(description="the standard deviation of each, where the model knows it")
    reference: float = Field(description="the value that adds nothing")
    missing: MissingAnswer | None = Field(description="null where the model has no weight for a missing value")
    documents: list[float] = Field(description="values that documents of the newest lists had, rising; some of them")


class WeightsAnswer(Answer):
    """Weights, heaviest first; null where the model is not linear. Functions, strongest first, where it is additive."""

    model_version: int
    total: int
    features: list[WeightAnswer] | None
    functions: list[FunctionAnswer] | None


class ActAnswer(Answer):
    """One administrative act."""

    time: float
    actor: str
    act: str
    subject: str
    detail: Any


def shown(model: type[Answer], row: object, **more: Any) -> dict[str, Any]:
    """A row of the store as ``model`` has it, in its order; ``more`` is what the row has not, or by another name."""
    return {name: more[name] if name in more else getattr(row, name) for name in model.model_fields}


def listed(name: str, model: type[Answer]) -> type[Answer]:
    """The answer that has a list of ``model`` under ``name``, newest first where that has a meaning."""
    fields: dict[str, Any] = {name: (list[model], ...)}  # type: ignore[valid-type]
    return create_model(f"{name.capitalize()}Answer", __base__=Answer, **fields)
