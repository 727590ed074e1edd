"""Access keys: roles, made from random bytes, kept as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from pairrank.errors import OptionError, PairRankError
from pairrank.service.store.values import Key

ROLES = ("rank", "feedback", "admin")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NoKeyError(PairRankError):
    """No key came with the request, or one that is not known."""


class RoleError(PairRankError):
    """The key is known, but not for this."""


def check_name(name: str, what: str) -> str:
    """``name``, if it is 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name[:70]!r} cannot name the {what}; expected 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return name


def new_key(name: str, roles: Iterable[str], now: float, secret: str | None = None) -> tuple[Key, str]:
    """A key to keep, and the secret to hand out, a new one unless given: it cannot be found again."""
    chosen = frozenset(roles)
    if not chosen or not chosen <= set(ROLES):
        raise OptionError(f"roles are {sorted(chosen)}; expected one or more of {', '.join(ROLES)}")
    secret = secret or f"prk_{secrets.token_urlsafe(32)}"
    return Key(check_name(name, "key"), chosen, _digest(secret), now), secret


def authorise(keys: Iterable[Key], header: str | None, role: str | None) -> str:
    """The name of the key in an ``Authorization`` header, which must have ``role`` (None: any; admin has all).

    The secrets are random and long, so a plain digest cannot be turned back; every key is compared, each in constant
    time.
    """
    scheme, _, secret = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise NoKeyError("this needs a key: send it as 'Authorization: Bearer KEY'")
    digest = _digest(secret.strip())
    found = [key for key in keys if hmac.compare_digest(key.digest, digest)]
    if not found:
        raise NoKeyError("the key is not known")
    if role is not None and not found[0].roles & {role, "admin"}:
        raise RoleError(f"the key {found[0].name!r} does not have the role {role!r}")
    return found[0].name


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
