import numpy as np

from gridprobe.video import FramePool
from gridprobe.video.frames import collage
from videos_of_arrays import gray_pool


def test_five_frames_fill_a_three_by_three_board_in_reading_order() -> None:
    levels = np.array([50, 100, 150, 200, 250], dtype=np.uint8)
    pixels = np.broadcast_to(levels[:, None, None, None], (5, 64, 64, 3)).copy()
    board = collage(FramePool(pixels, (1.0, 2.0, 3.0, 4.0, 5.0), "x")).pixels[0]

    tile = 2048 // 3
    centres = [board[r * tile + tile // 2, c * tile + tile // 2, 0] for r in range(3) for c in range(3)]
    assert centres == [50, 100, 150, 200, 250, 0, 0, 0, 0]


def test_frames_keep_their_aspect() -> None:
    pixels = np.full((1, 50, 100, 3), 255, dtype=np.uint8)
    board = collage(FramePool(pixels, (0.0,), "x")).pixels[0]

    lit = np.flatnonzero(board[:, 1024, 0])
    assert (lit[0], lit[-1]) == (512, 1535)  # half as high as wide, in the middle


def test_other_frames_are_another_picture_with_another_identity() -> None:
    pool = gray_pool(6)

    first, second = collage(pool.take([0, 1])), collage(pool.take([0, 2]))

    assert first.keys != second.keys
    assert first.keys == collage(pool.take([0, 1])).keys
