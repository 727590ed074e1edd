"""Retrieval that learns from citations: what a chatbot quotes decides what it is given next time.

    python examples/rag.py --out rag

A handbook of a made-up product lies in LanceDB, an embedded engine: for each subject a guide of today, the guide of
some years ago, a thread of the forum and a release note that mentions it. Full-text search cannot tell them apart.
Three chunks go into the prompt; a simulated answer cites those that it can use, and now and then one that it cannot.
PairRank re-ranks the twelve chunks that the engine finds, and learns from the citations. No model from a hub is needed.

Written are rag.svg (recall@3 of the chunks worth citing, as questions come in, and that of the engine's own order) and
rag.json (the figures, with 95 % intervals over the seeds).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lancedb
import numpy as np
from lancedb.index import FTS
from scipy.stats import t as student

from pairrank.features.text import TextFeatures
from pairrank.integrations.lancedb import PairRankReranker
from pairrank.integrations.text_reranker import TextReranker

FOUND, PROMPT = 12, 3  # chunks that the engine finds, and those that go into the prompt
CITES_USEFUL, CITES_USELESS = 0.85, 0.05
WINDOW = 50  # questions per point of the curve

THINGS = "album backup camera calendar gallery invoice library mailbox playlist printer scanner sensor"
ACTIONS = "connect delete export move rename reset share update"
SUBJECTS = [(action, thing) for action in ACTIONS.split() for thing in THINGS.split()]
ASKED = (
    "how do I {action} my {thing}",
    "{action} {thing} does not work",
    "what is the way to {action} one {thing} for all users",
)
GUIDE = "To {action} the {thing}, open settings, choose the {thing}, press {action} and confirm."
THREAD = (
    "I want to {action} my {thing} and it does not work. Did anybody {action} one {thing} for all users? "
    "I tried to {action} the {thing} twice."
)
NOTE = "It is now faster to {action} the {thing}."
FILLER = (
    "Administrators see this in the log.",
    "The change takes effect at once.",
    "A copy stays in the archive for thirty days.",
    "On small devices the menu stands at the bottom.",
    "The team answers questions on weekdays.",
    "What is shown depends on your role and on the way your users sign in.",
)


class Kind(NamedTuple):
    """A kind of chunk: its text and title, years and votes from and up to, and how often it is worth citing."""

    text: str
    title: str
    years: tuple[int, int]
    votes: tuple[int, int]
    useful: bool


NEW_GUIDE = Kind(GUIDE, "{action} the {thing}", (2026, 2026), (5, 60), True)
OLD_GUIDE = Kind(GUIDE, "{action} the {thing}", (2018, 2022), (0, 30), False)
SOLVED = Kind(THREAD, "Forum", (2020, 2026), (20, 90), True)
UNSOLVED = Kind(THREAD, "Forum", (2020, 2026), (0, 8), False)
RELEASE = Kind(NOTE, "Release notes", (2019, 2026), (0, 0), False)


def corpus(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The chunks; ``subject`` is what a chunk is worth citing for, empty where it is worth citing for nothing."""
    chunks = []
    for action, thing in SUBJECTS:
        for kind in (NEW_GUIDE, OLD_GUIDE, SOLVED if rng.random() < 0.4 else UNSOLVED, RELEASE):
            more = rng.choice(FILLER, rng.integers(0, 4), replace=False)
            year, month, day = rng.integers(*kind.years, endpoint=True), rng.integers(1, 13), rng.integers(1, 29)
            chunks.append(
                {
                    "text": " ".join([kind.text.format(action=action, thing=thing), *more]),
                    "title": kind.title.format(action=action, thing=thing),
                    "date": f"{year}-{month:02}-{day:02}",
                    "votes": int(rng.integers(*kind.votes, endpoint=True)),
                    "subject": f"{action} {thing}" if kind.useful else "",
                }
            )
    return chunks


class Question(NamedTuple):
    """A question, the number of chunks worth citing for it, and the engine's own recall@3."""

    text: str
    subject: str
    useful: int
    before: float


def recall(rows: Sequence[dict[str, Any]], subject: str, useful: int) -> float:
    """The share of the chunks worth citing that stand among the first three rows."""
    return sum(row["subject"] == subject for row in rows[:PROMPT]) / min(PROMPT, useful)


def ask(table: Any, question: str, reranker: PairRankReranker | None = None) -> list[dict[str, Any]]:
    """What the engine finds, as it has it or re-ranked."""
    search = table.search(question, query_type="fts").limit(FOUND)
    rows: list[dict[str, Any]] = (search if reranker is None else search.rerank(reranker)).to_list()
    return rows


def questions_of(table: Any, chunks: list[dict[str, Any]]) -> list[list[Question]]:
    """All questions, subject by subject."""
    result = []
    for action, thing in SUBJECTS:
        subject = f"{action} {thing}"
        useful = sum(chunk["subject"] == subject for chunk in chunks)
        texts = [asked.format(action=action, thing=thing) for asked in ASKED]
        result.append([Question(q, subject, useful, recall(ask(table, q), subject, useful)) for q in texts])
    return result


def run(table: Any, questions: list[list[Question]], rounds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One seed: (rounds, 2) and (held-out questions, 2), recall@3 of the engine's order and of ours."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(questions))
    known, unknown = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
    model = TextReranker(TextFeatures(numbers=("votes",)), seed=seed)
    reranker = PairRankReranker(model, top_n=PROMPT)
    on_the_way = []
    for _ in range(rounds):
        question = questions[rng.choice(known)][rng.integers(len(ASKED))]
        rows = ask(table, question.text, reranker)
        on_the_way.append((question.before, recall(rows, question.subject, question.useful)))
        chance = [CITES_USEFUL if row["subject"] == question.subject else CITES_USELESS for row in rows]
        reranker.feedback([row for row, p in zip(rows, chance, strict=True) if rng.random() < p])
    model.explore = False
    held_out = [question for place in unknown for question in questions[place]]
    after = [(q.before, recall(ask(table, q.text, reranker), q.subject, q.useful)) for q in held_out]
    return np.array(on_the_way), np.array(after)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over the seeds (the first axis) and its 95 % interval by Student's t."""
    mean = float(values.mean())
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def figures(on_the_way: np.ndarray, after: np.ndarray) -> dict[str, Any]:
    """What came of it: ``on_the_way`` (seeds, rounds, 2), ``after`` (seeds, held-out questions, 2)."""
    seeds, rounds, _ = on_the_way.shape
    windows = on_the_way.reshape(seeds, rounds // WINDOW, WINDOW, 2).mean(axis=2)
    gains = [interval(windows[:, w, 1] - windows[:, w, 0]) for w in range(windows.shape[1])]
    return {
        "rounds": [WINDOW * (w + 1) for w in range(windows.shape[1])],
        "engine": windows[:, :, 0].mean(axis=0).round(4).tolist(),
        "ours": windows[:, :, 1].mean(axis=0).round(4).tolist(),
        "gain": [[round(value, 4) for value in gain] for gain in gains],
        "never_below": all(high >= 0 for _, _, high in gains),
        "held_out": {
            "engine": round(float(after[:, :, 0].mean()), 4),
            "ours": round(float(after[:, :, 1].mean()), 4),
            "gain": [round(value, 4) for value in interval((after[:, :, 1] - after[:, :, 0]).mean(axis=1))],
        },
        "seeds": seeds,
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Recall@3 as questions come in; the band is the interval of the gain."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pairrank"  # the same picture gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    at, engine = found["rounds"], np.array(found["engine"])
    gain = np.array(found["gain"])
    axes.plot(at, engine, "--", color="#566070", label="the order that came in")
    (line,) = axes.plot(at, found["ours"], "-", color="#0f7173", label="PairRank, learning from citations")
    axes.fill_between(at, engine + gain[:, 1], engine + gain[:, 2], color=line.get_color(), alpha=0.15)
    axes.set(xlabel="questions asked", ylabel="recall@3 of chunks worth citing", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, save, print what matters."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", default="rag", help="folder for rag.svg and rag.json")
    parser.add_argument("--rounds", type=int, default=500, help=f"questions, a multiple of {WINDOW}")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(argv)
    chunks = corpus(np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        table = lancedb.connect(folder).create_table("handbook", chunks)
        table.create_index("text", config=FTS())
        questions = questions_of(table, chunks)
        runs = [run(table, questions, args.rounds, seed) for seed in range(args.seeds)]
    found = figures(np.stack([way for way, _ in runs]), np.stack([after for _, after in runs]))
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "rag.json").write_text(json.dumps(found) + "\n")
    draw(found, out / "rag.svg")
    last = found["held_out"]
    mean, low, high = last["gain"]
    print(f"recall@3 on questions never asked: {last['engine']:.3f} as the engine has it, {last['ours']:.3f} after")
    print(f"{args.rounds} questions; gain {mean:.3f}, 95 % interval {low:.3f} to {high:.3f} over {args.seeds} seeds")
    for at, engine, ours, gain in zip(found["rounds"], found["engine"], found["ours"], found["gain"], strict=True):
        print(
            f"  questions to {at:4}: {engine:.3f} → {ours:.3f}   gain {gain[0]:+.3f} ({gain[1]:+.3f} to {gain[2]:+.3f})"
        )
    return found


if __name__ == "__main__":
    main()
