"""``pairrank quality``: the default against every rival, over data sets and users, nothing tuned."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from pairrank import archive, click_models
from pairrank.cli import experiment_options
from pairrank.errors import OptionError
from pairrank.lab import executors
from pairrank.lab.analysis import quality
from pairrank.lab.experiment import CEILING
from pairrank.lab.outcomes import RunsFailedError
from pairrank.lab.report import contests, report
from pairrank.progress import phase
from pairrank.sim import Protocol, Summary
from pairrank.sim.spec import canonical
from pairrank.version import __version__

_RANGE = re.compile(r"([1-9]\d*)(?:-(\d+))?")
_EPILOG = """\
DATA is a folder in LETOR format or a synthetic: name; after @ come the folds, as in MQ2008@1-5 (default: fold 1).

Every ranker runs with its defaults. Runs are kept as those of simulate are, and the same command goes on where it was
interrupted.

examples:
  pairrank quality MQ2008@1-5 synthetic:linear synthetic:nonlinear --rounds 5000 --seeds 20 --out quality
  pairrank quality synthetic:tiny --rounds 300 --seeds 3 --rival pdgd --out try
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare one ranker with its rivals over data sets and users, paired run by run, tests corrected."
    )
    parser.epilog = _EPILOG
    parser.add_argument("data", metavar="DATA", nargs="+", help="folders or names, with @FOLDS")
    parser.add_argument("--ranker", metavar="NAME", default="pairrank", help="who is compared (default: pairrank)")
    parser.add_argument("--rival", metavar="NAME", action="append", help="with whom; may be repeated (default: all)")
    experiment_options.add(parser, rounds=5000, seeds=20)
    parser.add_argument(
        "--clicks",
        action="append",
        metavar="NAME",
        help="click models (default: the paper's three, three with a bias of position, a cascade, mixed)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where runs and tables go")
    experiment_options.add_options(parser)


def run(args: argparse.Namespace) -> None:
    rivals = tuple(dict.fromkeys(canonical(rival) for rival in args.rival or quality.RIVALS))
    if canonical(args.ranker) in rivals:
        raise OptionError(f"{args.ranker} is both --ranker and --rival; a ranker cannot be compared with itself")
    if CEILING in (canonical(args.ranker), *rivals):
        raise OptionError(f"{CEILING} sees the labels and does not compete; it runs beside the others all the same")
    sets = list(dict.fromkeys(one for text in args.data for one in _folds(text)))
    specs = quality.specs(
        [Protocol(data=data, fold=fold, rounds=args.rounds, panel=0, ideal="") for data, fold in sets],
        subject=args.ranker,
        rivals=rivals,
        users=tuple(dict.fromkeys(click_models.canonical(text) for text in args.clicks or quality.WHO)),
        seeds=args.seeds,
    )
    experiment_options.check(specs)
    executors.prepare(args.out, "runs", "pyarrow", "matplotlib")
    failed = None
    try:
        done: Sequence[Summary] = experiment_options.run_all(specs, args, args.out)
    except RunsFailedError as problem:
        failed, done = problem, problem.summaries
        if not any(summary.spec.ranker == canonical(args.ranker) for summary in done):
            raise
    found = quality.contests(done, subject=args.ranker, rivals=rivals)
    print(quality.as_text(found, args.ranker))
    folder = Path(args.out)
    phase("drawing figures")
    drawn, files = report.draw(contests.plates(found, done, folder), folder / "figures")
    made = f"pairrank {__version__}, {args.rounds} rounds, {args.seeds} seeds; {quality.LEGEND}"
    pictures = [f"## {p.title}\n\n![{p.title}](figures/{p.name}.svg)\n\n{p.caption}" for p, *_ in drawn]
    page = [f"# {args.ranker} against its rivals", made, quality.as_markdown(found, args.ranker), *pictures]
    archive.write_atomically(folder / "quality.md", ("\n\n".join(page) + "\n").encode())
    print(f"as Markdown: {folder / 'quality.md'}\nfigures: {folder / 'figures'} ({len(files)} files)")
    if failed is not None:
        raise failed


def _folds(text: str) -> list[tuple[str, int]]:
    """(data, fold) for each of the folds in ``DATA@1-5`` or ``DATA@1,3``; fold 1 where none is named."""
    data, at, folds = text.rpartition("@")
    if not at:
        return [(text, 1)]
    bounds = [_RANGE.fullmatch(part) for part in folds.split(",")]
    ranges = [range(int(found[1]), int(found[2] or found[1]) + 1) for found in bounds if found]
    if not data or len(ranges) < len(bounds) or not all(ranges):
        raise OptionError(f"cannot read the folds of {text!r}; expected DATA@1-5 or DATA@1,3")
    return [(data, n) for numbers in ranges for n in numbers]
