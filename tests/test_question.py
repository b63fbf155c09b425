"""Questions, their own labels, and the exact text a model is shown."""

import dataclasses
from dataclasses import replace
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe import MockModel, Session, ask
from gridprobe.errors import UsageError
from gridprobe.question import MAX_OPTIONS, NO_TEXT, TEMPLATES, Question, wording
from videos_of_arrays import gray_pool

every_template = pytest.mark.parametrize("template", list(TEMPLATES))
OTHER_LINES = {"default": 2, "lvbench": 2, "egoschema": 2, "nextqa": 2, "paper": 4}
collapsing_template = pytest.mark.parametrize("template", list(OTHER_LINES))
"""Lines of a prompt besides its options, for a question of one line."""


def cities(**changes: object) -> Question:
    return dataclasses.replace(Question("Which city comes first?", ["Oslo", "Rome", "Lima"]), **changes)  # type: ignore[arg-type]


# Labels.


@pytest.mark.parametrize("count", range(2, 27))
def test_labels_are_those_of_the_questions_own_options(count: int) -> None:
    question = Question("Which?", [f"option {i}" for i in range(count)])

    assert question.labels == tuple(ascii_uppercase[:count])
    assert question.option(question.labels[-1]) == f"option {count - 1}"


def test_two_questions_do_not_share_labels() -> None:
    five, three = Question("Which?", list("vwxyz")), Question("Which?", list("xyz"))

    assert (five.labels, three.labels) == (("A", "B", "C", "D", "E"), ("A", "B", "C"))


def test_option_is_the_text_behind_a_label() -> None:
    assert [cities().option(label) for label in "ABC"] == ["Oslo", "Rome", "Lima"]


@pytest.mark.parametrize("answer", ["A", "B", "C", None])
def test_answer_may_be_any_label_or_unknown(answer: str | None) -> None:
    assert cities(answer=answer).answer == answer


@pytest.mark.parametrize("answer", ["D", "a", "", "Oslo", "AB"])
def test_answer_must_be_a_label(answer: str) -> None:
    with pytest.raises(UsageError, match=f"the answer '{answer}' is not one of the labels A, B, C"):
        cities(answer=answer)


@pytest.mark.parametrize("count", [2, 5, 8, 26])
def test_q02_an_answer_has_the_letters_of_its_own_options(count: int) -> None:
    question = Question("Which?", [f"option {i}" for i in range(count)])
    model = MockModel(lambda request: {label: 1.0 + i for i, label in enumerate(request.labels)})

    posterior = Session(gray_pool(9), model=model, k=3).ask(question).posterior

    assert posterior.labels == question.labels == tuple(ascii_uppercase[:count])
    assert sum(posterior.probabilities.values()) == pytest.approx(1.0)


@every_template
def test_answer_is_not_shown_to_the_model(template: str) -> None:
    assert cities(template=template, answer="B").prompt == cities(template=template).prompt


# Options.


# Q01 and Q03 of tests/reliability.md
@pytest.mark.parametrize("count", [1, 27, 100])
def test_too_few_or_too_many_options_are_refused_with_their_count(count: int) -> None:
    with pytest.raises(UsageError, match=f"needs 2 to 26 options, got {count}; an open one has none"):
        Question("Which?", [f"option {i}" for i in range(count)])


def test_most_options_are_one_for_each_letter() -> None:
    assert MAX_OPTIONS == 26


def test_one_text_is_not_a_list_of_options() -> None:
    with pytest.raises(UsageError, match="must be a list of texts, got 'yes'"):
        Question("Is it?", "yes")


def test_options_are_frozen_whatever_they_were_given_as() -> None:
    given_options = ["yes", "no"]
    question = Question("Is it?", given_options)

    given_options.append("maybe")

    assert question.options == ("yes", "no")
    assert question == Question("Is it?", ("yes", "no"))
    assert hash(question) == hash(Question("Is it?", ("yes", "no")))


def test_options_may_come_from_a_generator() -> None:
    assert Question("Is it?", (text for text in ("yes", "no"))).options == ("yes", "no")  # type: ignore[arg-type]


def test_question_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cities().text = "another"  # type: ignore[misc]


# Text that no model can be shown.


# Q01 of tests/reliability.md
@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000", "\u00a0"])
def test_blank_question_is_refused(blank: str) -> None:
    with pytest.raises(UsageError, match="the question is empty"):
        cities(text=blank)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000", "\u00a0"])
def test_blank_option_is_refused_by_its_label(blank: str) -> None:
    with pytest.raises(UsageError, match="the option B is empty"):
        cities(options=["Oslo", blank, "Lima"])


# Q06 of tests/reliability.md
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"text": "Which\0?"}, "question"),
        ({"options": ["Oslo", "Ro\0me"]}, "option B"),
        ({"subtitles": "hello\0"}, "subtitle text"),
    ],
)
def test_nul_character_is_refused_where_it_is(changes: dict[str, object], name: str) -> None:
    with pytest.raises(UsageError, match=f"the {name} contains a NUL character"):
        cities(**changes)


# Q06 of tests/reliability.md
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"text": "Which\ud83d?"}, "question"),
        ({"options": ["Oslo", "\udc00"]}, "option B"),
        ({"subtitles": "hello \ud800"}, "subtitle text"),
    ],
)
def test_half_a_surrogate_pair_is_refused_where_it_is(changes: dict[str, object], name: str) -> None:
    with pytest.raises(UsageError, match=f"the {name} contains half of a surrogate pair"):
        cities(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": 7}, "the question must be text, got int"),
        ({"options": ["Oslo", None]}, "the option B must be text, got NoneType"),
        ({"options": [1, 2]}, "the option A must be text, got int"),
        ({"options": b"ab"}, "the option A must be text, got int"),
        ({"subtitles": ["line"]}, "the subtitle text must be text, got list"),
    ],
)
def test_anything_but_text_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cities(**changes)


def test_unknown_template_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown prompt template 'papr'; choose one of default, paper"):
        cities(template="papr")


# Q06 of tests/reliability.md
@every_template
@pytest.mark.parametrize(
    "text", ["Wo ist der Bär? 🐻", "מה קורה כאן?", "ماذا يحدث؟", "何が起きますか", "e\u0301 vs é", "👩\u200d🚀"]
)
def test_any_script_goes_through_unchanged(text: str, template: str) -> None:
    prompt = Question(text, [text, "x"], template=template, subtitles=text).prompt

    assert prompt.count(text) == 3


# Oddities that are not errors.


# Q04 of tests/reliability.md
@pytest.mark.parametrize("second", ["Oslo", "oslo", "OSLO", " Oslo ", "\tOslo\n"])
def test_same_option_twice_is_a_warning(second: str) -> None:
    question = Question("Which?", ["Oslo", "Rome", second])

    assert question.warnings == ("options A and C are the same text; their probabilities are not merged",)


def test_q04_equal_options_keep_their_own_probabilities_and_the_answer_has_the_warning() -> None:
    question = Question("Which?", ["Oslo", "Rome", "oslo "])
    model = MockModel(lambda request: {"A": 0.3, "B": 0.4, "C": 0.3})

    answer = Session(gray_pool(9), model=model, k=3).ask(question)

    assert answer.choice == "B", "A and C together are likelier"
    assert answer.posterior.probabilities == pytest.approx({"A": 0.3, "B": 0.4, "C": 0.3})
    assert question.warnings[0] in answer.warnings


def test_inner_white_space_does_not_make_options_different() -> None:
    assert len(Question("Which?", ["the red  door", "The red\ndoor"]).warnings) == 1


def test_each_repetition_names_the_first_of_its_kind() -> None:
    warnings = Question("Which?", ["x", "y", "X", "y", "x"]).warnings

    assert [w[:15] for w in warnings] == ["options A and C", "options B and D", "options A and E"]


def test_case_folding_is_that_of_unicode() -> None:
    assert len(Question("Which?", ["Straße", "STRASSE"]).warnings) == 1


def test_different_options_are_no_warning() -> None:
    assert Question("Which?", ["Oslo", "Oslo.", "Oslo 2"]).warnings == ()


# Prompts, to the letter: a changed prompt is a changed result.


# E26 of tests/reliability.md
def test_default_prompt() -> None:
    assert cities().prompt == (
        "Question: Which city comes first?\n"
        "A. Oslo\n"
        "B. Rome\n"
        "C. Lima\n"
        "Answer with the option's letter from the given choices directly."
    )


def test_default_prompt_with_subtitles() -> None:
    assert cities(subtitles="We left Oslo at dawn.\nRome was next.").prompt == (
        "Subtitles of the video:\n"
        "We left Oslo at dawn.\nRome was next.\n"
        "\n"
        "Question: Which city comes first?\n"
        "A. Oslo\n"
        "B. Rome\n"
        "C. Lima\n"
        "Answer with the option's letter from the given choices directly."
    )


# E26 of tests/reliability.md
def test_paper_prompt() -> None:
    assert cities(template="paper").prompt == (
        "Question: Which city comes first?\n"
        "\n"
        "(A) Oslo\n"
        "(B) Rome\n"
        "(C) Lima\n"
        "\n"
        "Answer with the letter of the correct option."
    )


# E26 of tests/reliability.md
def test_paper_prompt_on_video_mme_v2() -> None:
    question = Question("Which city?", ["Oslo.", "Rome", " Lima "], template="paper-v2")

    assert question.prompt == (
        "Select the best answer to the following multiple-choice question based on the video.\n"
        "Respond with only the letter (A, B, C, D, E, F, G, or H) of the correct option.\n"
        "Question: Which city?\n"
        "A. Oslo.\n"
        "B. Rome.\n"
        "C. Lima."
    )
    said = replace(question, subtitles=" We left Oslo. ").prompt
    assert said == f"This video's subtitles are listed below:\nWe left Oslo.\n\n{question.prompt}"


@pytest.mark.parametrize(
    ("own", "used"),
    [
        ("video-mme-v2", "paper-v2"),
        ("video-mme-v2-interleaved", "paper-v2"),
        ("longvideobench", "paper"),
        ("default", "paper"),
    ],
)
def test_the_preset_paper_has_a_wording_for_each_benchmark_of_the_paper(own: str, used: str) -> None:
    model = MockModel(lambda request: dict.fromkeys(request.labels, 1.0))
    asked = cities(template=own)

    ask(gray_pool(4), asked, model=model, preset="paper", k=2)

    assert {request.prompt for request in model.requests} == {replace(asked, template=used).prompt}
    assert wording("mlvu", own) == "mlvu"


def test_paper_prompt_with_subtitles() -> None:
    assert cities(template="paper", subtitles="We left Oslo at dawn. Rome was next.").prompt == (
        "Video subtitles:\n"
        "We left Oslo at dawn. Rome was next.\n"
        "\n"
        "Question: Which city comes first?\n"
        "\n"
        "(A) Oslo\n"
        "(B) Rome\n"
        "(C) Lima\n"
        "\n"
        "Answer with the letter of the correct option."
    )


V2 = "Select the best answer to the following multiple-choice question based on the video. Respond with only the letter (A, B, C, D, E, F, G, or H) of the correct option."  # noqa: E501


# E26 of tests/reliability.md
def test_video_mme_v2_prompt() -> None:
    asked = f"Question: Which city comes first?\nA. Oslo\nB. Rome\nC. Lima\n{V2}"

    assert cities(template="video-mme-v2").prompt == f"These are the frames of a video.{asked}"
    assert cities(template="video-mme-v2", subtitles="We left Oslo.").prompt == (
        f"These are the frames of a video. This video's subtitles are listed below:\nWe left Oslo.\n{asked}"
    )
    assert cities(template="video-mme-v2-listed").prompt == (
        f"These are the frames of a video. This video's subtitles are listed below:\n\n{asked}"
    )
    assert cities(template="video-mme-v2-interleaved").prompt == (
        "These are the frames of a video with corresponding subtitles shown between frames. "
        "The subtitles indicate what is being said during the time interval between adjacent frames."
        f"{asked}"
    )


# E26 of tests/reliability.md
def test_video_mme_prompt() -> None:
    asked = "Which city comes first?\nA. Oslo\nB. Rome\nC. Lima\nThe best answer is:"
    respond = "Respond with only the letter (A, B, C, or D) of the correct option."
    select = "Select the best answer to the following multiple-choice question based on the video"

    assert cities(template="video-mme").prompt == f"{select}. {respond}\n{asked}"
    assert cities(template="video-mme", subtitles="We left Oslo.").prompt == (
        f"This video's subtitles are listed below:\nWe left Oslo.\n{select}. {respond}\n{asked}"
    )


# E26 of tests/reliability.md
def test_mlvu_prompt() -> None:
    system = (
        "Carefully watch this video and pay attention to every detail. Based on your observations, select the best "
        "option that accurately addresses the question.\n"
    )
    asked = (
        "Question: Which city comes first?\nOptions:\n(A) Oslo\n(B) Rome\n(C) Lima\n"
        "Only give the best option.\nBest Option: ("
    )

    assert cities(template="mlvu").prompt == system + asked
    subtitles = "Subtitles of the video:\nWe left.\n\n"
    assert cities(template="mlvu", subtitles="We left.").prompt == system + subtitles + asked


class TestLmmsEval:
    """The texts of lmms-eval 0.7.3, to the character."""

    SELECT = "Select the best answer to the following multiple-choice question based on the video and the subtitles. Respond with only the letter (A, B, C, or D) of the correct option.\n"  # noqa: E501
    LETTERED = "Which city comes first?\nA. Oslo\nB. Rome\nC. Lima"
    BRACKETED = "Which city comes first?\n(A) Oslo\n(B) Rome\n(C) Lima"
    DIRECTLY = "\nAnswer with the option's letter from the given choices directly."
    V2_ASKED = f"Question: {LETTERED}\n{V2}"

    TEXTS = (
        ("lmms-eval", "egoschema", LETTERED + DIRECTLY),
        ("lmms-eval", "default", LETTERED + DIRECTLY),
        ("lmms-eval", "longvideobench", LETTERED + DIRECTLY + "\n"),
        ("lmms-eval", "nextqa", LETTERED),
        ("lmms-eval", "lvbench", BRACKETED + "\nAnswer the question with the option letter"),
        ("lmms-eval", "mlvu", BRACKETED + "\nOnly give the best option.\nBest option: ("),
        ("lmms-eval", "video-mme", SELECT + LETTERED + "\n" + DIRECTLY),
        ("lmms-eval", "video-mme-v2", V2_ASKED),
        ("lmms-eval", "video-mme-v2-interleaved", V2_ASKED),
        ("lmms-eval-qwen3", "egoschema", LETTERED + DIRECTLY),
        ("lmms-eval-qwen3", "longvideobench", LETTERED + DIRECTLY + "\n"),
        ("lmms-eval-qwen3", "mlvu", BRACKETED + "\nOnly give the best option.\nBest option: ("),
        (
            "lmms-eval-qwen3",
            "video-mme",
            "Question: Which city comes first?\nOptions:\nA. Oslo\nB. Rome\nC. Lima\n"
            "Answer with the option letter only.",
        ),
        ("lmms-eval-qwen3", "video-mme-v2", f"Question: {LETTERED}\nAnswer with the option letter only."),
    )

    # E26 of tests/reliability.md
    @pytest.mark.parametrize(("template", "own", "expected"), TEXTS)
    def test_without_subtitles(self, template: str, own: str, expected: str) -> None:
        model = MockModel(lambda request: dict.fromkeys(request.labels, 1.0))

        ask(gray_pool(4), cities(template=own), model=model, k=2, template=template, effort="quick")

        assert {request.prompt for request in model.requests} == {expected}

    @pytest.mark.parametrize(
        ("template", "own", "expected"),
        [
            (
                "lmms-eval",
                "video-mme",
                f"This video's subtitles are listed below: \nWe left.\n{SELECT}{LETTERED}\nThe best answer is:",
            ),
            ("lmms-eval", "video-mme-v2-listed", f"This video's subtitles are listed below:\nWe left.\n\n{V2_ASKED}"),
            (
                "lmms-eval-qwen3",
                "video-mme",
                "This video's subtitles are listed below: \nWe left.\nQuestion: Which city comes first?\nOptions:\n"
                "A. Oslo\nB. Rome\nC. Lima\nAnswer with the option letter only.",
            ),
            (
                "lmms-eval-qwen3",
                "video-mme-v2-listed",
                f"This video's subtitles are listed below:\nWe left.\n\nQuestion: {LETTERED}\n"
                "Answer with the option letter only.",
            ),
            ("lmms-eval", "mlvu", f"Subtitles of the video:\nWe left.\n\n{TEXTS[5][2]}"),  # it has no wording for them
        ],
    )
    def test_with_a_block_of_subtitles(self, template: str, own: str, expected: str) -> None:
        assert cities(template=wording(template, own), subtitles="We left.").prompt == expected

    def test_an_empty_question_of_mlvu_is_shown_as_empty(self) -> None:
        asked = Question(NO_TEXT, [NO_TEXT, "x"], template=wording("lmms-eval", "mlvu"))

        assert asked.prompt == "\n(A) \n(B) x\nOnly give the best option.\nBest option: ("


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name not in (*OTHER_LINES, "paper-v2")])
def test_official_prompts_keep_the_white_space_of_options(template: str) -> None:
    assert "the  red\tdoor \n" in Question("Which?", ["the  red\tdoor ", "x"], template=template).prompt


def test_paper_prompt_cuts_subtitles_at_3000_characters() -> None:
    subtitles = "é" * 2999 + "YZ"

    prompt = cities(template="paper", subtitles=subtitles).prompt

    assert prompt.startswith("Video subtitles:\n" + "é" * 2999 + "Y\n\nQuestion: ")


def test_default_prompt_keeps_all_subtitles() -> None:
    subtitles = "word " * 5000 + "end"

    assert subtitles in cities(subtitles=subtitles).prompt


# Q05 of tests/reliability.md
@pytest.mark.parametrize(
    "newline", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
@collapsing_template
def test_option_with_a_line_break_cannot_pass_for_two_options(template: str, newline: str) -> None:
    plain = Question("Which?", ["Oslo B. Rome (B) Rome", "Lima"], template=template)
    broken = Question("Which?", [f"Oslo{newline}B. Rome{newline}{newline}(B) Rome", "Lima"], template=template)

    assert broken.prompt == plain.prompt


@collapsing_template
@given(
    options=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), min_size=2, max_size=6)
)
def test_every_option_is_one_line_of_the_prompt(options: list[str], template: str) -> None:
    question = Question("Which?", [f"x{option}" for option in options], template=template)

    lines = question.prompt.splitlines()

    form = "({}) x" if template == "paper" else "{}. x"
    marked = [line for label in question.labels for line in lines if line.startswith(form.format(label))]
    assert len(marked) == len(options)
    assert len(lines) == len(options) + OTHER_LINES[template]


def test_text_of_options_is_kept_as_it_was_given() -> None:
    assert Question("Which?", [" two\nlines ", "x"]).option("A") == " two\nlines "


# Q05 of tests/reliability.md
def test_options_full_of_initials_stay_whole() -> None:
    options = ["John F. Kennedy", "Vitamin D.", "A.", "C.Mission accomplished"]

    assert Question("Who?", options).prompt.splitlines()[1:5] == [
        "A. John F. Kennedy",
        "B. Vitamin D.",
        "C. A.",
        "D. C.Mission accomplished",
    ]
