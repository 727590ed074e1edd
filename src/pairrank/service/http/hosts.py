"""Which names this service answers to, and which web pages may write to it.

A page whose own host name is made to resolve to 127.0.0.1 (DNS rebinding) is, for a browser, of one origin with this
service: nothing but the ``Host`` that it sends tells it apart. An address instead of a name cannot be rebound.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from pairrank.service.settings import Settings

_SAFE = ("GET", "HEAD", "OPTIONS")


def host_name(header: str) -> str:
    """The name in a ``Host`` header, without its port, in lower case."""
    name, colon, port = header.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.startswith("[")):
        name = header
    return name.strip("[]").rstrip(".").lower()


def is_own(headers: Mapping[bytes, bytes], settings: Settings, keyed: bool) -> bool:
    """Whether a request calls this service by a name of its own. Keys protect as well; then any name will do."""
    if keyed and not settings.loopback and not settings.hosts:
        return True
    host = headers.get(b"host")
    return host is None or is_own_host(host.decode("latin-1"), settings)


@lru_cache(maxsize=64)
def is_own_host(header: str, settings: Settings) -> bool:
    """Whether a ``Host`` header names this service: an address, localhost, where it listens, or an allowed name."""
    name = host_name(header)
    own = ("localhost", settings.host.lower(), *map(host_name, settings.hosts))
    if name in own or name.endswith(".localhost") or "*" in settings.hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def may_write(method: str, scheme: str, headers: Mapping[bytes, bytes], settings: Settings) -> bool:
    """Whether a request only reads, comes from no web page, or from a page of this service or of an allowed origin."""
    origin = headers.get(b"origin")
    if origin is None or method in _SAFE:
        return True
    text, own = origin.decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    return text.lower() == f"{scheme}://{own}".lower() or text in settings.origins or "*" in settings.origins
