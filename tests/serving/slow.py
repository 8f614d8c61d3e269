"""Clients that wear a server out, on the loopback interface: half-open heads, and large bodies, from one process."""

import asyncio
import multiprocessing
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event

HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
NUMBERS = b'{"inputs":[{"name":"text","datatype":"FP32","shape":[1],"data":['


def large_body(size: int) -> bytes:
    """Return JSON of this many bytes."""
    return NUMBERS + b"0," * ((size - len(NUMBERS) - 8) // 2) + b"0]}]}"


async def _half_open(port: int) -> None:
    """Send a head byte by byte, and begin again when the server has enough of it."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HALF_A_HEAD)
            while not reader.at_eof():
                writer.write(b"x")
                with suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1000), 1.0):
                        break
            writer.close()
        await asyncio.sleep(1.0)


async def _send_body(port: int, path: str, body: bytes, *, whole: bool) -> None:
    """Post a body, or all of it but the end, again and again."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + (not whole)}\r\n\r\n".encode()
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            with suppress(OSError):
                for start in range(0, len(body), 1 << 16):
                    writer.write(body[start : start + (1 << 16)])
                    await writer.drain()
            await reader.read()
            writer.close()
        await asyncio.sleep(1.0)


async def _attack(port: int, path: str, half_open: int, bodies: int, size: int, started: Event, *, whole: bool) -> None:
    body = large_body(size) if bodies else b""
    tasks = [asyncio.create_task(_half_open(port)) for _ in range(half_open)]
    tasks += [asyncio.create_task(_send_body(port, path, body, whole=whole)) for _ in range(bodies)]
    asyncio.get_running_loop().call_later(1.0, started.set)
    await asyncio.gather(*tasks)


def _run(*arguments: object, whole: bool) -> None:
    asyncio.run(_attack(*arguments, whole=whole))  # type: ignore[arg-type]


@contextmanager
def attack(
    url: str, *, half_open: int = 0, bodies: int = 0, size: int = 0, path: str = "/", whole: bool = True
) -> Iterator[None]:
    """Within: so many clients are at it."""
    context, port = multiprocessing.get_context("spawn"), int(url.rpartition(":")[2])
    started = context.Event()
    process = context.Process(target=_run, args=(port, path, half_open, bodies, size, started), kwargs={"whole": whole})
    process.start()
    try:
        assert started.wait(60)
        yield
    finally:
        process.terminate()
        process.join()


def watch(url: str, seconds: float, pause: float = 0.1) -> tuple[list[float], Counter[str]]:
    """Get a page again and again; return the seconds that each answer took, and how often there was which."""
    times, answers, end = list[float](), Counter[str](), time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                response.read()
                answers[str(response.status)] += 1
        except urllib.error.HTTPError as error:
            answers[str(error.code)] += 1
        except OSError as error:
            answers[type(error).__name__] += 1
        times.append(time.perf_counter() - start)
        time.sleep(pause)
    return times, answers
