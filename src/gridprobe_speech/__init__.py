"""Speech: what is said in a video without subtitles, and what recognises it, for the registries of gridprobe."""

from gridprobe.registry import Entry

__all__ = ["FASTER_WHISPER", "SERVER"]

FASTER_WHISPER = Entry(
    "gridprobe_speech.transcribe:faster_whisper",
    "Whisper on this machine: a folder, or a name such as small or large-v3-turbo; the prefix may be left out",
    argument="FOLDER|NAME",
    extra="speech",
)
SERVER = Entry(
    "gridprobe_speech.transcribe:server",
    "a server with /v1/audio/transcriptions, such as http://localhost:8000/v1#MODEL; the prefix may be left out",
    argument="URL[#MODEL]",
    extra="speech",
)
