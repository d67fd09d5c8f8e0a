"""End of connections whose request bodies were not read."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idleband.service.request_body import BODY_READ


class ConnectionClose:
    """Close the connection after a response that was sent before the request body was read to its end.

    Otherwise a client could go on to send a body without end that the server would have to discard.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and BODY_READ not in scope:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_and_close)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
