"""How endpoints are declared: what they refuse, who may read, bodies as models, and their text in OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError

from pairrank.errors import InputError
from pairrank.service.http.rank_request import parse_json
from pairrank.service.http.schemas import Body, Problem

# One sentence for each status that is refused with; the body is always a `Problem`.
_REFUSED = {
    400: "the body is not what its content type says",
    401: "a key is needed, or this one is not known",
    403: "the key lacks the role, or the page's origin may not write",
    404: "there is nothing of this name, version or id",
    408: "the body took too long to arrive",
    409: "something else has this name, or something that runs needs what should go",
    410: "the impression has expired, or is from before a restore",
    413: "the body is too large",
    415: "the content type is not known, or the body is encoded",
    421: "the Host header names another service",
    422: "the values are not valid",
    429: "a limit is reached; try again later",
    431: "the headers are too large",
    500: "a fault in the program; the log tells more",
    503: "the store does not answer, or the service is not ready",
}
# For the OpenAPI text alone: the worker itself looks at the header, since it may have no keys.
KEY = Security(
    HTTPBearer(auto_error=False, scheme_name="key", description="from `pairrank store keys STORE --add NAME`")
)
_ALWAYS = (421, 431, 500)
_KEYED = (401, 403, 429, 503)
_BODY = (400, 408, 413, 415, 422)
_PROBLEM = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def answers(
    model: Any, *refused: int, good: tuple[int, ...] = (200,), body: bool = False, key: bool = True
) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route: its answer (None: the response class tells it) and the refusals it can give."""
    told = {} if model is None else {number: {"model": model} for number in good}
    own = {*refused, *_ALWAYS, *(_BODY if body else ()), *(_KEYED if key else ())}
    # A route that does not answer JSON still refuses in JSON.
    how: dict[str, Any] = {"model": Problem} if model is not None else _PROBLEM
    return {**told, **{number: {**how, "description": _REFUSED[number]} for number in sorted(own)}}


Endpoint = Callable[..., Awaitable[Response]]


def reading(
    router: APIRouter, allow: Callable[[Request, str | None], object]
) -> Callable[..., Callable[[Endpoint], Endpoint]]:
    """A decorator of endpoints that only read, as ``router.get``, for who ``allow`` lets in with a ``role``."""

    def get(
        path: str, summary: str, model: Any, *refused: int, role: str | None = None, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        async def allowed(request: Request) -> None:
            allow(request, role)

        named = (404, 422) if "{name}" in router.prefix + path else ()
        responses = answers(model, *named, *refused)
        return router.get(path, summary=summary, responses=responses, dependencies=[Depends(allowed)], **more)

    return get


def creating(
    router: APIRouter, summary: str, body: type[Body], model: Any, what: str
) -> Callable[[Endpoint], Endpoint]:
    """A decorator of the endpoint that makes something under a name, or finds it with the same ``what``."""
    return router.put(
        "/{name}",
        openapi_extra=body_of(body),
        summary=summary,
        description=f"201 when it is new, 200 when it was there with the same {what}.",
        status_code=201,
        responses=answers(model, 409, good=(201, 200), body=True),
    )


B = TypeVar("B", bound=Body)


def parse(model: type[B], body: bytes) -> B:
    """A body as a model; what is wrong with it, in one sentence."""
    return check(model, parse_json(body or b"{}"))


def check(model: type[B], value: Any, what: str = "the body") -> B:
    """A value that JSON gave, as a model; refusals call it ``what``."""
    known = ", ".join(model.model_fields)
    for name in value if isinstance(value, dict) else ():
        if name not in model.model_fields:  # by hand: pydantic would go on to the last of a million
            wrong = {"type": "extra_forbidden", "loc": (name,), "msg": "", "input": None}
            raise InputError(sentence(wrong, known, what))
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        found = problem.errors(include_url=False, include_context=False)
        first = min(found, key=lambda error: error["type"] != "extra_forbidden")  # a misspelt field is missing, too
        raise InputError(sentence(first, known, what)) from None


def sentence(problem: Mapping[str, Any], known: str = "", what: str = "the body") -> str:
    """What pydantic found, in one line whatever is in it: a name that the client made up may be part of it."""
    kind, message, given = problem["type"], problem["msg"], problem["input"]
    if kind == "model_type" and not problem["loc"]:
        return f"{what} is no JSON object; expected one with {known}"
    if kind == "model_type":
        message = "input should be a JSON object"
    elif kind == "extra_forbidden" and not message:
        message = f"there is no such field; expected {known}"
    elif kind != "missing" and not isinstance(given, (dict, list)):
        message = f"{message}; got {str(orjson.dumps(given), 'utf-8')[:40]}"
    # Of several kinds that a value may have, pydantic names the one that it tried last.
    place = ".".join(str(part) for part in problem["loc"] if kind == "extra_forbidden" or "[" not in str(part))
    place = place if what == "the body" else f"{what}, {place}"
    return " ".join(f"{place}: {message[:1].lower()}{message[1:]}".split())[:300]


def body_of(
    model: type[BaseModel], *, most: int = 0, required: bool = True, other: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The OpenAPI text of a JSON body, and of the ``other`` content types that may take its place.

    With ``most`` it is a list of at most so many.
    """
    schema = model.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    if most:
        schema = {"type": "array", "items": schema, "maxItems": most}
    content = {"application/json": {"schema": schema}, **other}
    return {"requestBody": {"required": required, "content": content}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """``schema`` without references into itself, which would point nowhere inside the whole text."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    return [_inlined(value, definitions) for value in schema] if isinstance(schema, list) else schema
