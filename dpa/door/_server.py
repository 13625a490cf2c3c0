"""The process of a job's door: it serves HTTP, and asks the driver for all that it serves, over a socket that it
inherits. It holds no state that is lost with it, so that another process can take its place. It ends with its driver.

Only aiohttp and the standard library are imported here: the process starts in a third of a second."""

import asyncio
import hmac
import json
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import resources
from itertools import count
from typing import Any, TypeAlias

from aiohttp import web

from dpa._util.words import is_loopback
from dpa.door._changes import applied

VIEW_SECONDS = 1.0  # views are at least so far apart

_HEARTBEAT_SECONDS = 10.0  # a stream of events is silent for no longer
_READ_SECONDS = 30.0  # how long a client may take to read an event before its stream ends
_END_SECONDS = 1.0  # how long open requests may take when the job has ended

_LONGEST_LINE = 2**28
_LONGEST_REQUEST = 2**16

_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
"""The page's files, which are the same for all jobs: who has no token may read them."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Driver:
    """Asks the driver. Each question and each answer is a line of JSON: its number, and what it is.

    Attributes:
        ended: is set when the job has ended, or its driver.
        last: the patch that makes the last view; None: the driver was killed.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ended = asyncio.Event()
        self.last: dict[str, Any] | None = None
        self._reader, self._writer = reader, writer
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, what: str, *given: Any) -> Any:
        """The answer to a question. HTTP 503 if the job has ended."""
        if self.ended.is_set():
            raise web.HTTPServiceUnavailable(text="the job has ended")
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps([number, what, *given]).encode() + b"\n")
        return await answer

    async def listen(self) -> None:
        """Take answers until the driver has no more."""
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                number, found = json.loads(line)
                if number == 0:
                    self.last = found
                elif not (answer := self._open.pop(number)).done():
                    answer.set_result(found)
        self.ended.set()
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(web.HTTPServiceUnavailable(text="the job has ended"))


class Views:
    """The newest view, and the patch that made it of the one before.

    Attributes:
        version: of the newest view, from 0.
    """

    def __init__(self, driver: Driver) -> None:
        self.version = 0
        self.whole: dict[str, Any] = {}
        self.patch: dict[str, Any] = {}
        self._driver = driver
        self._due = 0.0
        self._turn = asyncio.Lock()

    async def refresh(self) -> float:
        """Have the driver's newest view, unless it was asked a moment ago. Returns for how many seconds it is not asked
        again."""
        now = asyncio.get_running_loop().time
        async with self._turn:
            if self._driver.ended.is_set():
                self._take(self._driver.last or {})
                self._driver.last = None
            elif now() >= self._due:
                self._due = now() + VIEW_SECONDS
                self._take(await self._driver.ask("view"))
        return max(self._due - now(), 0.0)

    def _take(self, patch: dict[str, Any]) -> None:
        if patch:
            self.version, self.patch, self.whole = self.version + 1, patch, applied(self.whole, patch)


class Server:
    """The application."""

    def __init__(self, driver: Driver, token: str) -> None:
        self._driver, self._views = driver, Views(driver)
        self._token = token

    def application(self) -> web.Application:
        made = web.Application(middlewares=[self._guarded], client_max_size=_LONGEST_REQUEST)
        made.add_routes([web.get(f"/{name}", self._file) for name in ("", *_TYPES)])
        made.add_routes([web.get("/view", self._view), web.get("/events", self._events)])
        made.add_routes([web.get("/metrics", self._metrics), web.post("/control", self._control)])
        made.add_routes([web.get(f"/{name}", self._asked) for name in ("status", "snapshot")])
        made.on_response_prepare.append(_with_headers)
        return made

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not request.secure and not _leads_here(request):
            raise web.HTTPMisdirectedRequest(text="this is not the host of that name")
        if request.path.lstrip("/") not in ("", *_TYPES):
            # Only in this header: browsers send cookies to all ports of a host, and keep and log addresses.
            kind, _, given = request.headers.get("Authorization", "").partition(" ")
            if kind != "Bearer" or not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
                raise web.HTTPUnauthorized(text="`dpa control ui JOB` shows the address of this page, with its token\n")
        return await handler(request)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.path.lstrip("/") or "page.html"
        text = resources.files("dpa.door").joinpath("page", name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=_TYPES[name])

    async def _view(self, request: web.Request) -> web.StreamResponse:
        await self._views.refresh()
        return web.json_response(self._views.whole)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """The whole view, then patches. A client that reads too slowly gets the newest whole view next."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        views, seen, quiet, wait = self._views, -1, 0.0, VIEW_SECONDS
        while True:
            ended = self._driver.ended.is_set()
            with suppress(web.HTTPServiceUnavailable):  # it has just ended: the next turn sends the last view
                wait = await views.refresh()
            if views.version != seen:
                is_next, seen, quiet = views.version == seen + 1, views.version, 0.0
                await _send(response, "patch", views.patch) if is_next else await _send(response, "view", views.whole)
            elif quiet >= _HEARTBEAT_SECONDS:
                quiet = 0.0
                await asyncio.wait_for(response.write(b":\n\n"), _READ_SECONDS)
            if ended:
                await _send(response, "end", {})
                return response
            quiet += wait
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._driver.ended.wait(), wait)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        from dpa.door.metrics import exposition

        await self._views.refresh()
        body, content_type = exposition(self._views.whole, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _asked(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._driver.ask(request.path.lstrip("/")))

    async def _control(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = await request.json()
        except (ValueError, LookupError, RecursionError):
            raise web.HTTPBadRequest(text="the request is no JSON\n") from None
        return web.json_response(await self._driver.ask("control", asked))


async def _send(response: web.StreamResponse, event: str, data: dict[str, Any]) -> None:
    await asyncio.wait_for(response.write(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()), _READ_SECONDS)


async def _with_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _leads_here(request: web.Request) -> bool:
    """Whether a request to the loopback names it. A page of another host, whose name leads here, is refused."""
    try:
        return is_loopback(request.url.host or "")
    except ValueError:  # it is no name of a host
        return False


async def _serve(driver: socket.socket, listeners: list[socket.socket]) -> None:
    asked = Driver(*await asyncio.open_connection(sock=driver, limit=_LONGEST_LINE))
    listening = asyncio.create_task(asked.listen())
    known = await asked.ask("hello")
    runner = web.AppRunner(Server(asked, known["token"]).application(), access_log=None, shutdown_timeout=_END_SECONDS)
    await runner.setup()
    for listener, pair in zip(listeners, (None, known["certificate"]), strict=False):
        await web.SockSite(runner, listener, ssl_context=None if pair is None else _tls(*pair)).start()
    await listening
    await runner.cleanup()


def _tls(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def main() -> None:
    """Serve on the listening sockets whose numbers are the arguments, after that of the driver's socket."""
    driver, *listeners = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(driver, listeners))
