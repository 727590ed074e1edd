"""``pairrank play``: a search that learns from your clicks, in the browser."""

from __future__ import annotations

import argparse
import signal
import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path

from pairrank.checking import import_extra
from pairrank.progress import progress


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Open a search over the documentation of this machine's Python standard library, ranked by "
        "PairRank, which learns from what you click. Everything runs in this process and on this machine; the "
        "documentation is read at the first start."
    )
    parser.add_argument("--port", type=int, default=0, help="port on loopback (default: any that is free)")
    parser.add_argument(
        "--store", metavar="FILE", help="keep what is learned in this file (default: forget at the end)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address and open nothing")


def run(args: argparse.Namespace) -> None:
    # Needs the extra `serve`, which --help does not.
    import_extra("uvicorn", "serve")
    from pairrank.service.playground.index import open_index
    from pairrank.service.playground.start import serve
    from pairrank.service.settings import Settings
    from pairrank.service.store.sqlite import file_locks
    from pairrank.service.supervisor import check, listen

    file_locks()
    if args.store:
        check(Settings(store=f"sqlite:///{args.store}"))
    place = listen("127.0.0.1", args.port, patience=0.0)
    # The server hands on the signal that ended it: as an exception it lets the temporary folder be removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress(1, "Reading the standard library") as tell:
        index = open_index(tell)
    address = f"http://127.0.0.1:{place.getsockname()[1]}/play"
    kept = f"What it learns is kept in {args.store}." if args.store else "What it learns is forgotten at the end."
    with tempfile.TemporaryDirectory(prefix="pairrank-play-") as folder:

        def ready() -> None:
            print(f"{len(index.documents)} documents. {kept}\n{address}   (Ctrl-C stops)", flush=True)
            if not args.no_browser:
                webbrowser.open(address)

        with suppress(KeyboardInterrupt):  # the way in which one stops playing
            serve(Path(args.store or Path(folder) / "play.db"), index, place, ready)
