"""Video in, frames out: the only part of gridprobe that opens or decodes a video.

    pool = sample("talk.mp4", num_frames=144)   # FramePool: pixels, true times, warnings
    info = probe("talk.mp4")                    # VideoInfo: size, rate, duration, codec
    video = Video("talk.mp4", num_frames=144)   # opened once; frames are decoded when needed, at the size needed
    plan = preview("talk.mp4", num_frames=144)  # Preview: what decoding would take, found without decoding

Times     Seconds from the start of the presentation; the stream's start time is subtracted and edit lists are applied.
          The frame for a moment is the one on display then: the last that starts at or before it (else the first).
          A frame's time is its true timestamp, never number ÷ mean rate. "middle" sampling is even in time, also for
          a variable frame rate; "linspace" is even in frame numbers and reads every packet once to count them.
Precision "exact" (the default here) is bit for bit what decoding the whole file would give. "keyframe" takes the
          nearest keyframe. "auto" does so if one is at most a fifth of a cell away (AUTO_FRACTION), and is exact
          elsewhere; it loses no cell. Where that would take more work than one keyframe for each cell, so more than an
          hour of the same video, keyframes further away are taken and a warning says so; short videos of small frames
          may take more. In a container that cannot be searched for keyframes, all three are exact.
Frames    Upright, square pixels, 8-bit RGB, scaled in the decoder. All frames of a pool have one size.
Repeats   A frame on display at several sampled moments appears once, so a short video gives a pool with fewer frames,
          and a warning says how many.
Sizes     A Video is inspected, measured and planned once. All its frames at a small size and some of them at full
          size are two passes with one plan; the second gives bit for bit what decoding everything at full size gives.
          In a damaged file it repeats the first pass for that. Known gap: if one reader decodes the whole video on
          several threads (raw H.264, one giant group), damaged frames can differ from pass to pass.
          Decoded frames stay in memory, up to VideoLimits.memory bytes; the least recently used are evicted first.
Cache     With a FrameCache, a Video also stores plans and frames on disk, and a second process opens no decoder for
          them; sample() uses no cache. The rules are in gridprobe.video.cache.
Damage    The file's content counts, not its header. A truncated file is sampled over the part that is there. If a
          frame cannot be decoded, or follows an error in its group of pictures, the nearest good frame within half a
          cell replaces it (counted in `substituted`); without one, the cell is left out. Each gives a warning. A pool
          with more than a fifth of its frames damaged, or with none that decodes, is a VideoError, and so is a file
          that changes while it is in use.
Work      Decoding starts at the last keyframe before a moment and ends with the wanted frame; unreferenced pictures in
          H.264 and HEVC are skipped. The moments are divided among threads, one per core, each with its own decoder.
Limits    A file must be regular and non-empty, in a container from a fixed list; scripts that name other files (HLS,
          ffconcat, SDP, DASH) are refused. Pixels, duration and number of streams are checked before decoding. One
          time limit covers all work on a video; it is checked between packets. Every failure is a VideoError of one
          line that names the file.
Child     With decode_in="child", as in `ask` and `eval`, a process with limits on memory and time does all of it, from
          the first look at the path on, and is killed when the time is up: a decoder can crash, or hang inside a single
          call. It is kept for the next request and ends with this process. Frames come through shared memory. It sees
          no keys, and where Linux has Landlock and seccomp it cannot write files, start programs or connect.
Streams   Of several video streams the default one is read, else the largest; `stream` chooses another by its number. A
          chosen stream is another source, so streams share no cache entry.
Folders   A folder of pictures is a video of one second per picture, or as its times.json says; GIF is a video file.

Importing this package does not import PyAV; calling into it does.
"""

from gridprobe.video.cache import FrameCache, cache_folder, open_cache
from gridprobe.video.decode import Preview, preview
from gridprobe.video.files import VideoLimits
from gridprobe.video.frames import NATIVE, FramePool, FrameSize, Pending
from gridprobe.video.sampling import AUTO_FRACTION, DecodeIn, Precision, SampleSpec, Sampling, Window
from gridprobe.video.source import VideoInfo, probe
from gridprobe.video.video import CLIP_FORMATS, Cut, Moved, Video, cut, sample, write_video

__all__ = [
    "AUTO_FRACTION",
    "CLIP_FORMATS",
    "NATIVE",
    "Cut",
    "DecodeIn",
    "FrameCache",
    "FramePool",
    "FrameSize",
    "Moved",
    "Pending",
    "Precision",
    "Preview",
    "SampleSpec",
    "Sampling",
    "Video",
    "VideoInfo",
    "VideoLimits",
    "Window",
    "cache_folder",
    "cut",
    "open_cache",
    "preview",
    "probe",
    "sample",
    "write_video",
]
