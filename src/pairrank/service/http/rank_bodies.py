"""The OpenAPI text of the bodies that no model of pydantic checks: those of rank and rerank, which are read by hand."""

from __future__ import annotations

from pairrank.service.http.rank_request import ARROW_TYPES, MAX_ID
from pairrank.service.http.schemas import json_body

_DOCUMENT = {
    "type": "object",
    "required": ["id", "features"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "features": {
            "oneOf": [
                {"type": "array", "items": {"type": ["number", "null"]}},
                {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
            ],
            "description": "numbers in order, or by name where the ranker has feature names; null where one is "
            "missing and the ranker knows what that means",
        },
    },
}
_TEXT = {
    "oneOf": [{"type": "string"}, {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]
}
RERANK_BODY = json_body(
    {
        "type": "object",
        "required": ["query", "documents"],
        "properties": {
            "model": {"type": ["string", "null"], "description": "the ranker's name"},
            "query": {"type": "string", "minLength": 1},
            "documents": {"type": "array", "minItems": 1, "items": _TEXT},
            "top_n": {"type": ["integer", "null"], "minimum": 1},
            "return_documents": {"type": ["boolean", "null"]},
            "rank_fields": {"type": ["array", "null"], "items": {"type": "string"}},
        },
    }
)
RANK_BODY = json_body(
    {
        "type": "object",
        "required": ["documents"],
        "additionalProperties": False,
        "properties": {
            "query_id": {"type": ["string", "null"], "maxLength": MAX_ID},
            "documents": {
                "type": "array",
                "minItems": 1,
                "items": _DOCUMENT,
                "description": "in the order of the present system, which experiments call as-sent",
            },
            "k": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**63 - 1},
            "client_id": {
                "type": ["string", "null"],
                "maxLength": MAX_ID,
                "description": "who asks, so that experiments treat them alike each time",
            },
            "page_of": {
                "type": ["string", "null"],
                "maxLength": MAX_ID,
                "description": "an impression_id, to go on where that list ended",
            },
            "explain": {"type": ["boolean", "null"], "description": "whether the answer shall have an explanation"},
        },
    }
)
RANK_BODY["requestBody"]["content"][ARROW_TYPES[0]] = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "Arrow IPC: columns id (string) and features (list of float32 or float64); "
        "k, query_id, client_id, page_of and explain as query parameters",
    }
}
