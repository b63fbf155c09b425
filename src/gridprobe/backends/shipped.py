"""check_shipped(): the files of a model of the package are those that were released, byte for byte.

The hashes are in models/hashes.json. New weights need new ones:

    python -m gridprobe.backends.shipped > hashes.json && mv hashes.json src/gridprobe/models/
"""

import hashlib
import json
from functools import cache
from pathlib import Path

from gridprobe.errors import ModelError
from gridprobe.files import parse_json

__all__ = ["HASHES", "SHIPPED", "check_shipped", "hashes"]

SHIPPED = Path(__file__).parent.parent / "models"
HASHES = "hashes.json"


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file in a folder, by name; hidden files, and the list of hashes, are left out."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] != "." and file.name != HASHES)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@cache
def check_shipped(folder: Path) -> None:
    """Raise ModelError if a file of this model, or one that all share, was changed, added or removed.

    Files are read once per process.

    A folder that is not one of the package is not checked.
    """
    if folder.parent != SHIPPED:
        return
    try:
        known = parse_json((SHIPPED / HASHES).read_bytes())
        changed = [*_changed(folder, known[folder.name]), *_changed(SHIPPED, known["."])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the embedded model in {folder} cannot be checked ({error}); reinstall gridprobe") from error
    if changed:
        raise ModelError(
            f"{changed[0]} is not the file that was released with gridprobe; reinstall gridprobe, or give "
            "the folder's own path as --model to use it as it is"
        )


def _changed(folder: Path, known: dict[str, str]) -> list[Path]:
    found = hashes(folder)
    return [folder / name for name in sorted({*known, *found}) if known.get(name) != found.get(name)]


if __name__ == "__main__":
    folders = sorted(each for each in SHIPPED.iterdir() if each.is_dir())
    print(json.dumps({".": hashes(SHIPPED), **{each.name: hashes(each) for each in folders}}, indent=2))
