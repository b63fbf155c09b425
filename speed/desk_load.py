"""Questions of several users through a server's service, without HTTP: one by one against so many at the same time.

    python speed/desk_load.py --device cuda --concurrency 8

All are about one video, whose frames are known to the model, and are settled by the overview. The video is sent as
pictures, so that PyAV is not needed. Prints JSON: answers a second, and how many requests a call of the model had.
"""

import argparse
import base64
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from gridprobe import load_model
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.service import VideoQuestion, VideoService
from gridprobe_serve.sources import Frames, MediaSource
from gridprobe_world.dataset import WorldItem, items, pool_of

K = 12


def pictures(item: WorldItem, device: str) -> Frames:
    pool = pool_of(item, cells=K * K, device=device)
    encoded = []
    for pixels in pool.pixels:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        encoded.append("data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode())
    return Frames(encoded, list(pool.times))


def ask(service: VideoService, source: MediaSource, question: Question, user: str) -> None:
    job = service.submit(VideoQuestion(service.sources.held(source), question, {"k": K, "effort": "quick"}), user)
    job.finished.result()
    if job.error is not None:
        raise job.error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8])
    given = parser.parse_args()
    asked = items(given.count, per_video=given.count)
    questions = [item.asked.question for item in asked]
    model = load_model(given.model, device=given.device)
    for concurrency in (1, *given.concurrency):
        limits = ServerLimits(concurrency=concurrency, merged=concurrency, queue=4 * given.count)
        service = VideoService(model, settings=Options.from_preset("gridworld"), limits=limits)
        source = service.sources.find(pictures(asked[0], given.device))
        assert isinstance(source, MediaSource)
        with ThreadPoolExecutor(concurrency) as threads:
            for measured in (False, True):
                start, calls = time.perf_counter(), service.batcher.calls
                work = [
                    threads.submit(ask, service, source, each, str(number % concurrency))
                    for number, each in enumerate(questions if measured else questions[:concurrency])
                ]
                for each in work:
                    each.result()
        seconds, calls = time.perf_counter() - start, service.batcher.calls - calls
        service.close()
        found = {"concurrency": concurrency, "answers_a_second": round(given.count / seconds, 1)}
        print(json.dumps(found | {"requests_a_call": round(given.count / calls, 1)}), flush=True)


if __name__ == "__main__":
    main()
