"""What one list shows: the ranker's own draw, an experiment's, a launch's, or the next page of any of these.

Everything is decided by the impression's number, the client's id and what the store says: nothing is drawn that could
not be drawn again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pairrank.rankers import Ranker
from pairrank.rng import Purpose, generator
from pairrank.service.store.launches import STALE_SECONDS
from pairrank.service.store.values import ExperimentRow, LaunchHead, Limits
from pairrank.trials import interleaving
from pairrank.trials.experiment import Arm, Definition
from pairrank.trials.launch import bounded
from pairrank.trials.shown import as_shown
from pairrank.types import FloatArray, Impression, IntArray

# The fractional parts of n·φ are spread evenly, so any share of consecutive numbers is explored to within one list.
GOLDEN = 0.6180339887498949


def explores(number: int, share: float) -> bool:
    """Whether impression ``number`` belongs to the share of traffic that may explore."""
    return share >= 1.0 or (number * GOLDEN) % 1.0 < share


@dataclass(frozen=True, slots=True)
class Page:
    """What earlier pages of a list have shown, by id, and what the last of them noted for the next."""

    before: Sequence[str] = ()
    noted: Mapping[str, Any] = field(default_factory=dict)

    def notes(self, number: int) -> dict[str, Any]:
        """What the next page must know: the number of the first, and what was shown until then."""
        more = {"before": list(self.before)} if self.before else {}
        return {"first": self.noted.get("first", number), **more}


FIRST = Page()


class Setting(NamedTuple):
    """What a list is drawn from: the ranker that was asked, the candidates, and what runs on its requests.

    arms : the models of arms that are not as-sent, by arm.
    """

    ranker: Ranker
    limits: Limits
    number: int
    features: FloatArray
    k: int | None
    client_id: str | None
    page: Page
    experiments: Sequence[ExperimentRow]
    arms: Mapping[Arm, Ranker]
    launch: LaunchHead | None
    now: float

    def own(self, k: int | None) -> Impression:
        return self._draw(self.ranker, k)

    def order(self, arm: Arm) -> IntArray:
        """All candidates in an arm's order, as it would be served."""
        if arm.ranker is None:
            return np.arange(len(self.features))
        return self._draw(self.arms[arm], None).ranking

    def _draw(self, ranker: Ranker, k: int | None) -> Impression:
        explore = explores(self.number, self.limits.explore_share)
        locked = max(self.limits.locked - len(self.page.before), 0)  # of the whole list, not of each page
        return ranker.rank(self.features, k, number=self.number, explore=explore, locked=locked)


class Drawn(NamedTuple):
    """A list, and where it counts: fields of `Served` that are not those of every list."""

    impression: Impression
    noted: Mapping[str, Any]
    experiment_id: int | None = None
    client: int | None = None
    held: bool = False
    share: float | None = None
    candidates: bytes | None = None
    pupil: str | None = None  # another ranker that learns from this list too


def draw(setting: Setting) -> Drawn:
    experiment = _experiment(setting)
    if experiment is not None:
        split = experiment.definition.kind == "split"
        return _split(setting, experiment) if split else _interleaved(setting, experiment)
    if setting.launch is not None and setting.launch.mode != "free":
        return _launched(setting, setting.launch)
    own = setting.own(setting.k)
    if setting.page.before:
        return Drawn(own, setting.page.notes(setting.number))
    whole = len(setting.features) <= setting.limits.keep_candidates
    return Drawn(own, {}, candidates=np.delete(setting.features, own.ranking, axis=0).tobytes() if whole else None)


def _experiment(setting: Setting) -> ExperimentRow | None:
    """The experiment that a list takes part in; further pages stay where the first one was.

    Without a client's id an interleaved list takes part by its number, and none takes part in a split, whose clients
    must always get the same arm.
    """
    if setting.page.before:
        return next((row for row in setting.experiments if row.id == setting.page.noted.get("of")), None)
    for row in setting.experiments:
        if not setting.client_id and row.definition.kind == "split":
            continue
        if row.definition.takes_part(setting.client_id or f"list {setting.number}"):
            return row
    return None


def _interleaved(setting: Setting, experiment: ExperimentRow) -> Drawn:
    page, definition = setting.page, experiment.definition
    a, b = (setting.order(arm) for arm in definition.arms)
    first, earlier = page.noted.get("first", setting.number), page.noted.get("teams", "")
    k = len(a) if setting.k is None else min(setting.k, len(a))
    coins = generator(setting.ranker.seed, first, Purpose.TEAMS).random(len(earlier) + k)
    # Documents of earlier pages are no longer among the candidates: any numbers that no row has will do for them.
    after = interleaving.Shown([-1 - place for place in range(len(earlier))], ["ab".index(team) for team in earlier])
    mixed = interleaving.interleave(a, b, k, coins, credit=definition.credit, after=after)
    teams = "".join("ab"[team] for team in mixed.teams.tolist())
    noted = {**page.notes(setting.number), "of": experiment.id, "teams": earlier + teams}
    shown = replace(_as_shown(setting, mixed.ranking, definition.learn), explored=True)
    noted |= {"credit": mixed.credit.tolist()}
    held, pupil = bool(definition.signals), _pupil(setting, definition)  # purchases come after the clicks
    return Drawn(shown, noted, experiment.id, held=held, pupil=pupil)


def _split(setting: Setting, experiment: ExperimentRow) -> Drawn:
    page, definition = setting.page, experiment.definition
    further, client = bool(page.before), setting.client_id or ""
    is_a = page.noted["arm"] == "a" if further else definition.gets_a(client)
    arm = definition.arms[0 if is_a else 1]
    if arm == Arm(definition.ranker):
        own = setting.own(setting.k)
        shown = own if definition.learn else replace(own, locked=len(own))
    else:
        shown = _as_shown(setting, setting.order(arm)[: setting.k], definition.learn)
    noted = {**page.notes(setting.number), "of": experiment.id, "arm": "a" if is_a else "b"}
    pupil = _pupil(setting, definition)
    if further:  # one list per client counts, and that is the first page of one
        return Drawn(shown, noted, pupil=pupil)
    return Drawn(shown, noted, experiment.id, client_hash(client), held=True, pupil=pupil)


def _pupil(setting: Setting, definition: Definition) -> str | None:
    """The other ranker of an experiment whose rankers learn, if there is one and it can."""
    others = [arm for arm in definition.arms if arm.version is None and arm.ranker not in (None, definition.ranker)]
    able = [arm.ranker for arm in others if setting.arms[arm].any_list]
    return able[0] if definition.learn and able else None


def _launched(setting: Setting, launch: LaunchHead) -> Drawn:
    """The present order, or in a guarded launch ours by a coin of the impression's own."""
    page, n_docs = setting.page, len(setting.features)
    as_sent = np.arange(n_docs)
    k = n_docs if setting.k is None else min(setting.k, n_docs)
    guarded, further = launch.mode == "guarded", bool(page.before)
    # Where no learner works the share out any more, nobody watches what is lost.
    share = launch.share if guarded and setting.now - launch.looked <= STALE_SECONDS else 0.0
    coin = float(generator(setting.ranker.seed, setting.number, Purpose.TEAMS).random())
    ours = bool(page.noted.get("ours")) and guarded if further else coin < share
    if ours:
        shown = _as_shown(setting, bounded(setting.own(None).ranking, as_sent, k, launch.most_lost), True)
    else:
        shown = _as_shown(setting, as_sent[:k], True)
    noted = {**page.notes(setting.number), "ours": ours}
    if further:  # a list is judged by its first page
        return Drawn(shown, noted)
    noted |= {"launch": launch.epoch, "mode": launch.mode}
    if guarded:
        return Drawn(shown, {**noted, "share": share}, held=True, share=share)
    if launch.mode == "shadow":
        own = set(setting.own(k).ranking.tolist())
        noted["agreed"] = sum(place in own for place in range(k)) / k
    return Drawn(shown, noted)


def _as_shown(setting: Setting, ranking: IntArray, learn: bool) -> Impression:
    """The ranker's impression of a list that it did not draw alone; without ``learn`` it teaches nothing."""
    shown = replace(as_shown(setting.own(1), setting.features, ranking), explored=False)
    return shown if learn else replace(shown, locked=len(shown))


def client_hash(client: str) -> int:
    """A client's id as a number of 64 bits: enough to know it again, and not the id itself."""
    return int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "big", signed=True)
