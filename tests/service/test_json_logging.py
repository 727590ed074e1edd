"""Log lines are JSON, with the request's id."""

from __future__ import annotations

import json
import logging

from pairrank.service.json_logging import JsonLines, request_id


def line(**extra: object) -> dict[str, object]:
    record = logging.LogRecord("pairrank.x", logging.WARNING, "", 0, "%d of %d", (1, 2), None)
    vars(record).update(extra)
    return dict(json.loads(JsonLines().format(record)))


def test_a_line_is_one_json_object() -> None:
    found = line(fields={"status": 200})
    assert (found["level"], found["logger"], found["message"], found["status"]) == (
        "warning",
        "pairrank.x",
        "1 of 2",
        200,
    )
    assert "request_id" not in found


def test_inside_a_request_the_line_has_its_id() -> None:
    token = request_id.set("abc")
    try:
        assert line()["request_id"] == "abc"
    finally:
        request_id.reset(token)
