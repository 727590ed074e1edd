"""What comes in and what goes out of experiments and launches, for the OpenAPI text; see `schemas`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairrank.service.http.schemas import Answer, Body, Text

Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


class ExperimentBody(Body):
    """What is compared; frozen: to change it is to start another."""

    a: Text = Field(description="a ranker, a kept version of one such as shop@1200, or as-sent")
    b: Text
    kind: Literal["interleave", "split"] = "interleave"
    share: float = Field(1.0, description="of the clients that take part; above 0, at most 1 with all that run")
    credit: Literal["team", "choice", "exposure"] = Field("choice", description="what a click on a mixed list counts")
    level: float = Field(0.05, description="of the interval and the verdict")
    learn: bool | None = Field(
        None, description="whether the rankers learn from these lists; by default where the one asked rightly can"
    )
    ranker: Text | None = Field(None, description="whose requests take part; by default the first arm that names one")
    signals: list[Literal["purchase", "reformulation"]] = Field(
        [], description="events that are counted beside clicks; lists then count when their window closes"
    )


class LaunchBody(Body):
    """How far users get ours. A new decision begins counting anew."""

    mode: Literal["shadow", "guarded", "free"]
    margin: float = Field(0.02, description="how much less than the present order a list may be worth in the mean")
    holdout: float = Field(0.05, description="share of the lists that always get the present order, while guarded")
    delta: float = Field(0.05, description="the probability with which that may go wrong")
    most_lost: float = Field(0.5, description="share of its exposure that a document may lose in a list, while guarded")
    auto: bool = Field(False, description="go on by itself: guarded after a hundred lists, free when ours is better")


class LaunchAnswer(Answer):
    """A launch: what was decided, and what the log has made of it. ``frozen``: stopped by a breach."""

    mode: Literal["shadow", "guarded", "free", "frozen"]
    margin: float
    holdout: float
    delta: float
    most_lost: float
    auto: bool
    share: float = Field(description="of the lists that get ours now")
    lists: int = Field(description="lists whose value is known")
    guarded_lists: int
    gain: Interval = Field(description="bounds of what a list of ours is worth more than one as sent")
    lost: float = Field(description="upper bound of all that was lost while guarded, in lists; below zero it is a gain")
    stage: int
    agreement: float | None = Field(description="in the shadow: share of the shown documents that ours shows as well")
    good_version: int
    breaches: int
    sentence: str


class SignalAnswer(Answer):
    """What one kind of signal has shown so far; an interval and a p-value that hold whenever they are looked at."""

    wins_a: int
    wins_b: int
    ties: int
    effect: float
    interval: Interval
    p_value: float
    verdict: Literal["a", "b", "undecided"]
    decided_after: int | None = Field(description="lists that it took; null while it is undecided")
    more_lists: int | None = Field(description="about how many more will decide at this rate; null where nothing leads")


class ShareAnswer(Answer):
    """A share of the lists, with bounds that hold at all times at once."""

    share: float
    interval: Interval


class CoursePointAnswer(Answer):
    """Where an experiment stood after so many lists."""

    time: float
    lists: int
    effect: float
    interval: Interval


class ExperimentAnswer(SignalAnswer):
    """An experiment and what it has shown so far, a function of the log."""

    name: str
    a: str
    b: str
    kind: Literal["interleave", "split"]
    share: float
    credit: str
    level: float
    learn: bool
    ranker: str
    created: float
    ended: float | None
    impressions: int = Field(description="lists that have counted")
    signals: dict[str, SignalAnswer] = Field(description="other signals than clicks that have a verdict, by name")
    guardrails: dict[str, dict[str, ShareAnswer]] = Field(
        description="lists_without_a_click and, where the experiment names them, reformulations; by arm"
    )
    sentence: str
    decided_at: float | None = Field(description="about when it will be decided at this rate; null where it cannot say")
    points: list[CoursePointAnswer] = Field(description="the course so far")
