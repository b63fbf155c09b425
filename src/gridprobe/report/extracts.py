"""What an answer was read from, as files: the kept frames, and a clip of the stretches around them."""

from pathlib import Path

from PIL import Image

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.report.picture import draw_labelled_sheet, encoded, jpeg
from gridprobe.report.saving import check_writable, write_whole
from gridprobe.report.view import AnswerView
from gridprobe.video import CLIP_FORMATS, Cut, VideoLimits, cut

__all__ = ["SHEET", "check_clip", "check_folder", "frame_name", "save_clip", "save_frames"]

SHEET = "contact-sheet.jpg"


def check_folder(folder: Path) -> None:
    """Raise UsageError if frames cannot be saved there; the command line calls this before any work starts."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot save frames in {folder}: it is not a folder; name a new one")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"cannot save frames in {folder}: it is not empty; name a new folder")
    if not folder.is_dir() and not folder.resolve().parent.is_dir():
        raise UsageError(f"cannot save frames in {folder}: the folder {folder.resolve().parent} does not exist")


def check_clip(path: Path, video: Path) -> None:
    """Raise UsageError if no clip of this video can be saved there."""
    check_writable(path)
    if path.suffix.lower() not in CLIP_FORMATS:
        raise UsageError(f"cannot write the clip {path}: its name must end in {', '.join(CLIP_FORMATS)}")
    if video.is_dir():
        raise UsageError(f"cannot cut a clip from {video}: it is a folder of pictures; use --save-frames")
    if path.resolve() == video.resolve():
        raise UsageError(f"cannot write the clip {path}: it is the video itself; name another file")


def save_frames(answer: Answer, folder: Path) -> None:
    """Write the kept frames, named by their times, and the contact sheet as JPEG files into a new folder."""
    check_folder(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror}; name another") from None
    view = AnswerView(answer)
    for index in answer.selection.indices:
        frame = Image.fromarray(view.pixels[index])
        write_whole(folder / frame_name(answer.pool.times[index]), jpeg(frame, quality=92))
    write_whole(folder / SHEET, encoded(draw_labelled_sheet(view), folder / SHEET))


def frame_name(time: float) -> str:
    """For example "frame-0h02m40.25s.jpg"; names sort by time."""
    hundredths = round(time * 100)
    minutes, rest = divmod(hundredths, 6000)
    return f"frame-{minutes // 60}h{minutes % 60:02d}m{rest / 100:05.2f}s.jpg"


def save_clip(answer: Answer, video: Path, path: Path, *, limits: VideoLimits) -> Cut | None:
    """Write the stretches around the main kept frames; None if the answer does not point at any moment."""
    stretches = AnswerView(answer).clip_stretches
    if not stretches:
        return None
    stream = answer.pool.info.stream if answer.pool.info else None
    made = cut(video, stretches, suffix=path.suffix.lower(), limits=limits, stream=stream)
    write_whole(path, made.content)
    return made
