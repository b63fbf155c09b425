"""Frames that were never in a file."""

import numpy as np
import pytest
from PIL import Image

import gridprobe as gp
from gridprobe.errors import UsageError
from gridprobe.models import Request
from gridprobe.video import FramePool
from videos import bars, read_number

FRAMES = np.stack([bars(number, (64, 32)) for number in range(9)])


def test_numpy() -> None:
    pool = FramePool.from_arrays(FRAMES, fps=4)
    assert np.array_equal(pool.pixels, FRAMES)
    assert pool.times == tuple(i / 4 for i in range(9))
    assert FramePool.from_arrays(FRAMES).times == tuple(range(9))


def test_torch_in_both_orders() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(FRAMES)
    for given in (tensor, tensor.permute(0, 3, 1, 2), tensor.permute(0, 3, 1, 2).contiguous()):
        pool = FramePool.from_arrays(given)
        assert np.array_equal(pool.pixels, FRAMES) and pool.pixels.flags.c_contiguous
        assert pool.source == FramePool.from_arrays(FRAMES).source


def test_the_identity_is_that_of_the_content() -> None:
    pool = FramePool.from_arrays(FRAMES)
    assert pool.keys == FramePool.from_arrays(FRAMES.copy()).keys
    assert pool.keys == FramePool.from_arrays(np.asfortranarray(FRAMES)).keys
    changed = FRAMES.copy()
    changed[8, 31, 63, 2] ^= 1
    others = [
        FramePool.from_arrays(changed),
        FramePool.from_arrays(FRAMES, fps=2),
        FramePool.from_arrays(FRAMES.reshape(9, 64, 32, 3)),
    ]
    assert len({pool.source, *(other.source for other in others)}) == 4


def test_what_the_caller_does_later_changes_nothing() -> None:
    frames = FRAMES.copy()
    pool = FramePool.from_arrays(frames)
    frames[:] = 7
    assert np.array_equal(pool.pixels, FRAMES)
    with pytest.raises(ValueError, match="read-only"):
        pool.pixels[0] = 7


@pytest.mark.parametrize("times", [(0.0,) * 9, tuple(range(9, 0, -1))])
def test_times_rise(times: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="the times must rise"):
        FramePool.from_arrays(FRAMES, times)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (FRAMES / 255.0, "frames must be uint8 from 0 to 255, got float64; scale"),
        (FRAMES.astype(np.int64), "got int64"),
        (FRAMES[..., :2], r"shape \(n, h, w, 3\) or \(n, 3, h, w\), got \(9, 32, 64, 2\)"),
        (FRAMES[0], r"got \(32, 64, 3\); make a list of the one picture"),
        (FRAMES[:0], r"got \(0, 32, 64, 3\)"),
        ([FRAMES[0], FRAMES[0, 1:]], "all frames must have one size, got 64×31 and 64×32; resize them"),
        (["a.png"], "a video is a path, or frames as a uint8 array or torch tensor .*; got a list of str"),
        (open, "or a list of PIL pictures; got builtin_function_or_method"),
        ([], "got "),
    ],
)
def test_what_is_not_frames_is_refused(frames: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        FramePool.from_arrays(frames)


def test_wrong_times_and_rates_are_refused() -> None:
    with pytest.raises(UsageError, match="one time for each frame, got 9 frames and 2 times"):
        FramePool.from_arrays(FRAMES, (0.0, 1.0))
    for fps in (0, -1.0, float("nan"), float("inf"), "2"):
        with pytest.raises(UsageError, match="fps must be a number above 0"):
            FramePool.from_arrays(FRAMES, fps=fps)  # type: ignore[arg-type]


def test_a_question_about_arrays() -> None:
    """The scripted model is sure where it sees frame 5."""

    def observe(request: Request) -> dict[str, float]:
        shown = [frame for group in request.groups for frame in group.frames.pixels]
        return {"A": 0.9 if any(read_number(frame) == 5 for frame in shown) else 0.5, "B": 0.1}

    pool = FramePool.from_arrays(FRAMES, fps=2)
    answer = gp.ask(
        pool, gp.Question("Where?", options=["a", "b"]), model=gp.MockModel(observe), k=3, frames=1, effort="full"
    )
    assert answer.selection.timestamps == (2.5,)
    assert answer.to_dict()["video"] is None


@pytest.mark.parametrize("kind", ["array", "channels first", "tensor", "pictures", "arrays", "tensors"])
def test_frames_as_a_programmer_has_them(kind: str) -> None:
    torch = pytest.importorskip("torch")
    frames = {
        "array": FRAMES,
        "channels first": FRAMES.transpose(0, 3, 1, 2),
        "tensor": torch.from_numpy(FRAMES),
        "pictures": [Image.fromarray(frame) for frame in FRAMES],
        "arrays": list(FRAMES),
        "tensors": list(torch.from_numpy(FRAMES).permute(0, 3, 1, 2)),
    }[kind]
    model, times = gp.MockModel(lambda request: {"A": 1.0, "B": 0.1}), [float(3 * i) for i in range(9)]

    plain = gp.ask(frames, "Where?", options=["a", "b"], model=model, k=3)
    timed = gp.ask(frames, "Where?", options=["a", "b"], model=model, k=3, times=times)

    assert np.array_equal(plain.pool.pixels, FRAMES) and plain.pool.times == tuple(range(9))
    assert timed.pool.times == tuple(times) and timed.choice == plain.choice == "A"


def test_pictures_with_transparency_or_a_palette_are_shown_as_colours() -> None:
    pictures = [Image.fromarray(frame).convert(mode) for frame in FRAMES for mode in ("RGBA", "P", "L")]

    assert FramePool.from_arrays(pictures).pixels.shape == (27, 32, 64, 3)


def test_a_video_knows_its_own_times() -> None:
    with pytest.raises(UsageError, match="times= are those of your own frames"):
        gp.Session("talk.mp4", model=gp.MockModel(lambda request: {}), times=[0.0])
