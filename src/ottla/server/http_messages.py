"""HTTP/1.1 as far as a metrics page needs it: heads of requests in, heads and bodies of answers out."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final, NamedTuple

from ottla.model.errors import OttlaError

HEAD_BYTES_MAX: Final = 8 * 1024
IDLE_SECONDS_MAX: Final = 120.0
"""Prometheus keeps its connection from one scrape to the next."""
REQUEST_SECONDS_MAX: Final = 10.0
LINGER_SECONDS_MAX: Final = 1.0
LINGER_BYTES_MAX: Final = 1 << 20
BLOCK_BYTES: Final = 64 * 1024
TEXT: Final = "text/plain; charset=utf-8"
OK: Final = "200 OK"
BAD_REQUEST: Final = "400 Bad Request"
TOO_LARGE: Final = "431 Request Header Fields Too Large"
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0")
_GZIP_LEVEL: Final = 1
_GZIP_WINDOW_BITS: Final = 31


class BadRequestError(OttlaError):
    """What arrived is no request; the text is the status that says so."""


class Request(NamedTuple):
    """What matters of a request."""

    method: str
    path: str
    keeps_alive: bool
    takes_chunks: bool
    takes_gzip: bool


UNREADABLE: Final = Request("GET", "", keeps_alive=False, takes_chunks=False, takes_gzip=False)
"""Stands for a request that could not be read."""


async def receive(reader: asyncio.StreamReader) -> Request:
    """The next request; EOFError when the client has gone, TimeoutError when it takes too long."""
    async with asyncio.timeout(IDLE_SECONDS_MAX):
        first = await reader.readexactly(1)
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            return parse_head(first + await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise BadRequestError(TOO_LARGE) from None


def parse_head(head: bytes) -> Request:
    """A request line and headers, with the empty line that ends them. After a request with a body comes no other."""
    line, *header_lines = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[0] or not words[1] or words[2] not in _VERSIONS:
        raise BadRequestError(BAD_REQUEST)
    headers: dict[str, str] = {}
    for header in filter(None, header_lines):
        name, separator, value = header.partition(":")
        if not separator or not name or name != name.strip():
            raise BadRequestError(BAD_REQUEST)
        headers[name.lower()] = value.strip().lower()
    is_new = words[2] == "HTTP/1.1"
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return Request(
        method=words[0],
        path=_path(words[1]),
        keeps_alive=is_new and not has_body and "close" not in headers.get("connection", ""),
        takes_chunks=is_new,
        takes_gzip=_takes_gzip(headers.get("accept-encoding", "")),
    )


def _path(target: str) -> str:
    """The path of what was asked for, which may be spelt with its host."""
    if target.lower().startswith(("http://", "https://")):
        target = "/" + target.partition("://")[2].partition("/")[2]
    return target.partition("?")[0]


def _takes_gzip(accepted: str) -> bool:
    for coding in accepted.split(","):
        name, _, quality = coding.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def send_short(request: Request, writer: asyncio.StreamWriter, status: str, body: str, *headers: str) -> None:
    """A whole answer in one go."""
    data = body.encode()
    head = _head(request, status, f"Content-Type: {TEXT}", f"Content-Length: {len(data)}", *headers)
    writer.write(head if request.method == "HEAD" else head + data)
    await writer.drain()


class LongAnswer:
    """An answer whose length is known only when it ends: in chunks, or until the connection closes."""

    __slots__ = ("_compressor", "_in_chunks", "_pieces", "_size", "_writer")

    def __init__(self, request: Request, writer: asyncio.StreamWriter, content_type: str) -> None:
        self._writer = writer
        self._in_chunks = request.takes_chunks
        self._compressor = (
            zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS) if request.takes_gzip else None
        )
        self._pieces: list[str] = []
        self._size = 0
        headers = [f"Content-Type: {content_type}", "Vary: Accept-Encoding"]
        headers += ["Content-Encoding: gzip"] if request.takes_gzip else []
        headers += ["Transfer-Encoding: chunked"] if request.takes_chunks else []
        writer.write(_head(request, OK, *headers))

    def add(self, text: str) -> bool:
        """Send it with what comes next, once that makes a block; True if one was sent, and is to be waited for."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size < BLOCK_BYTES:
            return False
        self._write_block(self._take())
        return True

    def finish(self) -> None:
        self._write_block(self._take())
        if self._compressor is not None:
            self._write_block(self._compressor.flush())
        if self._in_chunks:
            self._writer.write(b"0\r\n\r\n")

    def _take(self) -> bytes:
        block = "".join(self._pieces).encode()
        self._pieces.clear()
        self._size = 0
        return block if self._compressor is None else self._compressor.compress(block)

    def _write_block(self, block: bytes) -> None:
        # An empty chunk would mean the end.
        if block:
            self._writer.write(b"%x\r\n%b\r\n" % (len(block), block) if self._in_chunks else block)


def _head(request: Request, status: str, *headers: str) -> bytes:
    connection = () if request.keeps_alive else ("Connection: close",)
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "Cache-Control: no-store", *connection, "", ""]).encode()


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the last answer arrive: a close with input that nobody has read would reset the connection and lose it."""
    writer.write_eof()
    left = LINGER_BYTES_MAX
    async with asyncio.timeout(LINGER_SECONDS_MAX):
        while left > 0 and (data := await reader.read(BLOCK_BYTES)):
            left -= len(data)
