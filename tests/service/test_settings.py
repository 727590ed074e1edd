"""Settings by flag, environment and file, in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairrank.errors import OptionError, StorageError
from pairrank.service.settings import Settings, load_settings


def test_the_order_of_precedence(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\nworkers = 2\nhost = "::1"\npublic_events = true\n')
    environment = {"PAIRRANK_PORT": "3", "PAIRRANK_WORKERS": "4", "PAIRRANK_CONFIG": str(file)}
    settings = load_settings({"port": 5, "host": None}, environment)
    assert (settings.port, settings.workers, settings.host, settings.public_events) == (5, 4, "::1", True)
    assert load_settings({}, {}) == Settings()
    assert load_settings({"key_rate": 3}, {"PAIRRANK_BODY_SECONDS": "2"}) == Settings(key_rate=3.0, body_seconds=2.0)
    file.write_bytes(b"\xef\xbb\xbfport = 7\r\n")  # as some editors on Windows write it
    assert load_settings({}, {}, str(file)).port == 7
    file.write_text("port = 8000.0\n")
    assert load_settings({}, {}, str(file)).port == 8000


@pytest.mark.parametrize(
    ("environment", "match"),
    [
        ({"PAIRRANK_PORT": "many"}, "PAIRRANK_PORT"),
        ({"PAIRRANK_PORT": "70000"}, "0 to 65535"),
        ({"PAIRRANK_PUBLIC_EVENTS": "perhaps"}, "expected bool"),
        ({"PAIRRANK_LOG_LEVEL": "loud"}, "log_level"),
        ({"PAIRRANK_UPSTREAM": "localhost:8080"}, "the upstream's address is 'localhost:8080'; expected http://"),
        ({"PAIRRANK_WORKERS": "0"}, "workers"),
        ({"PAIRRANK_ALLOW_ORIGINS": "https://a.example, https://b.example/"}, "allow_origins has 'https://b"),
        ({"PAIRRANK_ADMIN_KEY": "schlüssel-der-lang-ist"}, "admin_key holds a line break or another character"),
        ({"PAIRRANK_ALLOWED_HOSTS": "a.example, https://b.example"}, "allowed_hosts has 'https://b.example'"),
        ({"PAIRRANK_ALLOWED_HOSTS": "*.shop.example"}, "such as rank.example"),
        ({"PAIRRANK_ALLOW_ORIGINS": "shop.example"}, "such as https://shop"),
        ({"PAIRRANK_ALLOW_ORIGINS": "https://*.shop.example"}, "such as https://shop"),
        ({"PAIRRANK_ALLOW_ORIGINS": "https://bücher.example"}, "such as https://shop"),
    ],
)
def test_wrong_values_are_named(environment: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        load_settings({}, environment)


def test_a_secret_from_a_file_may_end_in_a_line_break() -> None:
    found = load_settings({}, {"PAIRRANK_ADMIN_KEY": "a secret for tests\n", "PAIRRANK_STORE": "postgresql://a/b\n"})
    assert (found.admin_key, found.store) == ("a secret for tests", "postgresql://a/b")


def test_wrong_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    for text, match in (
        ("prt = 1", "no setting"),
        ("port = ", "not TOML"),
        ("port = true", "expected int"),
        ("port = 80.5", r"port is 80\.5; expected int"),
        ('allowed_hosts = ["a", "b"]', r"allowed_hosts is \['a', 'b'\]; expected str"),
        ("public_events = 1", "expected bool"),
    ):
        file.write_text(text)
        with pytest.raises(OptionError, match=match):
            load_settings({}, {}, str(file))
    with pytest.raises(StorageError, match="cannot read"):
        load_settings({}, {}, str(tmp_path / "nothing"))


def test_what_is_loopback() -> None:
    assert all(Settings(host=host).loopback for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"))
    assert not any(Settings(host=host).loopback for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"))


def test_origins_are_a_list() -> None:
    assert Settings(allow_origins=" https://a , https://b,").origins == ("https://a", "https://b")
