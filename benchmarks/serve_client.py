"""A small HTTP client for load tests: keep-alive connections, one request at a time on each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final
from urllib.parse import urlsplit

import numpy as np

__all__ = ["Load", "load"]


@final
@dataclass(frozen=True, slots=True)
class Load:
    """Throughput and latency quantiles of a service under load.

    `client_seconds` is the CPU time of the client, which must not be the bottleneck.
    """

    n_requests: int
    seconds: float
    p50: float
    p99: float
    client_seconds: float

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.n_requests / self.seconds

    @property
    def client_fraction(self) -> float:
        """Fraction of one core that the client used."""
        return self.client_seconds / self.seconds


def load(
    address: str,
    path: str,
    headers: Mapping[str, str],
    body: Callable[[int], bytes],
    n_connections: int,
    seconds: float,
) -> Load:
    """Send requests on several connections for some seconds; responses must be 2xx."""
    return asyncio.run(_load(address, path, headers, body, n_connections, seconds))


async def _load(
    address: str,
    path: str,
    headers: Mapping[str, str],
    body: Callable[[int], bytes],
    n_connections: int,
    seconds: float,
) -> Load:
    """Send requests on all connections until the time is over."""
    where = urlsplit(address)
    assert where.hostname is not None
    head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    took: list[float] = []
    end = time.perf_counter() + seconds
    numbers = iter(range(1 << 60))

    async def send_in_sequence() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        while time.perf_counter() < end:
            content = body(next(numbers))
            start = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            await _read_response(reader)
            took.append(time.perf_counter() - start)
        writer.close()

    start, start_client = time.perf_counter(), time.process_time()
    await asyncio.gather(*(send_in_sequence() for _ in range(n_connections)))
    whole, client = time.perf_counter() - start, time.process_time() - start_client
    p50, p99 = np.quantile(took, [0.5, 0.99])
    return Load(len(took), whole, float(p50), float(p99), client)


async def _read_response(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a response, which must be 2xx."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    [length] = [line for line in head.split("\r\n") if line.startswith("content-length:")]
    content = await reader.readexactly(int(length.partition(":")[2]))
    if not head.startswith("http/1.1 20"):
        raise RuntimeError(f"{head} {content[:500]!r}")
    return content
