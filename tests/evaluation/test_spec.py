"""A folder has one spec: what may differ, and how a difference is told."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gridprobe.errors import DataError, UsageError
from gridprobe.options import Options, parse_changes
from gridprobe.video import FrameSize, VideoLimits
from gridprobe_eval.reader import Spec


def described(model: str = "m/m", answer_model: str | None = None, **changes: Any) -> dict[str, Any]:
    return Options(**changes).resolve(model=model, answer_model=answer_model).describe()


SPEC = Spec("toy", "toy-6", "/data", described(), limit=5, ids=("a", "b"))


def test_a_spec_is_the_same_after_a_trip_to_disk() -> None:
    again = Spec.from_json(SPEC.to_json(), where="spec.json")

    again.require_same(SPEC, where="run")
    assert again.fingerprint == SPEC.fingerprint
    assert json.loads(SPEC.to_json())["schema"] == "gridprobe.spec/2"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"limit": 6}, "limit was 5 and is now 6"),
        ({"ids": ("a",)}, r'ids was \["a", "b"\] and is now \["a"\]'),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"setup": described("n/n")}, r'setup\.selector\.model was "m/m" and is now "n/n"; setup\.answerer was "m/m"'),
        ({"setup": described(answer_model="n/n")}, r'setup\.answerer was "m/m" and is now "n/n"'),
        ({"subtitles": "concat"}, 'subtitles was "none" and is now "concat"'),
        ({"benchmark_version": "toy-7"}, 'benchmark_version was "toy-6"'),
        ({"setup": described(k=3)}, r"setup\.sampling\.k was 12 and is now 3"),
        (
            {"setup": described(small=FrameSize(max_side=96))},
            r"setup\.selector\.view\.pixels\.max_side was 224 and is now 96",
        ),
    ],
)
def test_another_spec_is_refused_with_the_field_and_both_values(change: dict[str, Any], told: str) -> None:
    other = replace(SPEC, **change)

    with pytest.raises(UsageError, match=rf"^run was begun with another spec: {told}.*; name another folder"):
        other.require_same(SPEC, where="run")
    assert other.fingerprint != SPEC.fingerprint


def test_data_may_move_and_packages_may_be_newer() -> None:
    other = replace(SPEC, data="/elsewhere", versions={"av": "99"})

    other.require_same(SPEC, where="run")
    assert other.fingerprint == SPEC.fingerprint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", SPEC.to_json().replace('"limit": 5', '"limit": 6')])
def test_what_is_no_spec_or_was_changed_by_hand_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"spec\.json"):
        Spec.from_json(text, where="spec.json")


def test_settings_are_read_from_texts() -> None:
    changes = parse_changes(["frames=shape:0.5", "show=collage", 'small={"max_side": 96}', "limits.seconds=30"])

    changed = Options().changed(**changes)
    assert changed.chosen == {"frames", "show", "small", "limits"}
    assert replace(changed, chosen=frozenset()) == Options(
        frames="shape:0.5", show="collage", small=FrameSize(max_side=96), limits=VideoLimits(seconds=30)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("k", "=3", "k=three", "k=3.5", "k=true", "frames=many", "frames=0", "show=size", "nothing=1", "refine=1"),
        *('limits={"days": 1}', "limits=5", 'small={"max_side": 96, "x": 1}', "template=3"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError):
        Options().changed(**parse_changes([text]))
