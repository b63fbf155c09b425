"""The local engine on its own: prompts, markers, batches, refusals."""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from auto_checkpoints import new_enough
from checkpoints import SPECIAL, make_checkpoint
from gridprobe import load_model
from gridprobe.errors import ModelError, UsageError
from gridprobe.importance import Grid
from gridprobe.models import Posterior, Request, choose
from gridprobe.models.local import kv_cache
from gridprobe.models.local.generate import letter_logprobs, letter_tokens
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.prompt import GridLayout
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import load_qwen, shown

QUESTION = Question("What happens?", ["a cat sleeps", "a dog runs", "nothing"])
RNG = np.random.default_rng(1)


def pool(count: int, *, width: int = 96, height: int = 64) -> FramePool:
    pixels = RNG.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    return FramePool(pixels, tuple(25.0 * i + 12.5 for i in range(count)), source="noise")


def request(frames: FramePool, question: Question = QUESTION, **changes: object) -> Request:
    return shown(frames, question.prompt, question.labels, pixels=FrameSize(max_side=96), **changes)  # type: ignore[arg-type]


def text(model: Qwen3VL, asked: Request) -> str:
    """The whole turn as the model reads it, runs of placeholders shortened to one."""
    decoded = model._tokenizer.decode(model._layout(asked).ids.tolist())
    return re.sub(r"(<\|video_pad\|>)+", "<|video_pad|>", decoded)


def test_the_turn_is_the_one_qwen3vl_was_released_with(tiny_model: Qwen3VL) -> None:
    group = "<|vision_start|><|video_pad|><|vision_end|>"

    assert text(tiny_model, request(pool(3))) == (
        f"<|im_start|>user\n<12.5 seconds>{group}<37.5 seconds>{group}<62.5 seconds>{group}"
        "Question: What happens?\nA. a cat sleeps\nB. a dog runs\nC. nothing\n"
        "Answer with the option's letter from the given choices directly.<|im_end|>\n<|im_start|>assistant\n"
    )


# D04 of tests/reliability.md
@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("packing", ["single", "pairs"])
def test_markers_are_as_many_as_groups_and_tell_true_times(tiny_model: Qwen3VL, count: int, packing: str) -> None:
    frames = pool(count)
    found = [float(t) for t in re.findall(r"<(\d+\.\d) seconds>", text(tiny_model, request(frames, packing=packing)))]

    if packing == "single":
        assert found == pytest.approx(frames.times, abs=0.05)
    else:
        assert len(found) == (count + 1) // 2
        means = [np.mean(frames.times[i : i + 2]) for i in range(0, count, 2)]
        assert found == pytest.approx(means, abs=0.0501)
    assert found == sorted(found)


def test_the_paper_told_the_model_it_sees_the_first_half_second(tiny_model: Qwen3VL) -> None:
    told = text(tiny_model, request(pool(12), packing="pairs", timestamps="paper"))

    assert re.findall(r"<(\d+\.\d) seconds>", told) == ["0.0", "0.1", "0.2", "0.3", "0.4", "0.4"]


def test_without_timestamps_there_are_no_markers(tiny_model: Qwen3VL) -> None:
    assert "seconds>" not in text(tiny_model, request(pool(3), timestamps="none"))


@pytest.mark.parametrize(
    ("packing", "expected"),
    [
        ("single", "<12.5 seconds>{0}one\n<37.5 seconds>{0}two\nthree\n<62.5 seconds>{0}four\nQuestion"),
        ("pairs", "<25.0 seconds>{0}one\ntwo\nthree\n<62.5 seconds>{0}four\nQuestion"),
    ],
)
def test_text_stands_between_the_frames(tiny_model: Qwen3VL, packing: str, expected: str) -> None:
    asked = request(pool(3), packing=packing, between=("", "one", "two\nthree", "four"))

    assert expected.format("<|vision_start|><|video_pad|><|vision_end|>") in text(tiny_model, asked)
    with pytest.raises(UsageError, match="3 frames need 4 texts, got 3"):
        request(pool(3), between=("", "", ""))


# Q05 of tests/reliability.md
@pytest.mark.parametrize("token", SPECIAL)
def test_special_token_text_in_a_question_cannot_change_the_turn(tiny_model: Qwen3VL, token: str) -> None:
    hostile = Question(f"{token}What{token}?", [f"a {token}", f"{token}\n{token}", "c"])
    plain = tiny_model._layout(request(pool(2)))
    attacked = tiny_model._layout(request(pool(2), hostile))
    structure = set(tiny_model._tokenizer.convert_tokens_to_ids(list(SPECIAL)))

    def structural(layout: GridLayout) -> list[int]:
        return [token for token in layout.ids.tolist() if token in structure]

    assert structural(attacked) == structural(plain)
    assert attacked.visual.sum() == plain.visual.sum()
    assert choose(tiny_model, [request(pool(2), hostile)])[0].labels == ("A", "B", "C")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.1)])
@pytest.mark.parametrize("packing", ["single", "pairs"])
def test_a_batch_of_24_probes_equals_24_single_calls(
    tiny_checkpoint: Path, dtype: str, tolerance: float, packing: str
) -> None:
    model = load_qwen(str(tiny_checkpoint), dtype=dtype, device="cpu")
    frames = pool(144, width=64, height=64)
    probes = [request(frames.take(subset), packing=packing) for subset in Grid(12).probes()]

    together = choose(model, probes)
    alone = [choose(model, [probe])[0] for probe in probes]

    for a, b in zip(together, alone, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=tolerance)
    assert len({posterior.logprobs for posterior in alone}) == 24  # the probes really differ


def test_sequences_of_different_length_share_a_batch_without_harm(tiny_model: Qwen3VL) -> None:
    other = Question("Is it raining, and if so, does anybody in the picture mind at all?", ["yes", "no"])
    mixed = [request(pool(7)), request(pool(1), other), request(pool(3, width=64, height=96), packing="pairs")]

    together = choose(tiny_model, mixed)

    for a, single in zip(together, mixed, strict=True):
        assert a.logprobs == pytest.approx(choose(tiny_model, [single])[0].logprobs, abs=1e-4)


def test_batches_respect_the_token_limit(tiny_model: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request(pool(n)) for n in (1, 8, 3, 5)]
    whole = choose(tiny_model, requests)
    sizes: list[tuple[int, int]] = []
    run = Qwen3VL._choose
    limit = 2 * len(tiny_model._layout(requests[3]))
    monkeypatch.setattr(kv_cache, "CPU_TOKENS", limit)

    def noted(engine: Qwen3VL, batch: Sequence[PreparedRequest]) -> dict[int, Posterior]:
        sizes.append((len(batch), len(batch[0].layout)))
        return run(engine, batch)

    monkeypatch.setattr(Qwen3VL, "_choose", noted)

    split = choose(tiny_model, requests)

    assert [count for count, _ in sizes] == [1, 2, 1]
    assert all(count * longest <= limit or count == 1 for count, longest in sizes)
    for a, b in zip(split, whole, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_no_state_is_left_on_the_model(tiny_model: Qwen3VL) -> None:
    first = choose(tiny_model, [request(pool(2))])
    frames = pool(2)
    before = choose(tiny_model, [request(frames)])[0]
    choose(tiny_model, [request(pool(9), packing="pairs")])

    assert choose(tiny_model, [request(frames)])[0].logprobs == before.logprobs
    assert tiny_model._model.model.rope_deltas is None
    assert first


def test_one_frame_is_the_same_in_both_packings(tiny_model: Qwen3VL) -> None:
    frames = pool(1)
    single, pair = (choose(tiny_model, [request(frames, packing=packing)])[0] for packing in ("single", "pairs"))

    assert single.logprobs == pytest.approx(pair.logprobs, abs=1e-6)


# Q06 of tests/reliability.md
def test_a_sequence_longer_than_the_context_is_refused_before_the_pass(tiny_model: Qwen3VL) -> None:
    long = Question("why " * 40_000, ["a", "b"])

    with pytest.raises(ModelError, match=r"needs [\d,]+ tokens, but the model reads at most 32,768"):
        choose(tiny_model, [request(pool(1), long)])


# Q09 of tests/reliability.md
def test_a_model_that_does_not_answer_with_letters_is_an_error(tiny_checkpoint: Path) -> None:
    model = load_model(str(tiny_checkpoint), device="cpu", min_letter_mass=0.9)

    with pytest.raises(ModelError, match=r"only 0\.\d+ of its probability on the option letters A–C.*Instruct"):
        choose(model, [request(pool(1))])


# M01 of tests/reliability.md
def test_running_out_of_memory_says_what_was_needed_and_what_to_lower(
    tiny_model: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of kv_cache. Tried to allocate 20 GiB")

    with monkeypatch.context() as full:
        full.setattr(Qwen3VL, "_scores", explode)
        with pytest.raises(ModelError, match=r"memory on one sequence of 2\d\d tokens \(9 frames of 96×64\)") as e:
            choose(tiny_model, [request(pool(9)), request(pool(3))])
    assert "lower --frames" in str(e.value)
    assert choose(tiny_model, [request(pool(9))])[0].mass > 0, "the next question works"


# Q10 of tests/reliability.md
def test_nan_weights_fail_the_question(tmp_path: Path) -> None:
    model = load_qwen(str(make_checkpoint(tmp_path / "nan")), device="cpu")
    with torch.no_grad():
        model._model.model.language_model.norm.weight.fill_(float("nan"))

    with pytest.raises(ModelError, match="NaN"):
        choose(model, [request(pool(1))])


class TestLetters:
    class Tokenizer:
        """Encodes by a table; anything else is two tokens."""

        def __init__(self, table: dict[str, int]) -> None:
            self.table = table

        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return [self.table[text]] if text in self.table else [1, 2]

    # Q08 of tests/reliability.md
    def test_forms_of_several_tokens_are_left_out(self) -> None:
        tokenizer = self.Tokenizer({"A": 10, " A": 11, "(A": 12, "B": 20})

        assert letter_tokens(tokenizer, "AB") == {"A": (10, 11, 12), "B": (20,)}

    # Q08 of tests/reliability.md
    def test_a_shared_token_is_refused(self) -> None:
        with pytest.raises(ModelError, match="token 10 begins both A and B"):
            letter_tokens(self.Tokenizer({"A": 10, "B": 10}), "AB")

    def test_a_letter_without_a_token_is_refused(self) -> None:
        with pytest.raises(ModelError, match="option letter B"):
            letter_tokens(self.Tokenizer({"A": 10}), "AB")

    def test_all_letters_of_a_real_tokenizer_are_disjoint(self, tiny_model: Qwen3VL) -> None:
        tokens = letter_tokens(tiny_model._tokenizer, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")

        assert all(len(ids) == 3 for ids in tokens.values())
        assert tokens["A"][0] == 32 and tokens["H"][0] == 39  # byte-level BPE gives capitals these ids, Qwen's too

    def test_logprobs_pool_forms_and_keep_the_raw_mass(self) -> None:
        probabilities = torch.tensor(
            [0.1, 0.2, 0.3, 0.05, 0.35]
        )  # A: tokens 0 and 1, B: token 2, the rest is no letter

        logprobs, mass = letter_logprobs(probabilities.log()[None], [[(0, 1), (2,)]])[0]

        assert mass == pytest.approx(0.6)
        assert np.exp(logprobs) == pytest.approx([0.5, 0.5])


class TestLoading:
    def test_a_missing_folder_is_one_sentence(self) -> None:
        with pytest.raises(ModelError, match=r"^\./nowhere is not a checkpoint folder: there is no config.json in it$"):
            load_model("./nowhere")

    # M13 of tests/reliability.md
    def test_a_hub_id_that_is_not_cached_is_one_sentence_offline(self) -> None:
        with pytest.raises(ModelError, match=r"cannot find the model nobody/nothing: no such folder") as error:
            load_model("nobody/nothing")
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("name", ["", "gpt4", "a/b/c", "http://", "server:here"])
    def test_names_that_cannot_be_models_are_usage_errors(self, name: str) -> None:
        with pytest.raises(UsageError):
            load_model(name)

    def test_another_architecture_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')

        with pytest.raises(ModelError, match="is of the model family bert, which gridprobe cannot run"):
            load_model(str(tmp_path))

    # M13 of tests/reliability.md
    def test_missing_weights_are_one_sentence(self, tiny_checkpoint: Path, tmp_path: Path) -> None:
        for file in tiny_checkpoint.iterdir():
            if file.suffix != ".safetensors":
                (tmp_path / file.name).write_bytes(file.read_bytes())

        with pytest.raises(ModelError, match="cannot load the checkpoint") as error:
            load_model(str(tmp_path))
        assert "\n" not in str(error.value)

    def test_damaged_weights_are_one_sentence(self, tiny_checkpoint: Path, tmp_path: Path) -> None:
        for file in tiny_checkpoint.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes()[: 1000 if file.suffix == ".safetensors" else None])

        with pytest.raises(ModelError, match="cannot load the checkpoint") as error:
            load_model(str(tmp_path))
        assert "\n" not in str(error.value)

    # M13 of tests/reliability.md
    def test_weights_that_lack_a_tensor_are_refused_not_filled_with_noise(
        self, tiny_checkpoint: Path, tmp_path: Path
    ) -> None:
        for file in tiny_checkpoint.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        weights = load_file(tmp_path / "model.safetensors")
        del weights["model.language_model.norm.weight"]
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

        with pytest.raises(ModelError, match=r"lacks 1 weights, model\.language_model\.norm\.weight among them"):
            load_model(str(tmp_path))

    @pytest.mark.parametrize("options", [{"device": "toaster"}, {"dtype": "int3"}, {"quantization": "1bit"}])
    def test_options_that_do_not_exist_are_usage_errors(self, tiny_checkpoint: Path, options: dict[str, str]) -> None:
        with pytest.raises(UsageError, match=next(iter(options.values()))):
            load_model(str(tiny_checkpoint), **options)

    def test_quantization_without_its_library_names_it(self, tiny_checkpoint: Path) -> None:
        if importlib.util.find_spec("bitsandbytes"):
            pytest.skip("bitsandbytes is installed")

        with pytest.raises(ModelError, match="bitsandbytes") as error:
            load_model(str(tiny_checkpoint), quantization="4bit", device="cpu")
        assert "\n" not in str(error.value)

    def test_identity_changes_with_dtype_and_weights(self, tiny_checkpoint: Path, tmp_path: Path) -> None:
        other = make_checkpoint(tmp_path / "tiny", seed=1)
        names = {
            load_qwen(str(tiny_checkpoint), device="cpu").identity,
            load_qwen(str(tiny_checkpoint), device="cpu", dtype="bfloat16").identity,
            load_qwen(str(other), device="cpu").identity,
        }

        assert len(names) == 3

    @new_enough
    def test_what_the_engine_cannot_run_runs_in_the_general_one(self, tiny_checkpoint: Path) -> None:
        own = load_model(str(tiny_checkpoint), device_map={"": "cpu"})
        other = load_model(str(tiny_checkpoint), device="cpu", attn_implementation="eager")
        asked = replace(request(pool(20)), keep_kv=True)

        first, second = choose(other, [asked])[0], choose(other, [asked])[0]

        assert isinstance(own, Qwen3VL) and not isinstance(other, Qwen3VL) and other.capabilities.kv_reuse
        assert first.logprobs == pytest.approx(choose(own, [asked])[0].logprobs, abs=1e-4)
        assert second.logprobs == pytest.approx(first.logprobs, abs=1e-5)
        assert second.cost.flops_computed < 0.4 * first.cost.flops_computed
        assert other.cost(asked) == own.cost(asked)

    def test_only_what_the_engine_runs_is_compiled(self, tiny_checkpoint: Path) -> None:
        with pytest.raises(UsageError, match=r"^only a model that is not quantized and on one device can be compiled$"):
            load_model(str(tiny_checkpoint), device="cpu", attn_implementation="eager", compile=True)
