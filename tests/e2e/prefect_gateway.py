"""Prefect's own API for a gateway that wants a header: `uvicorn --factory prefect_gateway:create`."""

from typing import Any

from prefect.server.api.server import create_app

HEADER = (b"x-gate", b"open")


def create() -> Any:
    app = create_app()

    async def gateway(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or HEADER in scope["headers"]:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"closed"})
        else:
            await send({"type": "websocket.close"})

    return gateway
