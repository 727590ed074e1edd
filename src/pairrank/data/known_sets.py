"""What a data set holds, in figures, and what is published about the well-known ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pairrank.data.dataset import Dataset


@dataclass(frozen=True)
class Counts:
    """Counts of a data set or a split. ``grades`` counts documents by grade, from 0."""

    queries: int
    documents: int
    features: int
    grades: tuple[int, ...]
    shortest: int
    longest: int
    without_relevant: int

    @property
    def documents_per_query(self) -> float:
        return self.documents / self.queries

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"grades": list(self.grades), "documents_per_query": self.documents_per_query}


@dataclass(frozen=True)
class Published:
    """What is published about a whole data set; ``grades`` is empty where only their number is."""

    name: str
    queries: int
    documents: int
    features: int
    n_grades: int
    grades: tuple[int, ...] = ()


# LETOR 4.0 (Qin and Liu 2013); Microsoft's page on MSLR; Chapelle and Chang 2011 for Yahoo; Istella's page on its sets.
KNOWN = (
    Published("MQ2007", 1_692, 69_623, 46, 3),
    Published("MQ2008", 784, 15_211, 46, 3, (12_279, 2_001, 931)),
    Published("MSLR-WEB10K", 10_000, 1_200_192, 136, 5, (624_263, 386_280, 159_451, 21_317, 8_881)),
    Published("MSLR-WEB30K", 31_531, 3_771_125, 136, 5, (1_940_952, 1_225_770, 504_958, 69_010, 30_435)),
    Published("Yahoo! set 1", 29_921, 709_877, 699, 5),  # 700 features are of both sets; number 700 is in the second
    Published("Yahoo! set 2", 6_330, 172_870, 700, 5),
    Published("Istella", 33_018, 10_454_629, 220, 5),
    Published("Istella-S", 33_018, 3_408_630, 220, 5),
)


def summary(dataset: Dataset) -> Counts:
    sizes = np.diff(dataset.offsets)
    relevant = np.add.reduceat(dataset.grades > 0, dataset.offsets[:-1])
    counts = np.bincount(dataset.grades, minlength=dataset.n_grades)
    return Counts(
        queries=dataset.n_queries,
        documents=dataset.n_docs,
        features=dataset.n_features,
        grades=tuple(counts.tolist()),
        shortest=int(sizes.min()),
        longest=int(sizes.max()),
        without_relevant=int((relevant == 0).sum()),
    )


def total(parts: Sequence[Counts]) -> Counts:
    width = max(len(part.grades) for part in parts)
    padded = [part.grades + (0,) * (width - len(part.grades)) for part in parts]
    return Counts(
        queries=sum(part.queries for part in parts),
        documents=sum(part.documents for part in parts),
        features=max(part.features for part in parts),
        grades=tuple(map(sum, zip(*padded, strict=True))),
        shortest=min(part.shortest for part in parts),
        longest=max(part.longest for part in parts),
        without_relevant=sum(part.without_relevant for part in parts),
    )


def closest(found: Counts) -> Published | None:
    """The known set of the same width and grades that is nearest in size; None if there is no such set."""
    alike = [known for known in KNOWN if (known.features, known.n_grades) == (found.features, len(found.grades))]
    return min(alike, key=lambda known: abs(math.log(found.documents / known.documents)), default=None)


def differences(found: Counts, known: Published) -> dict[str, tuple[Any, Any]]:
    """What is not as published, as (found, published); empty for the complete set."""
    names = ["queries", "documents", "features", *(["grades"] if known.grades else [])]
    pairs = {name: (getattr(found, name), getattr(known, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
