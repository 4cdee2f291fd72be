"""The terminal in a browser: textual-serve on the loopback interface, for who has the address with its token.

The token in the address works once; the browser that used it is known by a cookie from then on. Requests
under another host's name, or from another page, are refused.
"""

from __future__ import annotations

import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from hmac import compare_digest

from aiohttp import web
from textual_serve.server import Server

COOKIE = "gspc_top"
"""Name of the cookie by which a browser is known."""

HOST = "127.0.0.1"

STOP_S = 0.5
"""How long open pages may take to go when the server ends."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' ws://{authority}; worker-src 'self' blob:"
)

_FOCUS = """
<script>
  const waiting = setInterval(() => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (!keys || !document.body.classList.contains("-first-byte")) return;
    clearInterval(waiting);
    setTimeout(() => { keys.blur(); keys.focus(); }, 500);
  }, 50);
</script>
</body>"""
"""Gives the terminal the keys as soon as it shows something, so that nobody has to click into it first."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TopServer(Server):
    """Serves one command to one browser.

    Args:
        command: run anew for each page that is opened.
        port: on the loopback interface; 0 for any free one.

    Attributes:
        address: what to open in a browser, with the token.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, command: Sequence[str], port: int = 0) -> None:
        self._socket = socket.create_server((HOST, port))
        self._token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        port = self._socket.getsockname()[1]
        self._authority = f"{HOST}:{port}"
        super().__init__(f"exec {shlex.join(command)}", HOST, port, title="gspc-top")
        self.address: str = f"http://{self._authority}/?token={self._token}"

    async def make_app(self) -> web.Application:
        """Return the web application, which lets in only whom it knows."""
        app = await self._make_app()
        app.middlewares.append(self._guard)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: whoever started it prints the address."""

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        web.run_app(self.make_app(), sock=self._socket, print=None, access_log=None, shutdown_timeout=STOP_S)

    def close(self) -> None:
        """Give back the port."""
        self._socket.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who has the cookie; give it to the first who comes with the token."""
        if request.host not in (self._authority, f"localhost:{self.port}"):
            raise web.HTTPForbidden(text="this is not the host that was asked for")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in (
            f"http://{self._authority}",
            f"http://localhost:{self.port}",
        ):
            raise web.HTTPForbidden(text="another page may not connect")
        if compare_digest(request.cookies.get(COOKIE, "").encode(), self._session.encode()):
            response = await handler(request)
            if not response.prepared:
                response.headers["Content-Security-Policy"] = _POLICY.format(authority=self._authority)
                response.headers["Referrer-Policy"] = "no-referrer"
            if request.path == "/" and isinstance(response, web.Response) and response.text:
                response.text = response.text.replace("</body>", _FOCUS)
            return response
        given = request.query.get("token", "")
        if self._token is None or not compare_digest(given.encode(), self._token.encode()):
            used = "the token was used already" if self._token is None else "the token is missing or wrong"
            raise web.HTTPForbidden(text=f"{used}: start gspc-top --serve again, and open its address")
        self._token = None
        welcome = web.HTTPFound("/")  # so that the token is in no address bar and no history
        welcome.set_cookie(COOKIE, self._session, httponly=True, samesite="Strict", path="/")
        welcome.headers["Referrer-Policy"] = "no-referrer"
        raise welcome


def top_command(arguments: Sequence[str]) -> list[str]:
    """Return the command of a terminal with these arguments, for this interpreter."""
    return [sys.executable, "-m", "gspc_trio.cli.top", *arguments]
