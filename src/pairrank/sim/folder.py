"""A run on disk: ``OUT/runs/<run_id>/`` with its spec, its records when it is done, and a checkpoint until then.

Every file is written whole or not at all. ``records.parquet`` is the last to be written: where it is, the run is done.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from pairrank import archive
from pairrank.checking import import_extra
from pairrank.errors import FileFormatError, NewerFormatError, StorageError
from pairrank.rankers import Ranker
from pairrank.sim.engine import Progress
from pairrank.sim.records import PHASES, Records
from pairrank.sim.spec import RunSpec

_KIND = "simulation"


class RunFolder:
    """The folder of one run below ``out``."""

    def __init__(self, out: str | os.PathLike[str], spec: RunSpec) -> None:
        self.spec = spec
        self.path = Path(out) / "runs" / spec.run_id

    def finished(self) -> Records | None:
        """The records of a run that is done; None where it is not, or where its file is damaged."""
        return load_records(self.path, self.spec)

    def open(self) -> None:
        import_extra("pyarrow", "lab")  # not only when all rounds are done
        archive.make_folder(self.path)
        archive.write_atomically(self.path / "spec.json", self.spec.to_json().encode() + b"\n")

    def clear(self) -> None:
        """Forget what was run: the records and the checkpoint go."""
        for name in ("records.parquet", "checkpoint.bin", "functions.json"):
            (self.path / name).unlink(missing_ok=True)

    def save(self, records: Records) -> None:
        """Write the records of a run that is done; its checkpoint goes."""
        archive.write_atomically(self.path / "timing.json", json.dumps(dict(records.seconds)).encode() + b"\n")
        if records.functions is not None:
            told = json.dumps(records.functions).encode() + b"\n"
            archive.write_atomically(self.path / "functions.json", told)
        archive.write_atomically(self.path / "records.parquet", records.to_parquet())
        (self.path / "checkpoint.bin").unlink(missing_ok=True)

    def save_checkpoint(self, ranker: Ranker, progress: Progress) -> None:
        values = {"spec": self.spec.to_json(), "done": progress.done, "seconds": progress.seconds}
        arrays = {f"column.{name}": column[: progress.done] for name, column in progress.columns.items()}
        arrays |= {f"profile.{t}": profile for t, profile in progress.profiles.items()}
        arrays["ranker"] = np.frombuffer(ranker.to_bytes(), dtype=np.uint8)
        archive.write_atomically(self.path / "checkpoint.bin", archive.sealed(archive.pack(_KIND, values, arrays)))

    def load_checkpoint(self, fresh: Ranker) -> tuple[Ranker, Progress] | None:
        """Ranker and progress of the last checkpoint; None where there is none that is whole."""
        path = self.path / "checkpoint.bin"
        if not path.exists():
            return None
        try:
            values, arrays = archive.unpack(archive.read_file(path), _KIND, source=str(path))
            if RunSpec.from_json(values["spec"]).run_id != self.spec.run_id:
                return None
            progress = Progress.start(self.spec.rounds)
            progress.done = int(values["done"])
            progress.seconds |= {name: float(values["seconds"][name]) for name in PHASES}
            for name, column in progress.columns.items():
                column[: progress.done] = arrays[f"column.{name}"]
            profiles = {key: a for key, a in arrays.items() if key.startswith("profile.")}
            progress.profiles |= {int(key.removeprefix("profile.")): a for key, a in profiles.items()}
            ranker = type(fresh).from_bytes(arrays["ranker"].tobytes(), source=str(path))
        except NewerFormatError:
            raise
        except (FileFormatError, KeyError, TypeError, ValueError):
            return None  # a run is a function of its spec: starting over costs time, never truth
        return (ranker, progress) if ranker.fingerprint == fresh.fingerprint else None


def load_records(path: str | os.PathLike[str], spec: RunSpec | None = None) -> Records | None:
    """The records in a run's folder; None where the run is not done (or not of ``spec``)."""
    folder = Path(path)
    if not (folder / "records.parquet").exists():
        return None
    try:
        seconds = json.loads(archive.read_file(folder / "timing.json"))
        file = folder / "records.parquet"
        records = Records.from_parquet(archive.read_file(file), seconds=seconds, source=str(file))
    except NewerFormatError:
        raise
    except (FileFormatError, StorageError, ValueError):
        return None
    if spec is None or records.spec == spec:
        return records
    # Of one id they differ in where the data lie alone, and these may have been moved.
    return replace(records, spec=spec) if records.spec.run_id == spec.run_id else None
