"""``pairrank store``: verify, back up, restore and compact a store, and manage its keys."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing

from pairrank import rankers
from pairrank.cli.export import feature_names
from pairrank.documents import Columns
from pairrank.errors import OptionError, UnknownNameError
from pairrank.service.auth import ROLES, check_name, new_key
from pairrank.service.learning.replay import load_whole
from pairrank.service.learning.verify import verify
from pairrank.service.store import open_store
from pairrank.service.store.transfer import backup, restore
from pairrank.service.store.values import Config, Limits

_STORE = ("store", "sqlite:///FILE, a path, or postgresql://…")


def configure(parser: argparse.ArgumentParser) -> None:
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)

    def add(name: str, told: str, *words: tuple[str, str], more: str | None = None) -> argparse.ArgumentParser:
        act = acts.add_parser(name, help=told, description=more)
        for word, meaning in words:
            act.add_argument(word, metavar=word.upper(), help=meaning)
        return act

    add("verify", "check pages, log, checksums and digests; exit code 1 when something is wrong", _STORE)
    made = ("file", "the file to make; it must not exist")
    add("backup", "copy a store, in use or not, into one SQLite file that is a store itself", _STORE, made)
    add("restore", "fill an empty store from a backup", ("file", "a backup"), _STORE)
    dropping = (
        "Make each ranker's newest model the new beginning of its log and drop what came before. What was "
        "dropped cannot be replayed or rolled back to: make a backup first if that matters."
    )
    act = add("compact", "drop the log that the newest model covers", _STORE, more=dropping)
    act.add_argument("--ranker", metavar="NAME", help="this ranker only")
    importing = (
        "Make a ranker of the store from a model that the library, fit or warmstart has saved, or that "
        "another service served. It goes on learning where the model stopped."
    )
    model = ("model", "a .pairrank file")
    act = add("import", "make a ranker that starts from a saved model", _STORE, model, more=importing)
    act.add_argument("--ranker", metavar="NAME", required=True, help="what it shall be called; it must not exist")
    act.add_argument("--names", metavar="A,B,…", help="what its features are called, where the model does not tell")
    act = add("keys", "list, add or revoke access keys; takes effect without a restart", _STORE)
    act.add_argument("--add", metavar="NAME", help="make a key, or a new one in the place of the old; printed once")
    act.add_argument("--role", action="append", choices=ROLES, help="may be given several times")
    act.add_argument("--revoke", metavar="NAME", help="take a key away")


def run(args: argparse.Namespace) -> int | None:
    acts: dict[str, Callable[[argparse.Namespace], int | None]]
    acts = {"backup": _backup, "restore": _restore, "compact": _compact, "import": _import, "keys": _keys}
    return acts.get(args.act, _verify)(args)


def _verify(args: argparse.Namespace) -> int:
    with closing(open_store(args.store, create=False)) as store:
        faults, rankers, library = verify(store), len(store.rankers()), store.database.library
    for fault in faults:
        print(fault)
    print(f"{library}\n{rankers} rankers: {'whole' if not faults else f'{len(faults)} faults'}")
    return 1 if faults else 0


def _backup(args: argparse.Namespace) -> None:
    with closing(open_store(args.store, create=False)) as store:
        backup(store, args.file)
    print(f"Backed up into {args.file}")


def _restore(args: argparse.Namespace) -> None:
    restore(args.file, args.store)
    print("Restored")


def _import(args: argparse.Namespace) -> None:
    model = rankers.load(args.model)
    model.recall(())  # one that a service served has left its lists behind
    check_name(args.ranker, "ranker")
    names = Columns.of(model.n_features, model.feature_names or feature_names(args.names)).names
    settings = {key: value for key, value in model.settings.items() if key != "feature_names"}
    config = Config(model.n_features, rankers.spell(model.name, settings), model.seed, feature_names=names)
    with closing(open_store(args.store)) as store:
        if store.find(args.ranker) is not None:
            raise OptionError(f"there is a ranker {args.ranker!r} already; choose another name, or delete it first")
        store.create(args.ranker, config, Limits(), time.time(), "command line", start=model)
    print(f"{args.ranker}: {model.n_features} features, {model.n_ranked} lists ranked before; digest {model.digest()}")


def _compact(args: argparse.Namespace) -> None:
    with closing(open_store(args.store, create=False)) as store:
        for name in [row.name for row in store.chosen(args.ranker)]:
            with store.database.snapshot():  # of one moment: the service goes on, and may be compacted by others, too
                row = store.find(name)
                head = None if row is None else load_whole(store, row).ranker
            if row is None or head is None:  # deleted meanwhile
                continue
            dropped = store.compact(row, head, time.time(), "command line")
            print(f"{row.name}: {dropped} entries dropped")
        store.database.vacuum()


def _keys(args: argparse.Namespace) -> None:
    if bool(args.add) != bool(args.role):
        raise OptionError("--add NAME and --role rank, feedback or admin go together")
    if args.add and args.revoke:
        raise OptionError("--add and --revoke are two steps; --add of a name that has a key replaces it")
    with closing(open_store(args.store, create=bool(args.add))) as store:
        if args.add:
            key, secret = new_key(args.add, args.role, time.time())
            store.put_key(key, "command line")
            print(secret)
        elif args.revoke:
            if not store.drop_key(args.revoke, time.time(), "command line"):
                raise UnknownNameError(f"no key is called {args.revoke!r}")
            print(f"{args.revoke} is revoked")
        else:
            for key in store.access_keys():
                made = time.strftime("%Y-%m-%d %H:%M", time.gmtime(key.created))
                print(f"{key.name}: {', '.join(sorted(key.roles))}, made {made} UTC")
