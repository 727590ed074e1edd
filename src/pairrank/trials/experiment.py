"""An experiment: what is compared, who takes part, and what the lists have shown so far.

A definition is frozen: a changed one is another experiment. Who takes part and what they get is a function of the
client's id and of the definition, so it needs no memory and is the same after a restart. What has been shown is a
function of the lists that came back, in the order of the log.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pairrank.checking import check_choice, check_number_in
from pairrank.errors import InputError, OptionError
from pairrank.trials.interleaving import CREDITS
from pairrank.trials.verdict import LEVEL, Evidence, split_outcome

KINDS = ("interleave", "split")
AS_SENT = "as-sent"
# What may be counted beside clicks: a purchase has a verdict of its own, a reformulation of the query is a guardrail.
SIGNALS = ("purchase", "reformulation")
VERDICTS = {1: "a", -1: "b", 0: "undecided"}
_ARM = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?:@(0|[1-9][0-9]{0,17}))?")


@dataclass(frozen=True, slots=True)
class Arm:
    """What an arm shows: a ranker as it learns on, a version of it, or the order in which the documents came.

    >>> Arm.parse("shop@1200")
    Arm(ranker='shop', version=1200)
    >>> str(Arm(ranker=None))
    'as-sent'
    """

    ranker: str | None
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Arm:
        """``shop``, ``shop@1200`` or ``as-sent``."""
        if text == AS_SENT:
            return cls(None)
        match = _ARM.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise OptionError(
                f"the arm is {text!r}; expected a ranker, a version of one such as shop@1200, or {AS_SENT}"
            )
        return cls(match[1], None if match[2] is None else int(match[2]))

    def __str__(self) -> str:
        version = "" if self.version is None else f"@{self.version}"
        return AS_SENT if self.ranker is None else f"{self.ranker}{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What is compared; frozen.

    Attributes
    ----------
    name : of the experiment. a, b : the arms, in their short text. kind : "interleave" or "split".
    share : of all clients that take part. start : where its share begins on the line from 0 to 1 that all experiments
        have to divide among themselves. credit : of an interleaved list's clicks. level : α of the verdict.
    ranker : whose requests take part; by default the first arm that names one. learn : whether it learns from them.
    signals : what is counted beside clicks, of `SIGNALS`.

    >>> trial = Definition(name="new", a="shop", b="as-sent", kind="split", share=0.5)
    >>> [(client, trial.gets_a(client)) for client in ("c1", "c2", "c3", "c4") if trial.takes_part(client)]
    [('c2', False)]
    """

    name: str
    a: str
    b: str
    kind: str = "interleave"
    share: float = 1.0
    start: float = 0.0
    credit: str = "choice"
    level: float = LEVEL
    ranker: str | None = None
    learn: bool = True
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "signals", tuple(sorted(set(self.signals))))
        for signal in self.signals:
            check_choice("signal", signal, SIGNALS)
        check_choice("kind", self.kind, KINDS)
        check_choice("credit", self.credit, CREDITS)
        if Arm.parse(self.a) == Arm.parse(self.b) and self.kind == "interleave" and self.credit != "team":
            raise OptionError(
                f"both arms are {self.a!r}, which have no picks of their own; expected two that differ, or for an A/A "
                'test credit="team" or a split'
            )
        check_number_in("level", self.level, 0.0, 0.5, open_low=True)
        check_number_in("share", self.share, 0.0, 1.0, open_low=True)
        check_number_in("start", self.start, 0.0, 1.0)
        if self.start + self.share > 1.0 + 1e-12:
            raise OptionError(f"share is {self.share} from {self.start} on; expected shares that sum to 1 at most")

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """What a and b show."""
        return Arm.parse(self.a), Arm.parse(self.b)

    @property
    def digest(self) -> str:
        """Sixteen hex digits of everything above: a changed definition is another experiment."""
        values = asdict(self)
        if not self.signals:  # as before there were any, so that clients of a running experiment keep their arm
            del values["signals"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def takes_part(self, client: str) -> bool:
        """Whether this client does. Experiments on disjoint shares have no client in common."""
        return self.start <= _place("part", client) < self.start + self.share

    def gets_a(self, client: str) -> bool:
        """Which arm of a split this client gets, always the same; independent of other experiments."""
        return _place(self.digest, client) < 0.5


def room(share: float, running: Iterable[Definition]) -> float:
    """Where a new share can begin beside the ``running`` experiments: at the first gap that is wide enough."""
    start, others = 0.0, sorted(running, key=lambda d: d.start)
    for other in others:
        if other.start - start >= share - 1e-12:
            break
        start = max(start, other.start + other.share)
    if start + share > 1.0 + 1e-12:
        names = ", ".join(other.name for other in others)
        raise InputError(f"share is {share}; beside {names}, which run, is no gap of that width: stop one or take less")
    return start


def _place(salt: str, client: str) -> float:
    """A place on the line from 0 to 1, the same for the same two texts on every machine."""
    return int.from_bytes(hashlib.sha256(f"{salt}\\0{client}".encode()).digest()[:8], "big") / 2.0**64


@dataclass(frozen=True, slots=True)
class Tally:
    """What the lists have shown so far, a value from which `after` makes the next.

    A client always gets the same arm of a split, so its lists tell of the client as well as of the arm: let each client
    count once, with its first list. Interleaved lists are drawn anew each time, and all count.

    Attributes
    ----------
    main : the evidence of the first signal, clicks, which has the verdict. signals : that of the others, by name.
    lists : how many came back. guards : by guardrail and arm ("both" if interleaved) the share of lists with it.
    value : sums of the values of a split's lists by signal, for what is expected.

    >>> tally = Tally.start(Definition(name="new", a="shop", b="as-sent"))
    >>> tally = tally.after({"click": 1.0}, clicked=True).after({"click": 0.0}, clicked=False)
    >>> tally.lists, tally.main.effect, tally.answer()["verdict"]
    (2, 0.5, 'undecided')
    """

    definition: Definition
    main: Evidence
    signals: Mapping[str, Evidence] = field(default_factory=dict)
    lists: int = 0
    guards: Mapping[str, Mapping[str, Evidence]] = field(default_factory=dict)
    value: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def start(cls, definition: Definition) -> Tally:
        """Before any list came back."""
        first = _evidence(definition)
        return cls(definition, first, dict.fromkeys((s for s in definition.signals if s != "reformulation"), first))

    def after(
        self,
        outcomes: Mapping[str, float],
        *,
        clicked: bool,
        reformulated: bool | None = None,
        is_a: bool | None = None,
    ) -> Tally:
        """The tally with one more list.

        Parameters
        ----------
        outcomes : by signal, ``click`` first of all. Interleaved: `interleaving.outcome`, in [-1, 1]. Split: the list's
            value, in [0, 1].
        clicked : whether it had a click at all. reformulated : whether the user asked again in other words, if that is
            known. is_a : in a split, which arm it got.
        """
        split = self.definition.kind == "split"
        if "click" not in outcomes or split != (is_a is not None):
            raise InputError("a list needs its outcome for clicks, and in a split its arm; one of them is missing")
        signals, sums = {"click": self.main, **self.signals}, dict(self.value)
        for name, outcome in outcomes.items():
            x, before = float(outcome), signals.get(name) or _evidence(self.definition)
            if is_a is not None:
                if not 0.0 <= x <= 1.0:
                    raise InputError(f"the list's value of {name!r} is {x}; expected a number from 0 to 1")
                total = sums.get(name, 0.0)
                sums[name] = total + x
                x = split_outcome(is_a, x, total / before.n if before.n else 0.5)
            signals[name] = before.after(x)
        arm, guards = "both" if is_a is None else "ab"[not is_a], dict(self.guards)
        for name, there in (("lists_without_a_click", not clicked), ("reformulations", reformulated)):
            if there is not None:
                arms = guards.get(name, {})
                share = arms.get(arm, Evidence(low=0.0, level=self.definition.level))
                guards[name] = {**arms, arm: share.after(float(there))}
        main = signals.pop("click")
        return replace(self, main=main, signals=signals, lists=self.lists + 1, guards=guards, value=sums)

    def answer(self) -> dict[str, Any]:
        """What ``GET /v1/experiments/{name}`` says of it."""
        guards = {
            name: {arm: {"share": share.effect, "interval": list(share.interval)} for arm, share in arms.items()}
            for name, arms in self.guards.items()
        }
        return {
            "impressions": self.lists,
            **_told(self.main),
            "signals": {name: _told(evidence) for name, evidence in self.signals.items()},
            "guardrails": guards,
            "sentence": sentence(self.definition, self.main),
        }

    def to_json(self) -> dict[str, Any]:
        """The state by name; `from_json` makes it again."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Tally:
        """The tally that `to_json` wrote."""
        return cls(
            Definition(**values["definition"]),
            Evidence(**values["main"]),
            _evidences(values["signals"]),
            values["lists"],
            # Older states have none; their guardrails are counted from here on.
            {name: _evidences(arms) for name, arms in values.get("guards", {}).items()},
            values["value"],
        )


def _evidences(values: Mapping[str, Any]) -> dict[str, Evidence]:
    return {name: Evidence(**evidence) for name, evidence in values.items()}


def _evidence(definition: Definition) -> Evidence:
    bound = 2.0 if definition.kind == "split" else 1.0
    return Evidence(low=-bound, high=bound, level=definition.level)


def _told(evidence: Evidence) -> dict[str, Any]:
    return {
        "wins_a": evidence.positive,
        "wins_b": evidence.negative,
        "ties": evidence.n - evidence.positive - evidence.negative,
        "effect": evidence.effect,
        "interval": list(evidence.interval),
        "p_value": evidence.p_value,
        "verdict": VERDICTS[evidence.sign],
        "decided_after": evidence.decided or None,
        "more_lists": evidence.more_until_decided(),
    }


def sentence(definition: Definition, evidence: Evidence) -> str:
    """The verdict in one sentence."""
    if evidence.sign:
        better, worse = (definition.a, definition.b)[:: evidence.sign]
        return (
            f"{better} is better than {worse}: decided after {evidence.decided:,} lists at level {definition.level:g}."
        )
    more = evidence.more_until_decided()
    when = "nothing leads" if more is None else f"at this rate about {more:,} more lists will decide"
    return f"Undecided after {evidence.n:,} lists between {definition.a} and {definition.b}: {when}."
