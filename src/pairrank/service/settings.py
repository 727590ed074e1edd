"""What can be set: by flag, by environment (``PAIRRANK_PORT=…``) or in a TOML file, in this order of precedence."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pairrank.errors import OptionError, StorageError
from pairrank.upstream import RerankEndpoint

PREFIX = "PAIRRANK_"
METRICS_FOLDER = "PAIRRANK_METRICS_FOLDER"  # where the supervisor has its workers keep what they count
MIN_SECRET = 16
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")  # as browsers name one
HOST = re.compile(r"\*|[^*/.\s][^*/\s]*")
_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off", ""), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `pairrank serve`.

    store : sqlite:///FILE or postgresql://…
    host, port, workers : where to listen, and how many processes rank.
    max_body_bytes, max_documents, max_features, max_rankers : what a request may ask for.
    max_ranking, max_writing : rank requests, and feedbacks or events, that one worker has in work; the rest is refused.
    key_rate : requests per second that one worker takes from one key; the rest is refused. 0: any number.
    body_seconds : how long a client may take to send a body.
    drain_seconds : how long a stop waits for requests that are under way.
    allowed_hosts : names (comma-separated; * for all) under which clients may call the service, beside addresses,
        localhost and ``host``. With none given, a service that demands keys takes every name.
    allow_origins : web origins (comma-separated; * for all) whose pages may send events.
    public_events : whether events need no key: the impression's id, which only its page knows, is proof enough.
    upstream, upstream_model, upstream_key : address (http://…/v1/rerank), model and key of another re-ranker, whose
        scores become a feature of `POST /v1/rerank`.
    admin_key : a secret of 16 characters or more; the store gets it as the key "environment" with the role admin, for
        containers, where no second command can make the first key.
    access_log : one line for every request, not only for faults and administration.
    log_level : debug, info, warning or error.
    """

    store: str = "sqlite:///pairrank.db"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    max_body_bytes: int = 8 * 2**20
    max_documents: int = 2000
    max_features: int = 10_000
    max_rankers: int = 1000
    max_ranking: int = 128
    max_writing: int = 1024
    key_rate: float = 0.0
    body_seconds: float = 15.0
    drain_seconds: float = 15.0
    allowed_hosts: str = ""
    allow_origins: str = ""
    public_events: bool = False
    upstream: str = ""
    upstream_model: str = ""
    upstream_key: str = ""
    admin_key: str = ""
    access_log: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("port", 0, 65_535),
            ("workers", 1, 256),
            ("max_body_bytes", 1024, 2**31),
            ("max_documents", 1, 1_000_000),
            ("max_features", 1, 100_000),
            ("max_rankers", 1, 1_000_000),
            ("max_ranking", 1, 100_000),
            ("max_writing", 1, 100_000),
            ("key_rate", 0, 1_000_000),
            ("body_seconds", 0.1, 3600),
            ("drain_seconds", 0, 3600),
        ):
            if not low <= getattr(self, name) <= high:
                raise OptionError(f"{name} is {getattr(self, name)}; expected {low} to {high}")
        if 0 < len(self.admin_key) < MIN_SECRET:
            raise OptionError(f"admin_key has {len(self.admin_key)} characters; expected {MIN_SECRET} or more")
        if not (self.admin_key.isascii() and self.admin_key.isprintable()):
            raise OptionError("admin_key holds a line break or another character that no header can carry")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise OptionError(f"log_level is {self.log_level!r}; expected debug, info, warning or error")
        for origin in self.origins:
            if not ORIGIN.fullmatch(origin):
                raise OptionError(f"allow_origins has {origin!r}; expected * or origins such as https://shop.example")
        for name in self.hosts:
            if not HOST.fullmatch(name):
                raise OptionError(f"allowed_hosts has {name!r}; expected * or names such as rank.example")
        _ = self.rerank_endpoint  # an address that is none

    @property
    def rerank_endpoint(self) -> RerankEndpoint | None:
        return RerankEndpoint(self.upstream, self.upstream_model, self.upstream_key or None) if self.upstream else None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(part.strip().lower() for part in self.allow_origins.split(",") if part.strip())

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(part.strip().lower() for part in self.allowed_hosts.split(",") if part.strip())


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: str | None = None
) -> Settings:
    """Settings from flags (None: not given), else the environment, else the file, else the defaults."""
    environment = os.environ if environment is None else environment
    file = file or environment.get(f"{PREFIX}CONFIG")
    known = {f.name: type(f.default) for f in fields(Settings)}
    variables = {name: PREFIX + name.upper() for name in known}
    given = [(name, value, file or "") for name, value in (_read(file) if file else {}).items()]
    given += [(name, environment[word], word) for name, word in variables.items() if word in environment]
    given += [(name, value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None]
    return Settings(**{name: _convert(name, value, known, source) for name, value, source in given})


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise StorageError(f"cannot read {file}: {problem.strerror or problem}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise OptionError(f"{file} is not TOML: {problem}") from None


def _convert(name: str, value: Any, known: Mapping[str, type], source: str) -> Any:
    if name not in known:
        raise OptionError(f"{source} sets {name!r}, which is no setting; there are: {', '.join(known)}")
    wanted = known[name]
    with suppress(ValueError, KeyError):
        if isinstance(value, str):
            value = value.strip()  # secrets come from files that end in a line break
            return _BOOLEANS[value.lower()] if wanted is bool else wanted(value)
        whole = type(value) is int or (type(value) is float and value.is_integer())
        if type(value) is wanted or (whole and wanted is not bool):
            return wanted(value)
    raise OptionError(f"{source}: {name} is {value!r}; expected {wanted.__name__}")
