"""The floor under `pairrank bench serve`: empty FastAPI endpoints. ``python -m pairrank.bench.http_baseline PORT``.

As FastAPI's tutorial begins: a pydantic model for the JSON body, a plain dict for the answer. There is no pydantic for
Arrow, which is read as pyarrow's manual says. Each returns an answer like rank's, and does nothing else.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel

ARROW_PATH = "/v1/rankers/any/arrow"


class BodyDocument(BaseModel):
    """One candidate."""

    id: str
    features: list[float]


class RankBody(BaseModel):
    """A rank request."""

    query_id: str | None = None
    documents: list[BodyDocument]
    k: int | None = None


_RANKING = [{"id": f"document-{n}", "position": n + 1, "score": 0.123456789 * n, "block": n} for n in range(10)]
_REPLY = {"impression_id": "1-0123456789abcdef", "model_version": 1, "explored": True, "ranking": _RANKING}


def empty_app() -> FastAPI:
    """An application with the two empty endpoints: JSON at the address of rank, Arrow at `ARROW_PATH`."""
    app = FastAPI()

    @app.post("/v1/rankers/{name}/arrow", response_model=None)
    async def from_arrow(name: str, request: Request) -> Any:
        pa.ipc.open_stream(await request.body()).read_all()
        return _REPLY

    @app.post("/v1/rankers/{name}/rank", response_model=None)
    async def from_json(name: str, query: RankBody) -> Any:
        return _REPLY

    return app


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


if __name__ == "__main__":
    _Server(uvicorn.Config(empty_app(), port=int(sys.argv[1]), log_level="error", access_log=False)).run()
