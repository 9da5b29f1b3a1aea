"""A client of HTTP/1.1 that can go away at any moment."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


@dataclass(slots=True)
class Reply:
    """What came: all of it, or what there was when the connection ended."""

    status: int
    headers: dict[str, str]
    lines: list[dict[str, object]] = field(default_factory=list)
    whole: bool = False
    text: str = ""


class Client:
    """One connection, for one request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0) -> Client:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def head(self) -> Reply:
        """Read the first lines of the answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:-2])
        return Reply(int(head[0].split()[1]), headers)

    async def part(self, reply: Reply) -> bool:
        """Read a part of a chunked answer; False: that was all."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        reply.lines += [json.loads(line) for line in data.splitlines() if line]
        reply.whole = not size
        return size > 0

    async def reply(self) -> Reply:
        """Read an answer to its end."""
        reply = await self.head()
        if reply.headers.get("transfer-encoding") != "chunked":
            length = int(reply.headers["content-length"])
            reply.text = (await self.reader.readexactly(length)).decode()
            reply.whole = True
            return reply
        with suppress(asyncio.IncompleteReadError):  # ``whole`` says so
            while await self.part(reply):
                pass
        return reply

    def reset(self) -> None:
        """Go away without a word."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):  # it was closed from the other side
            await self.writer.wait_closed()


async def fetch(port: int, path: str, body: bytes | None = None) -> Reply:
    """Ask, and read the whole answer."""
    client = await Client.connect(port)
    try:
        client.send("GET" if body is None else "POST", path, body or b"")
        return await client.reply()
    finally:
        await client.close()
