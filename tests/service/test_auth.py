"""Keys: what they look like, who may do what."""

from __future__ import annotations

import pytest

from pairrank.errors import OptionError
from pairrank.service.auth import NoKeyError, RoleError, authorise, new_key


def test_a_key_opens_its_roles_and_no_other() -> None:
    key, secret = new_key("shop", ["rank"], 0.0)
    admin, master = new_key("boss", ["admin"], 0.0)
    keys = [key, admin]
    assert authorise(keys, f"Bearer {secret}", "rank") == "shop"
    assert authorise(keys, f"bearer  {secret} ", None) == "shop"
    assert authorise(keys, f"Bearer {master}", "feedback") == "boss"
    with pytest.raises(RoleError, match="'shop' does not have the role 'admin'"):
        authorise(keys, f"Bearer {secret}", "admin")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic x", "Bearer prk_wrong", "Bearer ä"])
def test_anything_else_opens_nothing(header: str | None) -> None:
    with pytest.raises(NoKeyError):
        authorise([new_key("shop", ["rank"], 0.0)[0]], header, "rank")


def test_secrets_are_long_random_and_not_kept() -> None:
    pairs = [new_key("k", ["rank"], 0.0) for _ in range(20)]
    assert len({secret for _, secret in pairs}) == 20
    assert all(len(secret) > 40 and secret not in repr(key) for key, secret in pairs)


def test_wrong_names_and_roles_are_refused() -> None:
    for name in ("", "a b", "-x", "x" * 65):
        with pytest.raises(OptionError, match="cannot name the key"):
            new_key(name, ["rank"], 0.0)
    for roles in ([], ["king"], ["rank", "king"]):
        with pytest.raises(OptionError, match="expected one or more"):
            new_key("k", roles, 0.0)
