"""How many CPU seconds the start of a resume takes to scan the records of a large run.

    python speed/records.py [--records 98950] [--limit 5]

Records are made in a temporary folder: 144 frames in the pool, 64 kept, a map of 12 rows and columns, 1.7 kB each.
The program ends with exit code 1 if reading takes more than `--limit` CPU seconds.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gridprobe_eval.records import read_records


def made(number: int) -> dict[str, Any]:
    """A record like those of a run on Video-MME-v2."""
    confidences = [0.1234 + (number % 997) * 1e-4 + place * 1e-3 for place in range(12)]
    head = {
        "schema": "gridprobe.record/1",
        "id": f"q{number}",
        "group": f"v{number // 4}",
        "outcome": "answered",
        "right": True,
    }
    head |= {"choice": "B", "error": None, "attempt": 1, "worker": "w0", "at": "2026-11-01T00:00:00.000Z"}
    head["identity"] = {"size": 123456789 + number, "mtime": 1789000000000000000 + number, "sample": "0123456789abcdef"}
    kept = list(range(0, 128, 2))
    selection = {"selector": "gridprobe", "pool": 144, "indices": kept, "timestamps": [12.5 * i + 6.25 for i in kept]}
    selection |= {"row_confidence": confidences, "column_confidence": confidences[::-1]}
    cost = {"tflops": 31.25, "tflops_paper": 62.5, "baseline_tflops": 100.0, "tokens": 10234, "visual_tokens": 9876}
    seconds = {"decode": 1.25, "probe": 0.75, "focus": 0.5, "total": 2.5}
    return head | {"confidence": 0.625, "selection": selection, "cost": cost, "seconds": seconds, "warnings": []}


def main() -> int:
    """Write the records, read them, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=98950)
    parser.add_argument("--limit", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records-w0.jsonl"
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(made(number)) + "\n" for number in range(given.records))
        size, start = file.stat().st_size / 1e6, time.process_time()
        found = read_records(Path(folder), fields=())
        seconds = time.process_time() - start
    print(f"{len(found.best)} records, {size:.1f} MB: {seconds:.2f} CPU seconds, at most {given.limit:g} allowed")
    return int(seconds > given.limit or len(found.best) != given.records)


if __name__ == "__main__":
    sys.exit(main())
