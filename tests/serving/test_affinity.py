"""Which of several servers a request belongs to."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gridprobe_serve import errors
from gridprobe_serve.store import AllowedFolders

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))
from ray_affinity import affinity_of, mark_of, owned_by, ranked

ASK = "/v1/gridprobe/ask"
MARKS = st.lists(st.text("0123456789abcdef", min_size=8, max_size=8), min_size=2, max_size=8, unique=True)


def ask(video: object) -> bytes:
    return json.dumps({"video": video, "question": "What?"}).encode()


def chat(*parts: Mapping[str, object]) -> bytes:
    content = [*parts, {"type": "text", "text": "What?"}]
    return json.dumps({"model": "gridprobe", "messages": [{"role": "user", "content": content}]}).encode()


@given(MARKS, st.text(min_size=1))
def test_a_server_that_goes_moves_only_its_own_videos(marks: list[str], affinity: str) -> None:
    order = ranked(affinity, marks)
    assert sorted(order) == sorted(marks) and ranked(affinity, marks[::-1]) == order
    for gone in marks:
        assert ranked(affinity, [each for each in marks if each != gone]) == [each for each in order if each != gone]


def test_videos_are_spread_over_the_servers() -> None:
    marks = [mark_of(f"replica {number}") for number in range(4)]
    first = [ranked(f"video {number}", marks)[0] for number in range(400)]
    assert all(60 < first.count(mark) < 140 for mark in marks)


def test_all_spellings_of_a_file_belong_together_and_other_files_do_not(tmp_path: Path) -> None:
    folder = AllowedFolders.at(tmp_path)
    names = ["sub/talk 1.mp4", f"{folder.roots[0]}/sub/talk 1.mp4", f"file://{folder.roots[0]}/sub/talk%201.mp4"]
    found = {affinity_of(ASK, ask(name), folder) for name in names}
    part = {"type": "video_url", "video_url": {"url": names[2]}}
    found |= {affinity_of("/v1/chat/completions", chat(part, {"video_url": "second.mp4"}), folder)}
    seen = [{"type": "video", "source": {"type": "url", "url": names[1]}}, {"type": "text", "text": "What?"}]
    body = {"model": "gridprobe", "max_tokens": 9, "messages": [{"role": "user", "content": seen}]}
    found |= {affinity_of("/v1/messages", json.dumps(body).encode(), folder)}
    seen = [{"type": "input_video", "video_url": names[0]}, {"type": "input_text", "text": "What?"}]
    body = {"model": "gridprobe", "input": [{"role": "user", "content": seen}]}
    found |= {affinity_of("/v1/responses", json.dumps(body).encode(), folder)}
    assert len(found) == 1 and None not in found
    assert affinity_of(ASK, ask("talk.mp4"), folder) not in found


def test_media_in_a_request_belong_together_by_content() -> None:
    pictures = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{name}"}} for name in ("AAAA", "BBBB")
    ]
    one, other = (affinity_of("/v1/chat/completions", chat(*each)) for each in (pictures, pictures[::-1]))
    assert one == affinity_of("/v1/chat/completions", chat(*pictures)) and one != other and one and other


def test_an_id_belongs_to_the_server_that_made_it() -> None:
    marks = [mark_of(str(number)) for number in range(5)]
    for mark in marks:
        errors.mark_ids(mark)
        try:
            id = errors.new_id()
        finally:
            errors.mark_ids("")
        for path, body in (
            (f"/v1/gridprobe/jobs/{id}/events", b""),
            (f"/v1/gridprobe/sessions/{id}", b""),
            (ASK, ask(f"upload://{id}")),
            (ASK, ask(f"session://{id}")),
        ):
            affinity = affinity_of(path, body)
            assert affinity == owned_by(mark) and ranked(affinity, marks)[0] == mark
    assert len(errors.new_id()) == 32, "without a mark, ids are as before"


def test_requests_that_will_be_refused_and_those_without_a_video_belong_nowhere() -> None:
    for path, body in (
        (ASK, b"no json"),
        (ASK, b"[]"),
        (ASK, ask(5)),
        (ASK, ask({"a": 1})),
        ("/v1/chat/completions", b"{}"),
        ("/v1/chat/completions", chat({"type": "hologram"})),
        ("/v1/chat/completions", chat()),
        ("/v1/responses", b'{"model": "gridprobe", "input": [{"role": "pirate"}]}'),
        ("/v1/models", b""),
    ):
        assert affinity_of(path, body) is None, body
