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
        None, description="whether the ranker that is asked learns from these lists; by default where it rightly can"
    )
    ranker: Text | None = Field(None, description="whose requests take part; by default the first arm that names one")


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
    signals: dict[str, SignalAnswer] = Field(description="other signals than clicks, by name")
    guardrails: dict[str, dict[str, float]] = Field(description="shares of lists without a click, by arm")
    sentence: str
    decided_at: float | None = Field(description="about when it will be decided at this rate; null where it cannot say")
    points: list[CoursePointAnswer] = Field(description="the course so far")


class ExperimentsAnswer(Answer):
    """All experiments, newest first."""

    experiments: list[ExperimentAnswer]
