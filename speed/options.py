"""How well the embedded models answer yes/no questions, and questions with 2 to 8 options.

    python speed/options.py --videos 40 > table.md        # both models; speed/results/options.md

Each question is asked about all 144 frames of 64 pixels in one pass, about videos of the test split. A yes/no question
is asked in both orders of its options. What is claimed wrongly about the presence of something is a look-alike: its
shape in the colour of another, its colour on another shape. Wrong options are drawn from all words of their kind that
are wrong: 7 colours, 8 digits, and up to 5 shapes.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from gridprobe.models import FrameGroup, Request, View, choose, load_model
from gridprobe.question import Question
from gridprobe.video import FrameSize
from gridprobe_world.dataset import ASKED, rendered, script
from gridprobe_world.questions import FAMILIES, WORDINGS, ask_yes_no
from gridprobe_world.world import SHAPES, TEST_SEEDS, Worlds

SIDE = 64
NUMBERS = (2, 3, 4, 5, 6, 8)
KINDS = {"needle": "colours", "redundant": "colours", "detail": "digits", "negation": "shapes", "order": "shapes"}
"""Family -> the kind of its options."""


def yes_no_questions(world: Worlds, rng: random.Random) -> Iterator[tuple[str, Question]]:
    """A yes/no question of each family, in both orders, with the row of the table that it counts in."""
    for family in ASKED["yes-no"][0]:
        if made := ask_yes_no(world, 0, family, rng):
            question, truth = made.question, made.right.casefold()
            other = replace(question, options=question.options[::-1], answer="AB"[question.answer == "A"])
            for each in (question, other):
                yield "yes/no", each
                yield f"yes/no, {each.options[0].casefold()} comes first", each
                yield f"yes/no, {truth} is right", each
                yield f"yes/no, {family}", each


def lettered_questions(world: Worlds, rng: random.Random) -> Iterator[tuple[str, Question]]:
    """The questions of one script with every number of options that its wrong answers allow."""
    shown = [SHAPES[shape] for shape in world.shape[0]]
    for family, kind in KINDS.items():
        draft = FAMILIES[family](world, 0, rng)
        if draft is None or draft.right is None:
            continue
        text = rng.choice(WORDINGS[draft.wording]).format(shape=draft.shape)
        strangers = [shape for shape in SHAPES if shape not in (*shown, *draft.wrong)] if family == "order" else []
        wrong = [*draft.wrong, *strangers]
        for number in NUMBERS:
            if len(wrong) >= number - 1:
                options = rng.sample([draft.right, *rng.sample(wrong, number - 1)], number)
                yield f"{number} {kind}", Question(text, options, answer="ABCDEFGH"[options.index(draft.right)])


def shares(name: str, first: int, videos: int) -> dict[str, tuple[int, int]]:
    """Row of the table -> right answers and questions."""
    model, counts = load_model(f"embedded:{name}", device="cpu"), defaultdict[str, list[bool]](list)
    for seed in TEST_SEEDS[first : first + videos]:
        world, rng = script(seed, "standard"), random.Random(seed)
        pool = rendered(world, 100.0, source=f"options:{seed}", cells=144, size=SIDE, device="cpu")
        asked = [*yes_no_questions(world, rng), *lettered_questions(world, rng)]
        groups = (FrameGroup(pool, View(FrameSize(max_side=SIDE))),)
        distinct = list(dict.fromkeys(question for _, question in asked))
        posteriors = choose(model, [Request.about(each, groups, keep_kv=True) for each in distinct])
        right = {question: each.choice == question.answer for question, each in zip(distinct, posteriors, strict=True)}
        for row, question in asked:
            counts[row].append(right[question])
    return {row: (sum(answers), len(answers)) for row, answers in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=50000, help="The number of the first video.")
    parser.add_argument("--videos", type=int, default=40)
    given = parser.parse_args()
    micro, nano = (shares(name, given.first, given.videos) for name in ("micro", "nano"))
    print("| | questions | micro, right % | nano, right % |\n|---|---:|---:|---:|")
    for row, (right, count) in sorted(micro.items(), key=lambda each: (each[0][0].isdigit(), each[0])):
        print(f"| {row} | {count} | {100 * right / count:.1f} | {100 * nano[row][0] / count:.1f} |")


if __name__ == "__main__":
    main()
