"""Every error that this package raises on purpose.

A message says what came, what was expected and what to do. Input errors are also ``ValueError``, so that code which
knows nothing of PairRank can catch them.
"""

from __future__ import annotations

from typing import Any


class PairRankError(Exception):
    """The root of all errors that the package raises on purpose."""


class InputError(PairRankError, ValueError):
    """Something passed in was wrong; nothing was changed."""


class FeatureError(InputError):
    """Features of the wrong shape, type, width or size, or not finite."""


class CutoffError(InputError):
    """``k`` (or ``locked``) is not a number of positions."""


class ClickError(InputError):
    """Clicks that are not one yes or no per shown position."""


class ForeignImpressionError(InputError):
    """An impression that another ranker made, or one of another width."""


class LearningError(InputError):
    """An impression that the arithmetic of a ranker cannot take in; the ranker stays as it was."""


class ExpiredImpressionError(InputError):
    """An impression so old that the ranker no longer knows whether it was learned."""


class GradeError(InputError):
    """A relevance grade that the users' table has no row for."""


class OptionError(InputError):
    """An option with an impossible value."""


class NoWeightsError(InputError, AttributeError):
    """``weights`` of a model that has none; ``getattr(ranker, "weights", None)`` answers None."""


class UnknownNameError(InputError):
    """A name (of a ranker, a user, a data set, a metric) that nothing answers to."""


class DataError(InputError):
    """A data file that cannot be read as what it claims to be; names the file and the line."""


class ExportError(InputError):
    """A model that a format cannot hold, or a file that is not a model in that format."""


class LogError(DataError):
    """A click log with bad rows where none were to be passed over, or in which nothing is left without them.

    ``problems`` are the rows, `pairrank.logs.Problems`; the message says which and why.
    """

    def __init__(self, told: str, problems: Any) -> None:
        super().__init__(told, problems)
        self.problems = problems

    def __str__(self) -> str:
        return f"{self.args[0]}:\n{self.problems.text()}" if self.problems else str(self.args[0])


class FileFormatError(PairRankError):
    """A file that is truncated, damaged or not one of ours."""


class NewerFormatError(FileFormatError):
    """A file or database written by a newer version of PairRank."""

    @classmethod
    def check(cls, source: object, version: int, newest: int) -> None:
        """Refuse what has a later ``version`` of its format than the ``newest`` known here."""
        if version > newest:
            raise cls(f"{source} has version {version}; this PairRank reads up to {newest}: upgrade pairrank")


class StorageError(PairRankError):
    """A disk or database that cannot be written or read right now; what was there is unharmed."""


class MissingExtraError(PairRankError, ImportError):
    """An optional dependency is not installed; the message is the line that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: pip install 'pairrank[{extra}]'")
        self.package = package
        self.extra = extra
