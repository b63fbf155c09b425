"""A folder of embedded models with random weights, for tests that need the machinery and not the knowledge."""

import json
from pathlib import Path

__all__ = ["make_models"]


def make_models(folder: Path) -> Path:
    """Both names hold a random nano, which is small and quick."""
    import torch
    from transformers.utils import logging

    from gridprobe_world.questions import vocabulary
    from training.checkpoint import build_model, build_tokenizer, save_checkpoint

    torch.manual_seed(0)
    logging.disable_progress_bar()
    tokenizer = build_tokenizer()
    model = build_model("nano", tokenizer)
    for size in ("micro", "nano"):
        save_checkpoint(model, tokenizer, folder / size)
    (folder / "vocabulary.json").write_text(json.dumps(sorted(vocabulary())))
    return folder
