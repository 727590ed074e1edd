"""The floor under `pairrank bench serve`: an empty FastAPI endpoint. ``python -m pairrank.service.floor PORT``."""

from __future__ import annotations

import socket
import sys

import orjson
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request, Response

_RANKING = [{"id": f"document-{n}", "position": n + 1, "score": 0.123456789 * n, "block": n} for n in range(10)]
_REPLY = {"impression_id": "1-0123456789abcdef", "model_version": 1, "explored": True, "ranking": _RANKING}

app = FastAPI()


@app.post("/v1/rankers/{name}/rank")
async def rank(name: str, request: Request) -> Response:
    """Parse the body, return an answer like the service's; nothing else."""
    body = await request.body()
    if request.headers["content-type"] == "application/json":
        orjson.loads(body)
    else:
        pa.ipc.open_stream(body).read_all()
    return Response(orjson.dumps(_REPLY), media_type="application/json")


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


if __name__ == "__main__":
    _Server(uvicorn.Config(app, port=int(sys.argv[1]), log_level="error", access_log=False)).run()
