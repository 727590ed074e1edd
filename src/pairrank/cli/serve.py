"""``pairrank serve``: rank and feedback over HTTP."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace

from pairrank.service import supervisor
from pairrank.service.settings import Settings, load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve rank and feedback over HTTP. Starts with no configuration: a SQLite file in this folder, "
        "on this machine alone."
    )
    parser.epilog = (
        "Every setting can also come from the environment (PAIRRANK_PORT=8001) or from a TOML file (--config); "
        "a flag wins over the environment, and the environment over the file. More: docs/operations.md."
    )
    parser.add_argument("--store", help="sqlite:///FILE or postgresql://… (default: sqlite:///pairrank.db)")
    parser.add_argument("--host", help="address to listen on; any but loopback demands keys (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default: 8000)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that rank; one more learns (default: 1)")
    parser.add_argument(
        "--allowed-host",
        action="append",
        dest="allowed_hosts",
        metavar="NAME",
        help="a name under which clients may call, beside addresses and localhost; may be given several times",
    )
    parser.add_argument("--allow-origins", metavar="A,B", help="web origins whose pages may send events, * for all")
    parser.add_argument("--public-events", action="store_true", default=None, help="take events without a key")
    parser.add_argument("--access-log", action="store_true", default=None, help="log every request")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--config", metavar="FILE", help="a TOML file with settings")
    parser.add_argument("--check", action="store_true", help="check the settings and the store, start nothing")


def run(args: argparse.Namespace) -> int:
    flags = {field.name: getattr(args, field.name, None) for field in fields(Settings)}
    flags["allowed_hosts"] = ",".join(args.allowed_hosts) if args.allowed_hosts else None
    settings = load_settings(flags, file=args.config)
    if not args.check:
        return supervisor.serve(settings)
    library = supervisor.check(settings)
    hidden = {name: "(set)" for name in ("upstream_key", "admin_key") if getattr(settings, name)}
    shown = replace(settings, store=supervisor.data_place(settings))
    for field in fields(shown):
        print(f"{field.name} = {hidden.get(field.name) or repr(getattr(shown, field.name))}")
    print(f"The database is {library}.")
    print("The settings are sound.")
    return 0
