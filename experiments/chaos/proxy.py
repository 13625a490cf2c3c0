"""What stands before a server so that it can be killed while the server keeps what it holds: whoever is connected is
cut off, and nobody reaches it until there is another one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def serve(port: int, target: int) -> None:
    """Pass on what comes to one port to another, and what is answered; both of this machine."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_pass_on(reader, requests), _pass_on(answers, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
