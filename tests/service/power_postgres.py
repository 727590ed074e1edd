"""Cut the power under PostgreSQL, over and over, while the service works, and count what is lost.

Its data lies on an ext4 image that is mounted through a loop device. The kernel is told to write nothing there but what
is flushed. When the power goes, the server's processes stop, and the image is copied as it is: with what was flushed
and without the rest. The next server starts from the copy. What must hold is what `crash.py` says. Needs root.

By hand: ``python tests/service/power_postgres.py --cuts 200``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import crash
from cluster import Postgres, free_port, postgres_bin

WRITE_BACK = Path("/proc/sys/vm/dirty_writeback_centisecs")
SIZE = 512 << 20


@dataclass
class Powered(Postgres):
    """A PostgreSQL on an image of its own, at ``folder``; `kill` takes away the power."""

    image: Path = field(kw_only=True)
    cuts: int = 0

    def mount(self) -> None:
        # Its journal is written when somebody flushes, and not by the clock.
        subprocess.run(["mount", "-o", "loop,commit=3600", self.image, self.folder], check=True)

    def unmount(self) -> None:
        while subprocess.run(["umount", self.folder], capture_output=True).returncode:
            time.sleep(0.05)  # the last of the killed ones is dying

    def kill(self) -> None:
        first = self._server.pid
        os.kill(first, signal.SIGSTOP)  # it starts no others any more
        wait_until_stopped(first)
        for process in map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
                wait_until_stopped(process)
        copy = self.image.with_suffix(".cut")
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        super().kill()
        self.unmount()
        os.replace(copy, self.image)
        self.mount()
        self.cuts += 1


def wait_until_stopped(process: int) -> None:
    """A flush that has begun ends first: nobody can have been told of it before."""
    with suppress(FileNotFoundError):
        while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
            time.sleep(0.001)


@contextmanager
def running(binaries: Path) -> Iterator[Powered]:
    with tempfile.TemporaryDirectory(prefix="pairrank-power-") as name:
        folder = Path(name) / "mounted"
        folder.mkdir()
        server = Powered(binaries, folder, free_port(), True, image=Path(name) / "image")
        with open(server.image, "wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", server.image], check=True)
        before = WRITE_BACK.read_text()
        server.mount()
        try:
            shutil.chown(folder, "postgres")
            os.chmod(name, 0o755)
            server.make()
            os.sync()
            WRITE_BACK.write_text("0")
            server.start()
            yield server
        finally:
            WRITE_BACK.write_text(before)
            server.kill()
            server.unmount()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    binaries = postgres_bin()
    if os.geteuid() or binaries is None:
        parser.error("needs root, for an image of its own, and the binaries of a PostgreSQL server")
    crash.LIVES.update(server=30.0, learner=30.0, postgres=2.0)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, running(binaries) as server:
        outcome = crash.run(server.new_database(), args.cuts, args.seed, Path(name), server)
        print(f"{server.cuts} cuts, {outcome} in {time.monotonic() - started:.0f} s")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
