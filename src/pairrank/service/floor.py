"""The floors under `pairrank bench serve`: empty FastAPI endpoints. ``python -m pairrank.service.floor KIND PORT``.

Each parses the body that rank gets and returns an answer like rank's, and does nothing else:

plain : as FastAPI's tutorial begins: a pydantic model for the JSON body, a plain dict for the answer.
models : the answer is declared as a pydantic model too, which FastAPI then writes faster.
tuned : by hand, around FastAPI: orjson reads and writes.

There is no pydantic for Arrow: all three read it as pyarrow's manual says.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import orjson
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

KINDS = ("plain", "models", "tuned")
ARROW_PATH = "/v1/rankers/any/arrow"


class Document(BaseModel):
    """One candidate."""

    id: str
    features: list[float]


class Query(BaseModel):
    """A rank request."""

    query_id: str | None = None
    documents: list[Document]
    k: int | None = None


class Place(BaseModel):
    """One position of a list."""

    id: str
    position: int
    score: float
    block: int


class Shown(BaseModel):
    """An answer to a rank request."""

    impression_id: str
    model_version: int
    explored: bool
    ranking: list[Place]


_RANKING = [{"id": f"document-{n}", "position": n + 1, "score": 0.123456789 * n, "block": n} for n in range(10)]
_REPLY = {"impression_id": "1-0123456789abcdef", "model_version": 1, "explored": True, "ranking": _RANKING}


def floor(kind: str) -> FastAPI:
    """An application with the two empty endpoints: JSON at the address of rank, Arrow at `ARROW_PATH`."""
    app = FastAPI()
    tuned = kind == "tuned"
    declared: Any = Shown if kind == "models" else None

    async def from_arrow(name: str, request: Request) -> Any:
        pa.ipc.open_stream(await request.body()).read_all()
        return Response(orjson.dumps(_REPLY), media_type="application/json") if tuned else _REPLY

    async def from_json(name: str, query: Query) -> Any:
        return _REPLY

    async def from_json_by_hand(name: str, request: Request) -> Any:
        orjson.loads(await request.body())
        return Response(orjson.dumps(_REPLY), media_type="application/json")

    app.post("/v1/rankers/{name}/arrow", response_model=declared)(from_arrow)
    app.post("/v1/rankers/{name}/rank", response_model=declared)(from_json_by_hand if tuned else from_json)
    return app


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


if __name__ == "__main__":
    _Server(uvicorn.Config(floor(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False)).run()
