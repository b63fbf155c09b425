"""What is learned from a chat template, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest

from auto_checkpoints import GEMMA_TURN, IDEFICS_TURN, LLAVA_TURN, QWEN_TURN, new_enough
from gridprobe import load_model
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Choose, Request, choose, cost_model_of
from gridprobe.models.transformers.prompt import Turn, learn
from scoring import noise_pool, shown

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]


def renderer(template: str) -> Callable[[list[dict[str, str]]], str]:
    compiled = jinja2.Template(template)
    return lambda content: compiled.render(
        messages=[{"role": "user", "content": content}], add_generation_prompt=True, bos_token="<bos>"
    )


@pytest.mark.parametrize(
    ("template", "turn"),
    [
        (
            QWEN_TURN.replace("IMAGE", "<img><image></img>\n"),
            Turn(
                "<|im_start|>user\n",
                "<|im_start|>user\n",
                "<img><image></img>\n",
                "",
                "<|im_end|>\n<|im_start|>assistant\n",
            ),
        ),
        (
            IDEFICS_TURN,
            Turn("<|im_start|>User: ", "<|im_start|>User:", "<image>", "", "<end_of_utterance>\nAssistant:"),
        ),
        (
            LLAVA_TURN,
            Turn("<|im_start|>user ", "<|im_start|>user ", "<image>", "\n", "<|im_end|><|im_start|>assistant\n"),
        ),
        (
            LLAVA_TURN.replace("<image>", "[<image>]"),
            Turn("<|im_start|>user ", "<|im_start|>user ", "[<image>]", "\n", "<|im_end|><|im_start|>assistant\n"),
        ),
        (
            "A chat.\n" + GEMMA_TURN.replace("IMAGE", "<image>"),
            Turn(
                "A chat.\n<bos><start_of_turn>user\n",
                "A chat.\n<bos><start_of_turn>user\n",
                "<image>",
                "",
                "<end_of_turn>\n<start_of_turn>model\n",
            ),
        ),
    ],
    ids=["in order", "blank before text", "pictures first", "ornament", "system prompt"],
)
def test_a_turn_is_read_off_the_template(template: str, turn: Turn) -> None:
    assert learn(renderer(template), "<image>") == turn


@pytest.mark.parametrize("template", ["{{ messages[0].content[-1].text }}", "<image>"], ids=["no picture", "no text"])
def test_a_template_that_loses_something_is_refused(template: str) -> None:
    with pytest.raises(ModelError, match=r"^the checkpoint's chat template writes no <image> for a picture, or leaves"):
        learn(renderer(template), "<image>")


def test_a_template_that_numbers_pictures_is_refused() -> None:
    template = (
        "{% for part in messages[0].content if part.type == 'image' %}"
        "<image>{{ loop.index }}{{ loop.length }}{% endfor %}"
        "{% for part in messages[0].content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    )
    with pytest.raises(ModelError, match=r"chat template writes two pictures in another way than one$"):
        learn(renderer(template), "<image>")


def edit(folder: Path, target: Path, **files: str | None) -> Path:
    """A copy of a checkpoint with other texts in some files, or without them."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    for name, text in files.items():
        path = target / name.replace("__", ".")
        path.unlink() if text is None else path.write_text(text)
    return target


def test_a_checkpoint_without_a_chat_template_is_refused(auto_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = edit(auto_folder("smolvlm"), tmp_path / "base", chat_template__jinja=None)

    with pytest.raises(ModelError, match=r"base has no chat template; gridprobe needs an Instruct checkpoint$"):
        load_model(str(folder), device="cpu")


def test_a_model_that_can_think_is_asked_not_to(auto_folder: Callable[[str], Path], tmp_path: Path) -> None:
    original = auto_folder("qwen3_5")
    template = (original / "chat_template.jinja").read_text()
    thinking = template + "{% if enable_thinking is not false %}<think>{% endif %}"
    folder = edit(original, tmp_path / "thinking", chat_template__jinja=thinking, processor_config__json=None)

    plain, other = (load_model(str(each), device="cpu") for each in (original, folder))

    assert plain.cost(shown(noise_pool(2))) == other.cost(shown(noise_pool(2)))


def test_a_checkpoint_whose_pictures_cannot_be_prepared_is_one_sentence(
    auto_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    other = '{"image_processor_type": "Molmo2ImageProcessor"}'
    folder = edit(auto_folder("smolvlm"), tmp_path / "other", preprocessor_config__json=other)

    with pytest.raises(ModelError, match=r"^cannot load the checkpoint \S+/other: .*[Tt]orchvision"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("molmo2", "of the model family molmo2, which gridprobe cannot run: its pictures need torchvision"),
        (
            "internvl_chat",
            "which gridprobe cannot run: it needs the checkpoint's own code; use the one whose",
        ),
        ("mllama", "of the model family mllama, which gridprobe cannot run; see `gridprobe list models`"),
    ],
)
def test_other_families_are_refused(family: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')

    with pytest.raises(ModelError) as caught:
        load_model(str(tmp_path))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_too_long_a_request_is_refused(auto_model: Callable[[str], Any]) -> None:
    request = Request("word " * 8000, Choose(("A", "B")))

    with pytest.raises(ModelError, match=r"needs [\d,]+ tokens, but the model reads at most 8,192; use fewer or"):
        choose(auto_model("smolvlm"), [request])


def test_compiling_is_refused(auto_folder: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match=r"^only Qwen3-VL models can be compiled"):
        load_model(str(auto_folder("smolvlm")), device="cpu", compile=True)


def test_an_old_transformers_is_refused(auto_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.20.2")

    for use in (load_model, cost_model_of):
        with pytest.raises(ModelError, match=r"need transformers 5\.22 or later, and this is 5\.20\.2; run: pip"):
            use(str(auto_folder("smolvlm")))
