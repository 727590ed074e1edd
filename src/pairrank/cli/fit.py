"""``pairrank fit``: a ranker from click logs of any size."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairrank import archive, logs, rankers, short_text, threads
from pairrank.cli.export import feature_names
from pairrank.engines import ENGINES
from pairrank.errors import DataError, LogError, OptionError
from pairrank.logs import reader
from pairrank.logs.ingest import ACTIONS, ingest, kind_of
from pairrank.logs.problems import Problems
from pairrank.progress import progress
from pairrank.rankers.priors import settings_of

DEFAULT_RANKER = "pairrank"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Learn a ranker from click logs. LOGS are Parquet click logs, our own event logs (JSON lines), "
        "stores of the service (a SQLite file, postgresql://…), or User Behavior Insights 1.3 (JSON lines of queries "
        "and events, with --features). CSV and tables of a database become a click log by pairrank.logs.Writer. "
        "The result continues online from there."
    )
    parser.epilog = "example:\n  pairrank fit logs/*.parquet --engine processes --out model.pairrank"
    add_log_options(parser)
    parser.add_argument("--out", metavar="MODEL", help="where to write the ranker")
    parser.add_argument("--check", action="store_true", help="only check the logs; exit 1 if anything is wrong")
    parser.add_argument("--ranker", default=DEFAULT_RANKER, help="which ranker, with options (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the ranker's seed (default: %(default)s)")
    parser.add_argument("--report", metavar="FILE", help="write what was found and fitted as JSON")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which logs, and how to go through them."""
    parser.add_argument("logs", metavar="LOGS", nargs="*", help="the log files, folders of them, or stores")
    parser.add_argument(
        "--engine", default="serial", choices=ENGINES, help="who does the work; ray: RAY_ADDRESS, or local"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="how many workers (default: all cores)")
    parser.add_argument(
        "--on-error", default="skip", choices=("skip", "stop"), help="leave bad rows out and count them, or stop"
    )
    parser.add_argument("--features", action="append", default=[], metavar="FILE", help="Parquet of features, for UBI")
    parser.add_argument(
        "--action",
        action="append",
        metavar="NAME=GAIN",
        help="what a UBI action is worth, in clicks (default: click=1 add_to_cart=2 purchase=3 declined_product=-1)",
    )
    parser.add_argument("--names", metavar="FILE|a,b,c", help="what the ranker's features are called, in their order")
    parser.add_argument("--store-ranker", metavar="NAME", help="which ranker of a store that holds several")
    parser.add_argument("--keep", metavar="FILE", help="keep the joined click log (Parquet) here")
    parser.add_argument("--checkpoint", metavar="FILE", help="default: MODEL.checkpoint; work resumes from it")


@threads.single()
def run(args: argparse.Namespace) -> int:
    if not args.logs:
        raise OptionError("no logs were named")
    if not args.check and not args.out:
        raise OptionError("say where the ranker goes, with --out MODEL, or --check the logs only")
    try:
        return _checked(args) if args.check else _fitted(args)
    except LogError as problem:
        _report(args, problem.problems, {}, n_lists=0, n_pairs=0)
        print(f"pairrank: {problem.args[0]}", file=sys.stderr)
        return 1 if args.check else 2


def _checked(args: argparse.Namespace) -> int:
    with click_logs(args) as (paths, facts, how):
        problems, n_lists, n_pairs = logs.validate(paths, **_values(args), **how)
    problems.merge(facts["problems"])
    _report(args, problems, facts, n_lists=n_lists, n_pairs=n_pairs)
    if not n_lists:
        print("pairrank: the logs hold no list that could be used", file=sys.stderr)
    return 1 if problems or not n_lists else 0


def _fitted(args: argparse.Namespace) -> int:
    found, ranker, facts = fit_ranker(args)
    found.prior().apply(ranker)
    ranker.save(args.out)
    _report(args, found.problems, facts, n_lists=found.n_lists, n_pairs=found.n_pairs, passes=found.passes)
    print(f"{args.out}: {found.n_pairs:,} pairs of {found.n_lists:,} lists in {found.passes} passes")
    return 0


def fit_ranker(args: argparse.Namespace) -> Any:
    """The fit of the logs, a ranker that has learned nothing, with the λ and the pairs that the fit took, and facts."""
    with click_logs(args) as (paths, facts, how):
        named = {"feature_names": feature_names(args.names)} if args.names else {}
        ranker = rankers.make(args.ranker, n_features=reader.width_of(paths), seed=args.seed, **named)
        checkpoint = args.checkpoint or f"{args.out}.checkpoint"
        settings = settings_of(ranker)._asdict() | {"missing": ranker.missing}
        found = logs.fit(paths, **settings, on_error=args.on_error, checkpoint=checkpoint, **how)
    found.problems.merge(facts["problems"])
    return found, ranker, facts


def _values(args: argparse.Namespace) -> dict[str, Any]:
    """The options of the ranker that is asked for which say whether values may be missing."""
    _, options = short_text.parse(args.ranker) or ("", {})
    return {"model": str(options.get("model", "linear")), "missing": options.get("missing")}


@contextmanager
def click_logs(args: argparse.Namespace) -> Iterator[tuple[list[str], dict[str, Any], dict[str, Any]]]:
    """Parquet as it came, everything else joined into a click log that is gone afterwards unless kept; what was found
    on the way; and who goes through them, with a progress bar."""
    for path in filter(None, (getattr(args, name, None) for name in ("out", "report", "keep", "checkpoint"))):
        if not Path(path).absolute().parent.is_dir():
            raise OptionError(f"cannot write {path}: there is no folder {Path(path).parent}")
    named = {Path(name).resolve(): name for path in args.logs for name in _files(path)}
    files = list(named.values())  # each once, also where a folder and a file in it are named
    if not files:
        raise DataError(f"{', '.join(args.logs)}: there are no files in there")
    ready = [path for path in files if kind_of(path) == "parquet"]
    others = [path for path in files if path not in ready]
    kept = args.keep or args.out
    near = Path(kept).absolute().parent if kept else None  # --check needs no folder of the user's
    with progress(0, "reading") as bar:

        def tell(what: str, done: int, total: int) -> None:
            bar(done, total, what)

        how = {"engine": args.engine, "workers": args.workers, "progress": tell}
        if not others:
            yield ready, {"problems": Problems()}, how
            return
        with tempfile.TemporaryDirectory(prefix=".pairrank-fit-", dir=near) as folder:
            joined = args.keep or str(Path(folder) / "joined.parquet")
            done = ingest(
                others,
                joined,
                features=args.features,
                actions=_actions(args.action) or ACTIONS,
                ranker=args.store_ranker,
                on_error="skip" if args.check else args.on_error,
                missing=_values(args) != {"model": "linear", "missing": None},
                progress=tell,
            )
            for action, count in done.passed_over.items():
                print(f"  {count:>8}  passed over: events of the action {action!r}", file=sys.stderr)
            facts = {"clicks": done.n_clicks, "passed_over": dict(done.passed_over), "problems": done.problems}
            try:
                yield [*ready, joined], facts, how
            except LogError as problem:  # what was left out before may be why
                problem.problems.merge(done.problems)
                raise


def _actions(given: Sequence[str] | None) -> dict[str, float]:
    try:
        return {name: float(gain or 1.0) for name, _, gain in (text.partition("=") for text in given or ())}
    except ValueError:
        raise OptionError(f"--action is {' '.join(given or ())}; expected NAME=GAIN, such as purchase=3") from None


def _files(path: str) -> list[str]:
    """A file or an address itself, or the files in a folder, at any depth, by name; hidden ones are left out."""
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    return sorted(
        str(entry)
        for entry in folder.rglob("*")
        if entry.is_file() and not any(part[0] in "._" for part in entry.relative_to(folder).parts)
    )


def _report(args: argparse.Namespace, problems: Problems, facts: dict[str, Any], **numbers: int) -> None:
    if problems or args.check:
        good = f"{numbers['n_lists']:,} good lists; " if numbers["n_lists"] else ""  # none were counted before a stop
        print(f"{good}bad rows:\n{problems.text()}", file=sys.stderr)
    if args.report:
        document = {
            **numbers,
            "clicks_joined": facts.get("clicks"),
            "passed_over": facts.get("passed_over", {}),
            "problems": problems.to_json(),
        }
        archive.write_atomically(args.report, json.dumps(document, indent=2).encode() + b"\n")
