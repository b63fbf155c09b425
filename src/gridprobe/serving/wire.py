"""What the routes under /v1/gridprobe/ take, as pydantic models; nothing behind HTTP uses them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from gridprobe.errors import UsageError
from gridprobe.question import MAX_OPTIONS, Question

__all__ = ["AskBody", "PlanBody", "SessionBody", "SettingsBody", "Strict"]

Options = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=MAX_OPTIONS)]
Name = Annotated[str, Field(max_length=60)]
Video = Annotated[str, Field(min_length=1, description="upload://ID, session://ID, a file's name, or a data: address")]


class Strict(BaseModel):
    """Unknown fields and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SettingsBody(Strict):
    """Settings of `gridprobe ask`, with the same words."""

    k: int | None = Field(default=None, ge=1, le=64, description="K² frames are sampled")
    frames: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] | None = None
    effort: Literal["quick", "auto", "full", "focus"] | None = None
    sure: Annotated[FiniteFloat, Field(ge=0, le=1)] | Literal["calibrated"] | None = None
    budget: Name | None = None
    probes: Literal["fresh", "attention"] | None = None
    selector: Literal["gridprobe", "uniform", "random", "all", "all-small"] | None = None
    refine: bool | None = None
    rotations: int | None = Field(default=None, ge=1, le=MAX_OPTIONS)
    context: Literal["none", "small"] | None = None
    open_way: Literal["drafts", "text"] | None = None
    order: Literal["time", "importance"] | None = None
    seed: int | None = Field(default=None, ge=0, le=2**31)
    stream: int | None = Field(default=None, ge=0, le=999, description="number of the video stream, if several")
    max_frames: int | None = Field(default=None, ge=1, le=4096, description="the most frames shown at native size")
    max_tokens: int | None = Field(default=None, ge=1, le=2**40, description="the most tokens of all passes")
    max_tflops: FiniteFloat | None = Field(default=None, gt=0, description="the most TFLOPs of all passes")
    max_seconds: FiniteFloat | None = Field(default=None, gt=0, description="as planned from the measured speed")

    def changes(self) -> tuple[dict[str, Any], str]:
        """The settings that were given, and the selector."""
        given = {name: value for name in SettingsBody.model_fields if (value := getattr(self, name)) is not None}
        return given, given.pop("selector", "gridprobe")


class SessionBody(Strict):
    """A video to open."""

    video: Video
    settings: SettingsBody = SettingsBody()
    user: str | None = Field(default=None, max_length=200)


class PlanBody(Strict):
    """A question that may be asked, and how."""

    settings: SettingsBody = SettingsBody()
    question: str = Field(default="", max_length=20_000)
    options: Options = Field(default_factory=list)

    def asked(self) -> Question | None:
        """The question; None for a typical one."""
        return _question(self.question, self.options) if self.question.strip() else None


class AskBody(SessionBody):
    """A question about a video."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "video": "talk.mp4",
                    "question": "Which colour is the ball?",
                    "options": ["red", "blue"],
                    "settings": {"effort": "auto", "k": 12},
                    "map": True,
                },
                {"video": "upload://5f0c2d6e4b7a49f38f6d2b1c0a9e8d7c", "question": "What happens at the end?"},
            ]
        }
    )
    question: str = Field(max_length=20_000)
    options: Options = Field(default_factory=list, description="2 to 26; none makes it an open question")
    map: bool = Field(default=False, description="make the map also where the overview settles the question")
    subtitles: str = Field(default="", max_length=1_000_000)

    def asked(self) -> Question:
        """The question."""
        return _question(self.question, self.options, self.subtitles)


def _question(text: str, options: list[str], subtitles: str = "") -> Question:
    try:
        return Question(text, options, subtitles=subtitles)
    except UnicodeError:
        raise UsageError("the question contains characters that are not valid text") from None
