"""The licences of everything that gridprobe[all] installs, and its known vulnerabilities.

    make audit

writes licences.csv and prints how often each licence occurs. Vulnerabilities come from a service on the network: where
it cannot be reached, a sentence says that they were not checked, and the exit status is 1. A vulnerability is 1, too.
pip-audit alone skips packages that it cannot look up, says that no vulnerability was found, and exits with 0.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is installed beside this Python."""
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def licences(python: Path, out: Path) -> str:
    """Write the list of an environment's packages, and return a table of licences."""
    done = tool("pip-licenses", "--python", str(python), "--from=mixed", "--format=json", "--with-urls")
    if done.returncode:
        raise SystemExit(f"pip-licenses failed: {done.stderr.strip()[-500:]}")
    rows = [row for row in json.loads(done.stdout) if row["Name"] != "gridprobe"]
    with out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    counts = Counter(row["License"].partition("\n")[0][:60] for row in rows)
    return "\n".join(f"{count:4d}  {name}" for name, count in counts.most_common())


def vulnerabilities(requirements: Path) -> str | None:
    """What is known against pinned packages; None if there is nothing."""
    done = tool("pip-audit", "-r", str(requirements), "--no-deps", "--progress-spinner=off", "--format=json")
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        return f"vulnerabilities were NOT checked: pip-audit could not do its work ({reason})"
    bad = [f"{each['name']} {each['version']}: {flaw['id']}" for each in found for flaw in each.get("vulns", ())]
    skipped = [each for each in found if "skip_reason" in each]
    if skipped or not found:
        reason = skipped[0]["skip_reason"] if skipped else "no package was named"
        bad.append(f"vulnerabilities of {len(skipped)} of {len(found)} packages were NOT checked ({reason})")
    return "\n".join(bad) or None


def main() -> None:
    """Check an environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="of the environment whose packages are listed")
    parser.add_argument("--out", type=Path, default=Path("licences.csv"))
    given = parser.parse_args()
    print(f"{licences(given.python, given.out)}\n\nlicences: {given.out}", flush=True)
    freeze = [given.python, "-m", "pip", "freeze", "--exclude-editable"]
    done = subprocess.run(freeze, capture_output=True, text=True, check=True)
    frozen = given.out.with_suffix(".txt")
    frozen.write_text("\n".join(line for line in done.stdout.splitlines() if "==" in line) + "\n")
    found = vulnerabilities(frozen)
    frozen.unlink()
    print(found or "vulnerabilities: none is known")
    sys.exit(found is not None)


if __name__ == "__main__":
    main()
