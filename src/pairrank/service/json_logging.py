"""Structured logs: one JSON object a line, with the request's id where there is one."""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

MAX_WAITING = 10_000
DRAIN_SECONDS = 1.0

request_id: ContextVar[str] = ContextVar("request_id", default="-")


class JsonLines(logging.Formatter):
    """One JSON object a line, with the request's id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record; what was passed as ``extra={"fields": {...}}`` is on it too."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if request_id.get() != "-":
            line["request_id"] = request_id.get()
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class ErrorStream:
    """Standard error, written by a thread: where it is a pipe that nobody empties, nothing but that thread waits.

    What comes while ``MAX_WAITING`` lines wait is dropped.
    """

    def __init__(self) -> None:
        self._lines: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
        threading.Thread(target=self._run, daemon=True).start()
        atexit.register(self._drain)

    def write(self, line: str) -> None:
        with suppress(queue.Full):
            self._lines.put_nowait(line.encode(errors="replace"))

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError):  # nobody reads any more, or the disk is full
                while line:  # past Python's buffer, which a thread that waits would hold at exit
                    line = line[os.write(2, line) :]
            self._lines.task_done()

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)


def configure_logging(level: str) -> None:
    """Send this package's and uvicorn's logs to standard error as JSON lines."""
    handler = logging.StreamHandler(ErrorStream())
    handler.setFormatter(JsonLines())
    for name in ("pairrank", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("uvicorn").setLevel("WARNING")
