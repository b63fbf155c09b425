"""A server under load: many questions at once, merged against one by one, and a soak of good and bad requests.

    python speed/load.py --out load.json                      # the crowd and the throughput; 2 cores, embedded micro
    python speed/load.py --soak 300 --out load.json           # and five minutes of mixed requests

Starts `gridprobe serve` with the embedded model and a gridworld video, as a process of its own. "Crowd" sends `--crowd`
questions at once against a queue of 32: how many were answered, how many refused with 429 and Retry-After, how long
/health took meanwhile, and the server's memory. "Throughput" asks `--count` questions one after another, and as many
others `--concurrency` at a time, about a video that is open already. "Soak" sends good and bad requests from several
clients and compares memory, descriptors and temporary files with those after the first tenth of the time.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gridprobe_world.dataset import items, world_of
from gridprobe_world.render import write_script

WATCH = """
import http.client, select, sys, time
connection = http.client.HTTPConnection(sys.argv[1])
while not select.select([sys.stdin], [], [], 0.02)[0]:
    start = time.perf_counter()
    connection.request("GET", "/health")
    assert connection.getresponse().read()
    print(1000 * (time.perf_counter() - start), flush=True)
"""
"""Prints how many milliseconds /health takes, until something comes on standard input."""
QUEUE = 32
TARGET = 3.0
"""Met on a GPU (speed/desk_load.py) and not on 2 cores, where the model computes all the time; see docs/serving.md."""
HEALTH_MS = 100.0
CLIENTS = 6


@dataclass(frozen=True)
class Server:
    """A server that runs, and what it knows to answer."""

    address: str
    pid: int
    temporary: Path
    video: Path
    bodies: list[dict[str, Any]]
    """Questions about the video, ready to send."""

    def state(self) -> dict[str, float]:
        """Memory in MiB, open descriptors, and files it has on disk."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return {
            "rss_mib": round(int(found[1]) / 1024, 1) if found else 0.0,
            "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
            "files": sum(len(files) for _, _, files in os.walk(self.temporary)),
        }

    def cpu(self) -> float:
        """Processor seconds so far, which other programs on the machine change less than the time."""
        used = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def client(self) -> httpx.AsyncClient:
        """A client without limits of its own."""
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(base_url=self.address, timeout=None, limits=limits)


@contextmanager
def serving(given: argparse.Namespace) -> Iterator[Server]:
    """A server with a gridworld video."""
    asked = items(2 * given.count, per_video=2 * given.count)
    with tempfile.TemporaryDirectory() as folder:
        temporary, videos = Path(folder) / "tmp", Path(folder) / "videos"
        temporary.mkdir()
        videos.mkdir()
        write_script(world_of(asked[0]), videos / "world.mp4", duration=60.0 * given.minutes)
        environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": str(given.cores)}
        options = ["--model", given.model, "--device", "cpu", "--preset", "gridworld", "--port", "0"]
        options += ["--set", "limits.cache=0"]
        limits = ["--videos", str(videos), "--queue", str(QUEUE), "--concurrency", str(given.concurrency)]
        process = subprocess.Popen(
            [sys.executable, "-m", "gridprobe", "serve", *options, *limits],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            assert process.stderr is not None
            address = next(match[1] for line in process.stderr if (match := re.search(r"serving at (\S+)", line)))
            settings = {"k": given.k, "effort": "quick"}
            questions = [item.asked.question for item in asked]
            bodies = [
                {"video": "world.mp4", "question": each.text, "options": list(each.options), "settings": settings}
                for each in questions
            ]
            yield Server(address, process.pid, temporary, videos / "world.mp4", bodies)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


async def crowd(server: Server, count: int) -> dict[str, Any]:
    """So many questions at once; another process asks for /health, since this one is busy sending."""
    before = server.state()
    chosen = [server.bodies[number % len(server.bodies)] | {"user": str(number)} for number in range(count)]
    watching = subprocess.Popen(
        [sys.executable, "-c", WATCH, server.address.removeprefix("http://")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    async with server.client() as client:
        start = time.perf_counter()
        replies = await asyncio.gather(*(client.post("/v1/gridprobe/ask", json=body) for body in chosen))
        seconds = time.perf_counter() - start
    told, _ = watching.communicate("over")
    health = sorted(map(float, told.split()))
    refused = [reply for reply in replies if reply.status_code == 429]
    return {
        "asked": count,
        "seconds": round(seconds, 2),
        "statuses": dict(Counter(str(reply.status_code) for reply in replies)),
        "refused_with_retry_after": sum("retry-after" in reply.headers for reply in refused),
        "health_ms": {"median": round(health[len(health) // 2], 1), "worst": round(health[-1], 1), "limit": HEALTH_MS},
        "before": before,
        "after": server.state(),
    }


async def throughput(server: Server, count: int, together: int) -> dict[str, Any]:
    """Questions one by one, and others together, about a video that is open and known to the model."""
    async with server.client() as client:

        async def ask(body: dict[str, Any]) -> None:
            (await client.post("/v1/gridprobe/ask", json=body)).raise_for_status()

        start = time.perf_counter()
        await ask(server.bodies[0])
        first = time.perf_counter() - start
        start, used = time.perf_counter(), server.cpu()
        for body in server.bodies[:count]:
            await ask(body)
        sequential, sequential_cpu = time.perf_counter() - start, server.cpu() - used
        room = asyncio.Semaphore(together)

        async def in_turn(body: dict[str, Any]) -> None:
            async with room:
                await ask(body)

        start, used = time.perf_counter(), server.cpu()
        await asyncio.gather(*map(in_turn, server.bodies[count : 2 * count]))
        merged, merged_cpu = time.perf_counter() - start, server.cpu() - used
        numbers = dict(re.findall(r"^gridprobe_(model_\w+_total) (\d+)$", (await client.get("/metrics")).text, re.M))
    return {
        "questions": count,
        "first_seconds": round(first, 3),
        "sequential_seconds": round(sequential, 3),
        "together_seconds": round(merged, 3),
        "ratio": round(sequential / merged, 2),
        "cpu_seconds": {"sequential": round(sequential_cpu, 2), "together": round(merged_cpu, 2)},
        "target": TARGET,
        "follow_up_to_first": round(sequential / count / first, 4),
        **numbers,
    }


def bad_requests(server: Server) -> list[tuple[str, str, dict[str, Any]]]:
    """Requests that must be refused, and uploads."""
    data = "data:video/mp4;base64," + base64.b64encode(b"no video" * 100).decode()
    body = server.bodies[0]
    whole = "data:video/mp4;base64," + base64.b64encode(server.video.read_bytes()).decode()
    return [
        ("POST", "/v1/gridprobe/ask", {"json": body | {"video": data}}),
        ("POST", "/v1/gridprobe/ask", {"json": body | {"video": "../../etc/passwd"}}),
        ("POST", "/v1/gridprobe/ask", {"json": body | {"settings": {"k": 10**9}}}),
        ("POST", "/v1/gridprobe/ask", {"json": body | {"video": whole}}),
        ("POST", "/v1/chat/completions", {"json": {"model": "x", "messages": []}}),
        ("POST", "/v1/gridprobe/ask", {"content": b"[" * 10_000, "headers": {"Content-Type": "application/json"}}),
        ("GET", "/v1/gridprobe/jobs/none/events", {}),
        ("GET", "/metrics", {}),
    ]


async def soak(server: Server, seconds: float) -> dict[str, Any]:
    """Mixed requests from several clients; some go away before the answer."""
    end, statuses = time.monotonic() + seconds, Counter[str]()
    bad = bad_requests(server)

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        async with server.client() as client:
            while time.monotonic() < end:
                body = chance.choice(server.bodies) | {"user": str(seed)}
                more: dict[str, Any]
                kind = chance.random()
                if kind < 0.4:
                    method, path, more = "POST", "/v1/gridprobe/ask", {"json": body}
                elif kind < 0.5:
                    await _leave(client, body)
                    continue
                elif kind < 0.6:
                    await _upload(client, chance, statuses)
                    continue
                else:
                    method, path, more = chance.choice(bad)
                statuses[str((await client.request(method, path, **more)).status_code)] += 1

    clients = asyncio.gather(*map(one, range(CLIENTS)))
    await asyncio.sleep(seconds / 10)
    before = server.state()
    await clients
    await asyncio.sleep(1)
    return {"seconds": seconds, "statuses": dict(statuses), "before": before, "after": server.state()}


async def _leave(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    """Ask, and go away."""
    task = asyncio.create_task(client.post("/v1/gridprobe/ask", json=body))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task])


async def _upload(client: httpx.AsyncClient, chance: random.Random, statuses: "Counter[str]") -> None:
    content = chance.randbytes(100_000)
    reply = await client.post("/v1/gridprobe/uploads", content=content, headers={"Content-Type": "video/mp4"})
    statuses[str(reply.status_code)] += 1
    if reply.status_code == 201:
        await client.delete(f"/v1/gridprobe/uploads/{reply.json()['id']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--crowd", type=int, default=200, help="questions at once")
    parser.add_argument("--count", type=int, default=40, help="questions of the comparison")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--minutes", type=float, default=2.0, help="length of the video")
    parser.add_argument("--k", type=int, default=12)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    given = parser.parse_args()
    found: dict[str, Any] = {"command": f"python speed/load.py {shlex.join(sys.argv[1:])}"}
    with serving(given) as server:
        found["throughput"] = asyncio.run(throughput(server, given.count, given.concurrency))
        found["crowd"] = asyncio.run(crowd(server, given.crowd))
        if given.soak:
            found["soak"] = asyncio.run(soak(server, given.soak))
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
