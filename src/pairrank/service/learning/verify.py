"""Is a store whole? Pages, sequence numbers, checksums, digests."""

from __future__ import annotations

from pairrank.errors import FileFormatError, InputError
from pairrank.service.learning.model import load_version
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import RankerRow
from pairrank.types import Impression

BATCH = 500


def verify(store: SqlStore) -> list[str]:
    """One line for every fault found; an empty list when the store is whole."""
    faults = store.database.check()
    with store.database.snapshot():  # one moment, also while the service runs
        for row in store.rankers():
            faults += [f"{row.name}: {fault}" for fault in _log_faults(store, row) + _version_faults(store, row)]
    return faults


def _log_faults(store: SqlStore, row: RankerRow) -> list[str]:
    faults: list[str] = []
    seq = row.base
    while entries := store.log(row.id, seq, BATCH):
        for entry in entries:
            seq += 1
            if entry.seq != seq:
                return [*faults, f"the log has a gap: entry {seq} is missing"]
            if entry.kind in ("rollback", "launch"):
                continue
            try:
                impression = Impression.from_bytes(entry.body or b"")
                given = len(entry.clicks or b"")
                if given != len(impression):
                    faults.append(f"entry {seq} has clicks for {given} of {len(impression)} positions")
            except (FileFormatError, InputError) as problem:
                faults.append(f"entry {seq}: {problem}")
    if seq != row.log_seq:
        faults.append(f"the log ends at entry {seq}; expected {row.log_seq}")
    if row.applied > row.log_seq:
        faults.append(f"the model has seen entry {row.applied} of {row.log_seq}")
    return faults


def _version_faults(store: SqlStore, row: RankerRow) -> list[str]:
    faults = []
    digests = {item.version: item.digest for item in store.versions(row.id)}
    for version in {row.base, row.version, *([] if row.pinned is None else [row.pinned])} - digests.keys():
        faults.append(f"version {version} is missing")
    for version in digests:
        try:
            model = load_version(store, row, version)
        except FileFormatError as problem:
            faults.append(str(problem))
            continue
        # An entry that teaches nothing publishes a version once more, with today's digest if an older program made it.
        if version == row.version and row.digest not in (digests[version], model.ranker.digest()):
            faults.append(f"version {version} is not the one that was published")
    return faults
