"""One simulated run: spec in, records out."""

from pairrank.sim.folder import RunFolder, load_records
from pairrank.sim.records import Records, Summary
from pairrank.sim.run import simulate
from pairrank.sim.spec import Protocol, RunSpec

__all__ = ["Protocol", "Records", "RunFolder", "RunSpec", "Summary", "load_records", "simulate"]
