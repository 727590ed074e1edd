"""The API as a page, from the OpenAPI text itself: nothing from elsewhere, and no script needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairrank.service.pages.layout import HTML, Child, Markup, Nav, filled, join, page, tag
from pairrank.service.pages.live import Address, steps

Node = Mapping[str, Any]
_TITLES = {"ranking": "Rank and learn", "rankers": "Rankers", "experiments": "Experiments", "observation": "Look"}
_INDENT = "  "


def api_page(text: Node, nav: Nav, to: Address) -> Markup:
    """First steps, then every operation of an OpenAPI text: what it takes, what it answers, what it refuses."""
    groups: dict[str, list[Markup]] = {}
    for path, item in text["paths"].items():
        for method, operation in item.items():
            first = (operation.get("tags") or ["more"])[0]
            groups.setdefault(first, []).append(_operation(method.upper(), path, operation, text))
    cards = [
        tag("section", tag("h2", _TITLES.get(name, name.capitalize())), *found, class_="card")
        for name, found in groups.items()
    ]
    return page("API", join(filled(HTML / "api.html"), steps("First steps", to), *cards), nav=nav, current="docs")


def _operation(method: str, path: str, operation: Node, text: Node) -> Markup:
    head = tag("summary", tag("b", method), " ", tag("code", path), tag("span", operation["summary"], class_="muted"))
    parts: list[Child] = [tag("p", operation["description"]) if operation.get("description") else None]
    given = [parameter for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    if given:
        shown = ", ".join(f"{item['name']}: {_shape(item['schema'], text)}" for item in given)
        parts.append(tag("p", "After a question mark: ", tag("code", shown)))
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        schema = body["schema"]
        parts += [tag("h3", f"Send ({kind})"), tag("p", schema["description"]) if "description" in schema else None]
        parts += [tag("pre", _shape(schema, text))] if schema["type"] != "string" else []  # of bytes
    refused, good = [], dict[tuple[str, str], list[str]]()
    for status, answer in sorted(operation["responses"].items()):
        if status >= "400":
            refused.append(tag("li", tag("b", status), " ", answer["description"]))
            continue
        for kind, body in answer.get("content", {}).items():
            good.setdefault((kind, _shape(body["schema"], text)), []).append(status)
    for (kind, shape), statuses in good.items():
        parts += [tag("h3", f"Answer {' or '.join(statuses)} ({kind})"), tag("pre", shape)]
    parts += [tag("h3", "Refused with"), tag("ul", *refused, class_="refused")]
    return tag("details", head, *parts, class_="operation")


def _shape(schema: Node, text: Node, depth: int = 0) -> str:
    """A schema as a person would write the value down; descriptions stand behind the fields."""
    if "$ref" in schema:
        return _shape(text["components"]["schemas"][schema["$ref"].rpartition("/")[2]], text, depth)
    choices: Sequence[Node] = schema.get("anyOf") or schema.get("oneOf") or ()
    if choices:
        return " or ".join(dict.fromkeys(_shape(choice, text, depth) for choice in choices))
    if "properties" in schema:
        inner, needed = _INDENT * (depth + 1), schema.get("required", ())
        lines = [
            f'{inner}"{name}"{"" if name in needed else "?"}: {_shape(field, text, depth + 1)}'
            + (f"   — {field['description']}" if field.get("description") else "")
            for name, field in schema["properties"].items()
        ]
        return "\n".join(["{", *lines, _INDENT * depth + "}"])
    if schema.get("type") == "array":
        return f"[{_shape(schema.get('items', {}), text, depth)}, …]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return f"{{name: {_shape(more, text, depth) if isinstance(more, Mapping) else 'anything'}, …}}"
    kind = schema.get("type", "anything")
    told = kind if isinstance(kind, str) else " or ".join(kind)
    if "enum" in schema or "const" in schema:
        told = " or ".join(f'"{value}"' for value in schema.get("enum", [schema.get("const")]))
    default = schema.get("default")
    return f"{told} = {default}" if default is not None else told
