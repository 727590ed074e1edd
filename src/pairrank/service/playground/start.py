"""The whole service in one process, for `pairrank play`: ranking, learning and both pages, on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from pairrank.errors import MissingExtraError
from pairrank.service.playground.index import Index
from pairrank.service.settings import Settings


def serve(store: Path, index: Index, place: socket.socket, ready: Callable[[], object]) -> None:
    """Serve a search over ``index`` until told to stop; ``ready`` is called, in a thread, when it answers."""
    try:
        import uvicorn

        from pairrank.service.app import make_app
        from pairrank.service.http.protocol import HttpProtocol
        from pairrank.service.playground.routes import routes
    except ModuleNotFoundError as problem:
        raise MissingExtraError(problem.name or "fastapi", "serve") from None

    port = place.getsockname()[1]
    settings = Settings(store=f"sqlite:///{store}", port=port, log_level="warning")
    app = make_app(store, settings, learner=True, routes=(partial(routes, index=index),))
    app.state.nav.append(("play", "Playground"))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            threading.Thread(target=ready, daemon=True).start()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.worker.stopping = True  # ends the streams, which otherwise never do
            if not self.should_exit:  # a second Ctrl-C would cut the end short, in tracebacks
                super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app, http=HttpProtocol, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=3
    )
    Server(config).run(sockets=[place])
