"""Bodies of the administrative requests, checked by pydantic, and the OpenAPI text of those checked by hand."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairrank.errors import InputError
from pairrank.service.documents import ARROW_TYPES, MAX_ID, parse_json

Text = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class Body(BaseModel):
    """Strict: no conversion, no unknown names, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class LimitsBody(Body):
    """Limits to change; those left out stay."""

    explore_share: Annotated[float, Field(ge=0, le=1)] | None = None
    locked: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    window_seconds: Annotated[float, Field(gt=0, le=3650 * 86_400)] | None = None
    retention_seconds: Annotated[float, Field(gt=0, le=3650 * 86_400)] | None = None
    max_open: Annotated[int, Field(ge=1, le=2**62)] | None = None


class CreateBody(LimitsBody):
    """A new ranker: n_features is all that it needs."""

    n_features: Annotated[int, Field(ge=1, le=100_000)]
    ranker: Annotated[str, Field(min_length=1, max_length=1000)] = "pairrank"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    options: dict[Annotated[str, Field(max_length=64)], bool | int | float | str | None] = Field(default_factory=dict)
    feature_names: list[Text] | None = None


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
    clicks: list[Annotated[str, Field(max_length=MAX_ID)]]


class EventBody(Body):
    """One click."""

    event_id: Text
    impression_id: Text
    document_id: Text
    type: str = "click"


B = TypeVar("B", bound=Body)


def parse(model: type[B], body: bytes) -> B:
    """A body as a model; what is wrong with it, in one sentence."""
    return check(model, parse_json(body or b"{}"))


def check(model: type[B], value: Any) -> B:
    """A value that JSON gave, as a model."""
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False)[0]
        # A name that the client made up is part of it: one line, whatever is in it.
        place = " ".join(".".join(str(part) for part in first["loc"]).split()) or "the body"
        raise InputError(f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"[:300]) from None


def body_of(model: type[Body], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """The OpenAPI text of a JSON body."""
    schema = model.model_json_schema()
    if many:
        schema = {"type": "array", "items": schema, "maxItems": MAX_EVENTS}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


MAX_EVENTS = 1000

_DOCUMENT = {
    "type": "object",
    "required": ["id", "features"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "features": {
            "oneOf": [
                {"type": "array", "items": {"type": "number"}},
                {"type": "object", "additionalProperties": {"type": "number"}},
            ],
            "description": "numbers in order, or by name where the ranker has feature names",
        },
    },
}
RANK_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["documents"],
                    "additionalProperties": False,
                    "properties": {
                        "query_id": {"type": ["string", "null"], "maxLength": MAX_ID},
                        "documents": {"type": "array", "minItems": 1, "items": _DOCUMENT},
                        "k": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**63 - 1},
                    },
                }
            },
            ARROW_TYPES[0]: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "Arrow IPC: columns id (string) and features (list of float32 or float64); "
                    "k and query_id as query parameters",
                }
            },
        },
    }
}
