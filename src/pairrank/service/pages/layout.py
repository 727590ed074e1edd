"""What all pages share: the head, the bar at the top, the policy that they are served under."""

from __future__ import annotations

from collections.abc import Sequence

from pairrank.service.pages.markup import Markup, join, tag, trusted

# No inline script or style, nothing from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
Nav = Sequence[tuple[str, str]]  # address and name of each page that there is

# Two documents in kept order above an open pair: the idea of the product in eighteen pixels.
_MARK = (
    '<svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" class="pr-drawing">'
    '<rect class="pr-band" x="1" y="1.5" width="18" height="5" rx="2.5"/>'
    '<rect class="pr-band-open" x="1" y="8.5" width="18" height="10" rx="3"/>'
    '<circle class="pr-node" cx="5" cy="4" r="2"/><circle class="pr-node-open" cx="5" cy="11.5" r="2"/>'
    '<circle class="pr-node-open" cx="5" cy="15.5" r="2"/></svg>'
)


def page(title: str, body: Markup, *, nav: Nav, current: str, script: str | None = None, **data: str) -> Markup:
    """A whole document around ``body``; ``data`` is what the script finds on the main element."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · PairRank"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/pairrank.css"),
        tag("link", rel="stylesheet", href="/static/drawing.css"),
        tag("script", type="module", src=script) if script else None,
    )
    links = [tag("a", name, href=href, aria_current="page" if href == current else None) for href, name in nav]
    bar = tag(
        "div",
        tag("a", trusted(_MARK), "PairRank", href="/", class_="brand"),
        tag("nav", *links, class_="nav", aria_label="Pages"),
        tag("div", tag("span", "not live"), class_="pulse", id="pulse", role="status") if script else None,
        class_="top-in",
    )
    skip = tag("a", "Skip to content", href="#main", class_="skip")
    main = tag("main", body, id="main", tabindex=-1, **data)
    document = tag("html", head, tag("body", skip, tag("header", bar, class_="top"), main), lang="en")
    return join(trusted("<!doctype html>\n"), document)
