"""The trainer: batches hold what they promise, a training can be cut in pieces, skills steer what is practised."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gridprobe.question import Question
from gridprobe_world.parts import PARTS, generate_part
from gridprobe_world.render import render_frame
from gridprobe_world.world import generate
from training import train
from training.batches import (
    FAMILY_WEIGHTS,
    IGNORED,
    LONG,
    NATIVE,
    SHORT,
    Batch,
    BatchMaker,
    Skills,
    joined,
    recalled_by,
)
from training.checkpoint import build_tokenizer
from training.train import Trainer, _decay, _grouped, degrade

FAMILIES = {family for weights in FAMILY_WEIGHTS.values() for family in weights}
SKILLED = Skills(progress=0.5, spelling=0.99, reading=0.95)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture
def maker(tokenizer: Any) -> BatchMaker:
    return BatchMaker(tokenizer, seed=5, tokens=1500)


def said(tokenizer: Any, batch: Batch) -> list[str]:
    """What each tail wants to hear."""
    pieces = np.split(batch.wanted[2], batch.first[1:])
    return [tokenizer.decode(piece.tolist()) for piece in pieces]


def test_labels_follow_their_tails(maker: BatchMaker) -> None:
    for _ in range(20):
        batch = maker.make(Skills(progress=0.5, spelling=0.5, reading=0.5))
        row, column, token = batch.wanted
        width = batch.sequences.ids.shape[1] - batch.sequences.tail.shape[1]
        tail = batch.sequences.tail[row, column - width]
        assert len(batch.worlds) == len(batch.time) and len(batch.family) == len(batch.first)
        assert (np.diff(batch.time[:, : batch.time.shape[1] - batch.close_ups], axis=1) > 0).all()
        assert (batch.sequences.ids[row, column + 1] == token).all()  # what is wanted is what comes next
        assert (np.diff(row * 100 + tail)[batch.first[1:] - 1] > 0).all()  # a new tail begins where `first` says


def test_questions_are_answered_with_their_letter(tokenizer: Any, maker: BatchMaker) -> None:
    batch = maker.make(Skills(progress=1.0, spelling=1.0, reading=1.0))
    wanted = zip(said(tokenizer, batch), batch.family, strict=True)
    letters = [text for text, family in wanted if family in FAMILIES]

    assert letters and all(text[0] in "ABCDEFGH" and text[1:] == "<|im_end|>" for text in letters)


def test_lines_are_encoded_as_the_tokenizer_encodes_the_whole(tokenizer: Any, maker: BatchMaker) -> None:
    for template in ("default", "paper"):
        prompt = Question("What colour is the ring?", ["red", "cyan", "blue"], template=template).prompt

        assert maker._encode(prompt) == tokenizer.encode(prompt, add_special_tokens=False)


def test_the_memory_test_counts_visits_and_who_came_first() -> None:
    worlds = generate(np.random.default_rng(3), 40)
    time = np.tile(((np.arange(144) + 0.5) / 144).astype(np.float32), (40, 1))
    recalled = recalled_by(worlds, time, np.full(time.shape, 224))

    for row in range(40):
        start = worlds.start[row].min(axis=1)
        for j in range(4):
            visits, earlier, digit = recalled[:, row, :, worlds.shape[row, j]]
            seen = visits[visits != IGNORED]
            assert set(digit[digit != IGNORED]) <= {worlds.digit[row, j]}
            assert not worlds.digit[row, j] or (digit != IGNORED).sum() == len(seen)
            assert seen[0] == 0 and seen[-1] == worlds.occurrences()[row, j] - 1
            apart = abs(start - start[j])[np.arange(4) != j].min() > 1 / 144
            assert not apart or set(earlier[earlier != IGNORED]) == {int((start < start[j]).sum())}


def test_look_alikes_are_visits_of_one_shape() -> None:
    worlds = generate_part(np.random.default_rng(3), 20, "crowded")
    time = np.tile(((np.arange(144) + 0.5) / 144).astype(np.float32), (20, 1))
    recalled = recalled_by(worlds, time, np.full(time.shape, 224))

    for row in range(20):
        visits = recalled[0, row, :, worlds.shape[row, 1]]
        assert visits[visits != IGNORED].tolist() == sorted(visits[visits != IGNORED])
        assert set(visits[visits != IGNORED]) == {0, 1, 2}
        assert recalled[1].max() <= 3, "four shapes, so at most three came before"


def test_small_frames_are_not_asked_for_what_they_cannot_show(maker: BatchMaker) -> None:
    asked = {True: 0, False: 0}
    for _ in range(60):
        batch = maker.make(SKILLED)
        for shown in batch.shown:
            for row, frames in enumerate(shown.index):
                fine = batch.worlds.scale[row].min() < 0.4
                asked[shown.side >= NATIVE] += int((batch.seen[2, row, frames] > 0).sum()) * fine

    assert asked[True] > 0 and asked[False] == 0


def test_batches_of_mixed_sizes_show_every_frame_once_at_one_size(maker: BatchMaker) -> None:
    mixed = 0
    for _ in range(60):
        batch = maker.make(SKILLED)
        frames, index = batch.time.shape[1], np.concatenate([shown.index for shown in batch.shown], axis=1)
        mixed += len(batch.shown) == 2
        assert [shown.side for shown in batch.shown] == sorted({shown.side for shown in batch.shown})
        assert all((np.diff(shown.index, axis=1) >= 0).all() for shown in batch.shown)
        assert all(set(row) == set(range(frames)) for row in index)
        assert index.shape[1] == frames + (frames % 2 if batch.packing == "pairs" else 0)
        visual = sum((shown.side // 32) ** 2 * shown.index.shape[1] for shown in batch.shown)
        assert batch.sequences.visual.shape[1] == visual // (2 if batch.packing == "pairs" else 1)
    assert 10 < mixed < 50


def test_the_trainer_takes_batches_of_mixed_sizes(maker: BatchMaker) -> None:
    batches = (maker.make(SKILLED) for _ in range(100))
    batch = next(b for b in batches if b.bucket == "mixed" and b.packing == "single" and b.shown[1].side <= 224)
    trainer = Trainer("nano", budget=1.0, device="cpu", compiled=False)

    losses = trainer.train_on(batch)["losses"]

    assert torch.isfinite(losses).all() and (losses > 0).all()


def test_every_part_is_trained_once_the_basics_are_known(maker: BatchMaker) -> None:
    early = {family for _ in range(10) for family in maker.make(Skills()).family}
    late = {family for _ in range(60) for family in maker.make(SKILLED).family}

    assert "pattern" not in early
    assert late >= FAMILIES


def test_the_eye_test_knows_what_is_on_every_frame(maker: BatchMaker) -> None:
    batch = maker.make(Skills())
    shown, worlds = batch.worlds.visible(batch.time), batch.worlds

    for row, frame in [(0, 0), (1, 0), (1, -1)]:
        expected = {worlds.shape[row, j]: worlds.colour[row, j] for j in np.flatnonzero(shown[row, frame])}
        found = {shape: colour for shape, colour in enumerate(batch.seen[0, row, frame]) if colour < 8}
        assert found == expected


def test_drill_letters_stand_before_their_options(tokenizer: Any, maker: BatchMaker) -> None:
    for _ in range(50):
        tokens, labels = maker._drill()
        text = tokenizer.decode(tokens)
        prompt, _, answer = text.partition("assistant\n")
        pairs = [part.strip() for part in answer.split(",") if part.strip()] if "," in answer else []
        for pair in pairs:
            word, letter = pair[:-1], pair[-1]
            assert f"{letter}. {word}\n" in prompt or f"({letter}) {word}\n" in prompt
        assert sum(label != IGNORED for label in labels) == (8 if pairs else 2)


def test_practice_follows_what_is_mastered() -> None:
    assert Skills(reading=0.1).lengths == SHORT and Skills(reading=0.95).lengths == LONG
    assert Skills(spelling=0.2).drill > 0.3 and Skills(spelling=0.99).drill < 0.1


def test_skills_move_towards_what_a_batch_shows(maker: BatchMaker) -> None:
    trainer = Trainer("nano", budget=1.0, device="cpu", compiled=False)
    trainer.skills, trainer.elapsed = [0.0, 0.5, 0.5], 30.0
    batch = maker.make(Skills())

    trainer.learned(batch, np.ones(len(batch.family)))

    assert trainer.skills[:2] == pytest.approx([0.5, 0.55])


def test_the_rate_stays_for_half_the_training_and_then_falls() -> None:
    assert _decay(0.0) == _decay(0.5) == pytest.approx(1.0)
    assert _decay(0.75) == pytest.approx(0.505) and _decay(1.0) == pytest.approx(0.01)


def test_test_seeds_are_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="not a training seed"):
        BatchMaker(tokenizer, seed=2**31, tokens=100)


def test_pairs_fuse_neighbours_and_an_odd_frame_with_itself() -> None:
    frames = torch.arange(5.0).view(1, 5, 1, 1, 1).expand(1, 5, 3, 2, 2)

    assert _grouped(frames, "pairs")[:, :, 0, 0, 0].tolist() == [[0, 1], [2, 3], [4, 4]]
    assert _grouped(frames, "single")[:, :, 0, 0, 0].tolist() == [[i, i] for i in range(5)]


def test_degrading_changes_pictures_but_little() -> None:
    torch.manual_seed(0)
    frames = torch.rand(2, 3, 1, 1, 1).expand(2, 3, 3, 64, 64).contiguous()

    worse = degrade(frames)

    assert worse.shape == frames.shape and worse.min() >= 0 and worse.max() <= 1
    assert 0 < (worse - frames).abs().mean() < 0.1


def test_a_training_goes_on_where_it_stopped(maker: BatchMaker, tmp_path: Path) -> None:
    batches = [maker.make(Skills()) for _ in range(2)]
    first = Trainer("nano", budget=1.0, device="cpu", compiled=False)
    first.train_on(batches[0])
    first.elapsed = 20.0
    first.save(tmp_path)

    second = Trainer("nano", budget=1.0, device="cpu", compiled=False)
    second.resume(tmp_path)

    assert (second.step, second.elapsed, second.skills) == (1, 20.0, first.skills)
    for trainer in (first, second):
        torch.manual_seed(1)
        trainer.train_on(batches[1])
    for a, b in zip(first.parameters, second.parameters, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_the_saved_folder_is_an_ordinary_checkpoint(maker: BatchMaker, tmp_path: Path) -> None:
    from gridprobe import load_model
    from gridprobe.models.qwen3vl.engine import Qwen3VL

    trainer = Trainer("nano", budget=1.0, device="cpu", compiled=False)
    trainer.train_on(maker.make(Skills()))
    trainer.save(tmp_path)

    loaded = load_model(str(tmp_path / "model"), device="cpu")
    assert isinstance(loaded, Qwen3VL) and loaded.dims.hidden == 160
    assert next(trainer.model.parameters()).dtype == torch.float32  # saving in bfloat16 left the training alone


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_program_trains_saves_and_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--size", "nano", "--budget", "0.05", "--tokens", "600", "--workers", "1", "--no-compile"]
    train.main([*arguments, "--out", str(tmp_path), "--log-every", "1", "--device", "cpu"])

    assert (tmp_path / "model" / "config.json").is_file() and (tmp_path / "state.safetensors").is_file()
    assert '"loss"' in (tmp_path / "log.jsonl").read_text()


def test_joined_scripts_look_as_they_did_apart() -> None:
    rng = np.random.default_rng(4)
    apart = [generate_part(rng, 3, part) for part in PARTS]
    together = joined(apart)

    assert len(together) == 15 and together.shape.shape == (15, 6)
    for number, worlds in enumerate(apart):
        for row in (0, 2):
            for time in (0.2, 0.71):
                alone = render_frame(worlds.take([row]), time, 48)
                assert np.array_equal(alone, render_frame(together.take([3 * number + row]), time, 48))
