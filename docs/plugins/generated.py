"""The reference of the HTTP interface, the command line and the rankers, made when the site is built.

The first comes from the service's OpenAPI schema, and its answers from a service that runs here, in this process; the
second from the parser's own help, the third from the registry.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

_HTTP = """\
# HTTP reference

Made from the service's own OpenAPI schema when this site is built; a running service has it at `/openapi.json`. The
answers shown are those of a real service, asked while this page was made.

Bodies are JSON. A refusal is `{"error": "one-word", "message": "one sentence"}` with a status of 4xx or 5xx: 422 for
wrong input, 404 for what is not there, 410 for what has expired, 401 and 403 for keys and origins, 429 and 503 for "try
again". `pairrank.client` retries the last two; all writes may be sent twice. What an impression goes through, and how
keys work, is in [operations](../operations.md).
"""
_CLI = """\
# Command line

The help of every command, as `pairrank COMMAND --help` prints it. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""
_RANKERS = """\
# Rankers

Every registered ranker, with its options; [PairRank](library.md) has a longer entry. `pairrank.rankers.make(name,
n_features=...)` makes one by name.
"""
_TITLES = {
    "ranking": "Rank and learn",
    "rankers": "Administration",
    "experiments": "Experiments and launches",
    "observation": "Watch",
}


def rankers_page() -> str:
    """The page on rankers: one entry per class of the registry."""
    from pairrank import rankers

    entries = [path for path in rankers.paths() if not path.endswith(".PairRank")]
    return "\n".join(
        [_RANKERS, *(f"::: {path}\n    options: {{heading_level: 2, members: false}}\n" for path in entries)]
    )


def http_page() -> str:
    """The page on HTTP."""
    schema, answers = _ask()
    parts = [_HTTP]
    for tag, title in _TITLES.items():
        parts.append(f"\n## {title}\n")
        for path, methods in schema["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag]:
                    parts.append(_operation(method.upper(), path, operation, answers.get((method, path))))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], answer: Any) -> str:
    lines = [f"### {method} {path}\n", f"{operation['summary']}.\n"]
    asked = [p for p in operation.get("parameters", []) if p["in"] == "query"]
    if asked:
        lines += ["| query parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
        for p in asked:
            default, told = p["schema"].get("default", ""), p.get("description", "")
            lines.append(f"| `{p['name']}` | {_type(p['schema'])} | {default} | {told} |")
        lines.append("")
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        told = body["schema"].get("items", body["schema"])["description"]
        lines += [f"Body, `{kind}`: {_type(body['schema'])}. {told}\n", *_fields(body["schema"])]
    if answer is not None:
        lines += ["Answer:\n", "```json", json.dumps(answer, indent=1, ensure_ascii=False), "```\n"]
    return "\n".join(lines)


def _fields(schema: dict[str, Any]) -> list[str]:
    """A table of a body's fields, those of objects within it after them."""
    rows = _rows(schema, "")
    return ["| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""] if rows else []


def _rows(schema: dict[str, Any], prefix: str) -> list[str]:
    if schema.get("type") == "array":
        return _rows(schema["items"], f"{prefix}[]." if not prefix else f"{prefix[:-1]}[].")
    rows = [row for variant in schema.get("anyOf", ()) for row in _rows(variant, prefix)]
    for name, field in schema.get("properties", {}).items():
        default = f"`{json.dumps(field['default'])}`" if field.get("default") is not None else ""
        default = "required" if name in schema.get("required", ()) else default
        rows.append(f"| `{prefix}{name}` | {_type(field)} | {default} | {field.get('description', '')} |")
        rows += _rows(field, f"{prefix}{name}.")
    return rows


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return " or ".join(_type(variant) for variant in variants)
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"]) + _bounds(schema)
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "anything")) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[name]:,}" for name, sign in signs.items() if abs(schema.get(name, 2**62)) < 2**62]
    bounds += [f"up to {schema['maxLength']} characters"] if "maxLength" in schema else []
    return f" ({', '.join(bounds)})" if bounds else ""


def _ask() -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """The schema of a service, and its answers to one request of each kind."""
    from pairrank.service.app import make_app

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # which client the test client prefers is no concern of this page
        from starlette.testclient import TestClient

        app = make_app(f"sqlite:///{Path(folder) / 'store.db'}", learner=True)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            return app.openapi(), _session(client)


def _session(client: Any) -> dict[tuple[str, str], Any]:
    one = "/v1/rankers/{name}"
    documents = [{"id": "boots", "features": [0.1, 0.9]}, {"id": "sandals", "features": [0.9, 0.1]}]
    found: dict[tuple[str, str], Any] = {}

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = client.request(method, path.replace("{name}", "shop"), json=body)
        answer.raise_for_status()
        found[method, path] = answer.json()
        return found[method, path]

    ask("put", one, {"n_features": 2, "feature_names": ["summer", "winter"]})
    shown = ask("post", f"{one}/rank", {"query_id": "shoes", "documents": documents, "k": 2})["impression_id"]
    click = {"event_id": "e1", "impression_id": shown, "document_id": "boots"}
    ask("post", f"{one}/events", [click])
    ask("post", f"{one}/feedback", {"impression_id": shown, "clicks": ["boots"]})
    ask("post", f"{one}/limits", {"explore_share": 0.5})
    ask("post", f"{one}/freeze", {"frozen": False})
    for path in ("/v1/rankers", one, f"{one}/versions", "/v1/audit", "/healthz", "/readyz"):
        ask("get", path)
    for repeated in (("post", f"{one}/limits"), ("post", f"{one}/freeze"), ("put", one), ("get", "/v1/rankers")):
        del found[repeated]  # the description of the ranker again, as for GET
    return found


def cli_page() -> str:
    """The page on the command line."""
    from pairrank import cli

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "110"  # the parser wraps to the terminal's width
    try:
        parts = [_CLI]
        for face, commands in cli.FACES.items():
            parts.append(f"## {face[0].upper()}{face[1:]}\n")
            for name in commands:
                parser = cli.parser(name)
                parts += [_help(parser, 3), *_commands(parser, 4)]
        return "\n".join(parts)
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def _commands(parser: argparse.ArgumentParser, level: int) -> list[str]:
    parts = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                parts += [_help(inner, level), *_commands(inner, level + 1)]
    return parts


def _help(parser: argparse.ArgumentParser, level: int) -> str:
    return f"{'#' * level} {parser.prog}\n\n```text\n{parser.format_help()}```\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "http.md").write_text(http_page(), encoding="utf-8")
    (folder / "cli.md").write_text(cli_page(), encoding="utf-8")
    (folder / "rankers.md").write_text(rankers_page(), encoding="utf-8")
