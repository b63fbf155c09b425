"""Video in, frames out: the only part of gridprobe that opens or decodes a video.

    pool = sample("talk.mp4", cells=144)      # FramePool: pixels, true times, warnings
    info = probe("talk.mp4")                  # VideoInfo: size, rate, duration, codec
    footage = Footage("talk.mp4", cells=144)  # opened once, decoded as far and as large as it is looked at
    found = preview("talk.mp4", cells=144)    # Preview: what decoding it would take, told without decoding

Times     Seconds from the start of the presentation, the stream's own start time subtracted, edit lists applied. The
          frame for a moment is the one on display then: the last that starts at or before it (the first, if none does).
          A frame's time is its true time stamp, never number ÷ mean rate. "middle" sampling is even in time, also for
          a variable frame rate; "linspace" is even in frame numbers and reads every packet once to count them.
Precision "exact" (the default here) is bit for bit what decoding the whole file would give. "keyframe" takes the
          nearest keyframe. "auto" does so where one is at most a fifth of a cell away (AUTO_FRACTION), and is exact
          elsewhere; no cell is lost by it. Where a container cannot be searched for keyframes, all three are exact.
Frames    Upright, square pixels, 8-bit RGB, scaled inside the decoder. All frames of a pool have one size.
Few       A frame on display at several sampled moments appears once, so a short video gives a pool with fewer frames,
          and a warning says how many.
Sizes     A Footage is looked at, measured and planned once. All its frames at a small size and some of them at native
          size are two passes by one plan; the second gives bit for bit what decoding everything at native size gives.
          In a damaged file it goes the way of the first for that. Known gap: where one reader decodes it all on several
          threads (raw H.264, one giant group), damaged frames can come out differently from pass to pass.
          What was decoded is kept, up to Limits.memory bytes, what was used longest ago going first.
Cache     With a FrameCache a Footage also keeps plans and frames on disk, and a second process opens no decoder for
          them; sample() uses none. The rules stand in gridprobe.video.disk_cache.
Damage    What the file really holds counts, not its header. A truncated file is sampled over the part that is there.
          Where a frame cannot be decoded, or follows an error in its group of pictures, the nearest good frame within
          half a cell stands in (counted in `substituted`), else the cell is left out. Each gives a warning. A pool with
          more than a fifth of its frames damaged, or none that decodes, is a VideoError, and so is a file that changes
          while it is in use.
Work      Decoding starts at the last keyframe before a moment and ends with the frame wanted; H.264 and HEVC pictures
          that no other refers to are left out. The moments are shared out to one thread per core, each with a decoder.
Decoders  PyAV. torchcodec where asked for: the same plan and the same times, other pixels, and so another source.
Limits    A file must be regular and non-empty, in a container of a fixed list; scripts that name other files (HLS,
          ffconcat, SDP, DASH) are refused. Pixels, duration and number of streams are checked before decoding, and one
          wall clock covers all work on a video, looked at between packets. Every failure is a VideoError of one line
          that names the file.
Child     `sample_in_child` does the same in a process with limits on memory and processor time, and kills it when the
          clock runs out: for videos from strangers, since a decoder can crash, or hang inside a single call.
Folders   A folder of pictures is a video of one second per picture, or as its times.json says; GIF is a video file.

Importing this package does not import PyAV; calling into it does.
"""

from gridprobe.video.child import sample_in_child
from gridprobe.video.disk_cache import FrameCache, cache_folder, open_cache
from gridprobe.video.footage import Footage, Moved, sample
from gridprobe.video.frames import NATIVE, FramePool, FrameSize, Pending
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Limits
from gridprobe.video.plan import AUTO_FRACTION
from gridprobe.video.preview import Preview, preview
from gridprobe.video.sampling import Decoder, Precision, SampleSpec, Sampling
from gridprobe.video.source import probe

__all__ = [
    "AUTO_FRACTION",
    "NATIVE",
    "Decoder",
    "Footage",
    "FrameCache",
    "FramePool",
    "FrameSize",
    "Limits",
    "Moved",
    "Pending",
    "Precision",
    "Preview",
    "SampleSpec",
    "Sampling",
    "VideoInfo",
    "cache_folder",
    "open_cache",
    "preview",
    "probe",
    "sample",
    "sample_in_child",
]
