"""Build and check a release, and tag it last; see RELEASING.md. Nothing leaves this machine.

python deploy/release.py            # in the root of a clone without changes
python deploy/release.py --no-tag   # everything but the tag
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 40_000_000
"""Of a wheel; indexes refuse 100 MB."""
FORMS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.citation-file-format": "CITATION.cff",
}
"""Schemas inside check-jsonschema, and the files that follow them."""


class ReleaseError(Exception):
    """Why this tree cannot be released."""


def main() -> None:
    """Check, build, check what was built, tag."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tag", action="store_true", help="stop before the tag")
    given = parser.parse_args()
    try:
        version, notes = check_tree(ROOT)
        for schema, pattern in FORMS.items():
            _python("check_jsonschema", "--builtin-schema", schema, *sorted(ROOT.glob(pattern)))
        wheel, sdist = build(ROOT)
        check_wheel(wheel)
        for file in (sdist, wheel):
            print(f"{sha256(file)}  {file.name}  {file.stat().st_size:,} bytes")
        print(f"\n{notes}\n")
        if not given.no_tag:
            _git("tag", "--annotate", f"v{version}", "--message", f"gridprobe {version}", root=ROOT)
            print(f"tagged v{version} here; RELEASING.md says how to publish it")
    except ReleaseError as error:
        sys.exit(f"release: {error}")


def check_tree(root: Path) -> tuple[str, str]:
    """The version and its section of the changelog, of a tree that may be released."""
    if changes := _git("status", "--porcelain", root=root):
        raise ReleaseError(f"the tree has changes; commit or remove them first:\n{changes}")
    version = _found(r'__version__ = "(.+)"', root / "src" / "gridprobe" / "_version.py")
    cited = _found(r"^version: (.+)$", root / "CITATION.cff")
    if cited != version:
        raise ReleaseError(f"CITATION.cff has the version {cited}, the package {version}; make them equal")
    if _git("tag", "--list", f"v{version}", root=root):
        raise ReleaseError(f"the tag v{version} exists; raise __version__ in src/gridprobe/_version.py")
    check_weights(root)
    return version, section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def section(changelog: str, version: str) -> str:
    """The part of the changelog about a version, which must have a date."""
    found = re.search(rf"^## {re.escape(version)} – (\S+)\n.*?(?=^## |\Z)", changelog, flags=re.S | re.M)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section '## {version} – DATE'; write it")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[1]):
        raise ReleaseError(f"CHANGELOG.md dates {version} {found[1]!r}; write the day of the release, as in 2026-11-16")
    return found[0].strip()


def check_weights(root: Path) -> None:
    """Compare the embedded weights with their hashes, and let none be without."""
    models = root / "src" / "gridprobe_world" / "weights"
    known = json.loads((models / "hashes.json").read_text(encoding="utf-8"))
    wanted = {f"{folder}/{name}": digest for folder, files in known.items() for name, digest in files.items()}
    found = {f"{file.parent.name}/{file.name}": sha256(file) for file in models.rglob("*.safetensors")}
    weights = {path for path in wanted if path.endswith(".safetensors")} | found.keys()
    if differ := sorted(path for path in weights if wanted.get(path) != found.get(path)):
        raise ReleaseError(f"{', '.join(differ)} differ from weights/hashes.json; restore them, or renew the hashes")


def build(root: Path) -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist, both checked by twine."""
    for folder in (root / "dist", root / "build"):
        shutil.rmtree(folder, ignore_errors=True)
    _python("build", root)
    (wheel,), (sdist,) = ((root / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    _python("twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel that is too large or holds anything but the package."""
    with zipfile.ZipFile(wheel) as packed:
        tops = {name.partition("/")[0] for name in packed.namelist()}
    if strange := sorted(top for top in tops if top != "gridprobe" and not top.endswith(".dist-info")):
        raise ReleaseError(f"{wheel.name} holds {', '.join(strange)} beside the package; remove build/ and try again")
    if (size := wheel.stat().st_size) >= MOST_BYTES:
        raise ReleaseError(f"{wheel.name} has {size:,} bytes, and must have fewer than {MOST_BYTES:,}")


def sha256(file: Path) -> str:
    """The hash of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _found(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8"), flags=re.M)
    if found is None:
        raise ReleaseError(f"{file.name} names no version")
    return found[1]


def _git(*arguments: str, root: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def _python(module: str, *arguments: object) -> None:
    if subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=False).returncode:
        raise ReleaseError(f"{module} failed; its message is above")


if __name__ == "__main__":
    main()
