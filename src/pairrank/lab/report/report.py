"""The report: one HTML file that needs nothing else, a Markdown twin, the figures, and the numbers as JSON."""

from __future__ import annotations

import base64
import json
import logging
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from pairrank import archive
from pairrank.errors import FileFormatError, OptionError, StorageError
from pairrank.lab.analysis import claims
from pairrank.lab.analysis.aggregate import Results, collect
from pairrank.lab.analysis.claims import Claim
from pairrank.lab.experiment import Experiment
from pairrank.lab.report import figures, headline, styles, tables
from pairrank.lab.report.figures import Plate
from pairrank.sim import RunSpec
from pairrank.sim.spec import data_name
from pairrank.version import __version__

logger = logging.getLogger(__name__)
_Table = tuple[tables.Row, list[tables.Row]]


@dataclass(frozen=True)
class Report:
    """What was written, and the results behind it."""

    html: Path
    figures: tuple[Path, ...]
    results: Results
    claims: tuple[Claim, ...]


def build(out: str | os.PathLike[str]) -> Report:
    """Make everything again from the records below ``out``; whatever runs are done by now are in it."""
    folder = Path(out)
    loaded = Experiment.load(folder)
    experiment, seeds = (loaded, list(range(loaded.seeds))) if loaded else _guessed(folder)
    results = collect(folder, experiment.specs(seeds))
    if not results.cells:
        raise OptionError(f"{folder} has no finished run of its experiment yet; nothing can be reported")
    page = _Page(experiment, results, seeds)
    if experiment.study:
        groups = tables.by_kind(results.users)
        plates = [figures.ablation(results, experiment.study, kind, shown) for kind, shown in groups.items()]
    else:
        shares, ceiling = headline.shares(results), bool(headline.ceilings(results))
        first = [figures.share_of_ceiling(results, shares, of_ceiling=ceiling)] if shares else []
        plates = [*first, *figures.plates(results)]
    plates += _functions(folder, experiment, results)
    drawn, paths = draw(plates, folder / "figures")
    archive.write_atomically(folder / "results.json", page.numbers().encode())
    archive.write_atomically(folder / "report.md", page.markdown([plate for plate, *_ in drawn]).encode())
    archive.write_atomically(folder / "report.html", page.html([(plate, svg) for plate, _, svg in drawn]).encode())
    return Report(folder / "report.html", tuple(paths), results, tuple(page.claims))


def _guessed(folder: Path) -> tuple[Experiment, list[int]]:
    """The experiment that a folder of runs without a description amounts to: its largest group of like runs.

    And their seeds, which need not count from 0.
    """
    groups: dict[tuple[object, ...], list[RunSpec]] = {}
    for path in sorted(folder.glob("runs/*/spec.json")):
        try:
            spec = RunSpec.from_json(archive.read_file(path), source=str(path))
        except (FileFormatError, StorageError) as problem:
            logger.warning("left out: %s", problem)
            continue
        like = spec.shared() | ({"data": ""} if spec.contents else {})  # which may have been moved between runs
        groups.setdefault(tuple(like.values()), []).append(spec)
    if not groups:
        raise OptionError(f"{folder} has no runs; expected a folder that simulate or reproduce wrote with --out")
    runs = max(groups.values(), key=len)
    if others := sum(map(len, groups.values())) - len(runs):
        logger.warning("left out: %d runs on other data, or of other rounds or options than the reported", others)
    first, seeds = runs[0], sorted({spec.seed for spec in runs})
    experiment = Experiment(
        **first.shared(),
        title=f"Runs on {data_name(first.data)}",
        command=f"pairrank simulate {data_name(first.data)} …",
        rankers=tuple(dict.fromkeys(spec.ranker for spec in runs)),
        users=tuple(dict.fromkeys(spec.clicks for spec in runs)),
        seeds=len(seeds),
    )
    return experiment, seeds


def _functions(folder: Path, experiment: Experiment, results: Results) -> Iterator[Plate]:
    """The functions of additive rankers, as their first seed with the first users had them at the end."""
    labels = styles.of_rankers(results.rankers)
    for ranker in results.rankers:
        cell = results.get(ranker, results.users[0])
        seed = 0 if cell is None else int(cell.seeds[0])
        path = folder / "runs" / experiment.run(ranker, results.users[0], seed).run_id / "functions.json"
        if cell is not None and path.is_file():
            yield figures.functions(labels[ranker].label, json.loads(archive.read_file(path)))


def draw(plates: Iterable[Plate], folder: Path) -> tuple[list[tuple[Plate, bytes, bytes]], list[Path]]:
    """Each plate with its PNG and SVG, and the files below ``folder`` that hold them."""
    archive.make_folder(folder)
    drawn = [(plate, *plate.render()) for plate in plates]
    paths = []
    for plate, png, svg in drawn:
        for suffix, blob in (("png", png), ("svg", svg)):
            paths.append(folder / f"{plate.name}.{suffix}")
            archive.write_atomically(paths[-1], blob)
    return drawn, paths


class _Page:
    """Everything that the report says, with all comparisons made and claims checked."""

    def __init__(self, experiment: Experiment, results: Results, seeds: Sequence[int]) -> None:
        self.experiment, self.results, self.seeds = experiment, results, seeds
        self.tests = claims.comparisons(results)
        self.claims = [] if experiment.study else claims.check(results, self.tests)

    def numbers(self) -> str:
        """The results as JSON."""
        content = {
            "experiment": asdict(self.experiment) | {"data": data_name(self.experiment.data)},
            "versions": versions(),
            "runs": {"done": self.results.done, "expected": self.results.expected},
            "results": tables.summary(self.results),
            "comparisons": [asdict(test) for test in self.tests],
            "claims": [asdict(claim) for claim in self.claims],
        }
        # NaN is not JSON; there is one only where something is unknown.
        return json.dumps(_known(content), indent=1) + "\n"

    def facts(self) -> Iterator[tuple[str, str]]:
        """What was run on what, as names and sentences."""
        e, r = self.experiment, self.results
        yield "Data", self._data()
        yield "Runs", f"{r.done} of {r.expected} done" + ("" if r.done == r.expected else "; the rest is still missing")
        seeds = f"{e.seeds} seeds, {self.seeds[0]} to {self.seeds[-1]}" if e.seeds > 1 else f"1 seed, {self.seeds[0]}"
        yield "Rounds and seeds", f"{e.rounds:,} rounds; {seeds}; {e.k} documents shown"
        for note in r.notes:
            yield "Not read", note
        yield "Pairing", "within one seed all rankers meet the same queries and the same users' coins"
        model = "dependent click model, stopping only after a click unless told otherwise"
        own = any(who.startswith(("position", "cascade", "mixed")) for who in r.users)
        yield "Users", f"{', '.join(r.users)}: {model}" + "; position, cascade and mixed are models of their own" * own
        labels = styles.of_rankers(r.rankers)
        yield "Rankers", "; ".join(f"{labels[text].label}: {text}" for text in r.rankers)
        yield (
            "Winner",
            f"the highest mean is marked {tables.MARK}, what a paired test does not tell from it {tables.LEVEL}; the "
            "ceiling, which sees the labels, does not compete",
        )
        yield (
            "Tests",
            "paired t tests over seeds; Holm's correction within one ranker and metric over all opponents and users",
        )
        yield "Versions", ", ".join(f"{name} {version}" for name, version in versions().items())
        yield "Command", e.command

    def _data(self) -> str:
        e = self.experiment
        told = f"{data_name(e.data)}, fold {e.fold}, normalisation of features: {e.normalise}"
        for split, numbers in e.facts.items():
            told += f"; {split}: " + ", ".join(f"{count:,} {what}" for what, count in numbers.items())
        return told

    def first(self) -> Iterator[tuple[str, _Table]]:
        """Titles and tables of what came out."""
        for kind, shown in tables.by_kind(self.results.users).items():
            yield f"Performance, {kind} users" if kind else "Performance", tables.overview(self.results, shown)

    def checked(self) -> Iterator[tuple[str, _Table]]:
        """The paper's claims, where the results say something about them."""
        if self.claims:
            rows = [[c.text, c.verdict, c.evidence, self.rules()[c.rule]] for c in self.claims]
            counts = Counter(claim.verdict for claim in self.claims)
            told = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in _VERDICTS if counts[verdict])
            yield f"The paper's claims, as measured here ({told})", (["claim", "verdict", "measured", "rule"], rows)
            yield "Rules", (["rule", "what it says"], [[letter, rule] for rule, letter in self.rules().items()])

    def last(self) -> Iterator[tuple[str, _Table]]:
        """Titles and tables that come after the figures."""
        yield "Regret and time", tables.regrets(self.results)
        if self.tests and not self.experiment.study:
            yield "Paired tests", tables.tests(self.results, self.tests)
        if self.experiment.options:
            rows = [[ranker, json.dumps(dict(o))[1:-1]] for ranker, o in self.experiment.options.items()]
            yield "Options in full", (["ranker", "options"], rows)

    def rules(self) -> dict[str, str]:
        """Each rule once, with a letter."""
        distinct = dict.fromkeys(claim.rule for claim in self.claims)
        return {rule: chr(ord("a") + i) for i, rule in enumerate(distinct)}

    def markdown(self, plates: Sequence[Plate]) -> str:
        """The report as Markdown, figures linked."""

        def section(title: str, table: _Table) -> str:
            head, rows = table
            return f"## {title}\n\n{tables.as_markdown(head, [[_md(cell) for cell in row] for row in rows])}"

        def picture(p: Plate) -> str:
            return f"## {p.title}\n\n![{p.title}](figures/{p.name}.png)\n\n{_md(p.caption)}"

        parts = [f"# {self.experiment.title}", _md(headline.sentence(self.results)), *map(picture, plates[:1])]
        parts += [section(*part) for part in self.first()]
        parts.append("## What was run\n\n" + "\n".join(f"- **{name}**: {_md(told)}" for name, told in self.facts()))
        parts += [section(*part) for part in self.checked()]
        parts += map(picture, plates[1:])
        parts += [section(*part) for part in self.last()]
        return "\n\n".join(parts) + "\n"

    def html(self, plates: Sequence[tuple[Plate, bytes]]) -> str:
        """The report as one HTML file."""
        title = escape(self.experiment.title)
        css = files("pairrank.lab.report").joinpath("report.css").read_text(encoding="utf-8")
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(told)}</dd>" for name, told in self.facts())
        body = [f"<h1>{title}</h1><p class=lead>{escape(headline.sentence(self.results))}</p>"]
        body += [_figure(plate, svg) for plate, svg in plates[:1]]
        body += [f"<h2>{escape(name)}</h2>{_table(*table, numbers=True)}" for name, table in self.first()]
        level = f"{tables.LEVEL} level with it: a paired test over seeds has p ≥ 0.05"
        body.append(f"<p>± half a 95 % interval over seeds; {tables.MARK} the best of its column; {level}.</p>")
        body.append(_folded("What was run", f"<dl>{facts}</dl>"))
        body += [_folded(name, _table(*table)) for name, table in self.checked()]
        if plates[1:]:
            body.append(_folded(f"{len(plates) - 1} more figures", "".join(_figure(*drawn) for drawn in plates[1:])))
        body += [_folded(name, _table(*table)) for name, table in self.last()]
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<style>{css}</style></head><body><main>{''.join(body)}</main></body></html>\n"
        )


def versions() -> dict[str, str]:
    """Of what computed the numbers."""
    libraries = {name: metadata.version(name) for name in ("numpy", "scipy", "pyarrow", "matplotlib")}
    return {"pairrank": __version__, "python": platform.python_version(), **libraries}


_VERDICTS = {claims.HOLDS: "holds", claims.FAILS: "fails", claims.OPEN: "open"}


def _figure(plate: Plate, svg: bytes) -> str:
    source = base64.b64encode(svg).decode()
    return (
        f'<h2>{escape(plate.title)}</h2><figure id="{plate.name}"><div class=wide>'
        f'<img alt="{escape(plate.title)}" src="data:image/svg+xml;base64,{source}"></div>'
        f"<figcaption>{escape(plate.caption)}</figcaption></figure>"
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    start = "<table class=numbers>" if numbers else "<table>"
    return f"<div class=wide>{start}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(text: str) -> str:
    if text in _VERDICTS:
        return f'<td class="{_VERDICTS[text]}">{escape(text)}</td>'
    best = text.endswith((f" {tables.MARK}", f" {tables.LEVEL}"))
    return f"<td{' class=best' if best else ''}>{escape(text)}</td>"


def _md(text: str) -> str:
    """Stars and underscores that are meant as such."""
    return text.replace("*", "\\*").replace("_", "\\_")


def _known(value: object) -> object:
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and value != value else value
