"""The child processes of `pairrank serve`: rank workers and the learner. ``python -m pairrank.service.process ROLE``.

A child reads its settings from standard input, one JSON line, and then watches that pipe: when it closes, the
supervisor has died, however it died, and the child ends at once, so that nothing is left behind.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from types import FrameType

from pairrank.errors import StorageError
from pairrank.kernel import jit
from pairrank.service import telemetry
from pairrank.service.json_logging import configure_logging
from pairrank.service.learning.learner import Learner
from pairrank.service.settings import Settings
from pairrank.service.store import open_store
from pairrank.service.store.log import SqlStore

KEEP_ALIVE_SECONDS = 30
BACKLOG = 2048


def main(role: str, handle: int) -> None:
    """Be a worker on the listening socket ``handle``, or the learner."""
    # Past Python's buffer, which the watching thread would lock at exit.
    line = open(0, "rb", buffering=0, closefd=False).readline()  # noqa: SIM115
    if not line.endswith(b"\n"):
        os._exit(1)
    settings = Settings(**json.loads(line))
    threading.Thread(target=_watch, daemon=True).start()
    if role == "worker":
        _work(settings, handle)
    else:
        _learn(settings)


def _watch() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def _work(settings: Settings, handle: int) -> None:
    import uvicorn

    from pairrank.service.app import make_app
    from pairrank.service.http.protocol import HttpProtocol
    from pairrank.service.worker.admission import Door

    configure_logging(settings.log_level)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a connection is a file; many shells allow 1024 unless asked
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # The writer needs the interpreter only for moments; it must not wait five milliseconds for each.
    sys.setswitchinterval(0.0005)
    telemetry.start("worker")
    app = make_app(settings.store, settings)
    jit.load()
    # What is here now stays: a collection that walks through all of it would hold up requests for many milliseconds.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 5, 5)  # nor through what thousands of connections hold, as often

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.worker.stopping = True  # ends the streams, which otherwise never do
            super().handle_exit(sig, frame)

    worker = app.state.worker

    class Protocol(HttpProtocol):
        door = Door(
            settings.max_ranking,
            settings.max_writing,
            settings.key_rate,
            refused=worker.metrics.answered,
            keys=lambda: () if worker.away else worker.models.keys,
        )

    config = uvicorn.Config(
        app,
        http=Protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who the client is
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain_seconds),
        backlog=BACKLOG,
    )
    Server(config).run(sockets=[socket.socket(fileno=handle)])


def _learn(settings: Settings) -> None:
    configure_logging(settings.log_level)
    telemetry.start("learner")
    jit.load()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # Ranking comes first when there are fewer cores than processes.
    os.nice(5)
    store = _connect(settings.store, stop)
    if store is not None:
        Learner(store).run(stop)
        store.close()
    telemetry.stop()


def _connect(url: str, stop: threading.Event) -> SqlStore | None:
    told = ""
    while not stop.is_set():
        try:
            return open_store(url, create=False)  # the supervisor has made it; who deleted it wants no empty one
        except StorageError as problem:
            if str(problem) != told:
                told = str(problem)
                logging.getLogger("pairrank.process").error("%s", told)
            time.sleep(0.5)
    return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
