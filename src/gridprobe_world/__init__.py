"""gridworld: a procedural world of videos, questions and answers, the small models that understand it, and the demo."""

from gridprobe.registry import ASKING, HELP, Entry

__all__ = [
    "DEMO",
    "EMBEDDED_ENCODER",
    "EMBEDDED_MODEL",
    "GRIDWORLD_BENCHMARK",
    "NEEDLES",
    "PROFILE",
]

EMBEDDED_MODEL = Entry(
    "gridprobe_world.embedded",
    "the models inside gridprobe, micro (10 M parameters) and nano (3 M); they know only gridworld",
    argument="micro|nano",
    optional=True,
    extra="local",
)
EMBEDDED_ENCODER = Entry(
    "gridprobe_world.encoder:load",
    "the encoder inside gridprobe, a CLIP of 2.6 M parameters; it knows only gridworld",
    extra="local",
)
GRIDWORLD_BENCHMARK = Entry(
    "gridprobe_world.dataset",
    "generated for the embedded models, with the intervals that hold the evidence; needs no data",
)
NEEDLES = Entry("gridprobe_world.profiling:short_profile", "which attention heads find needles")
PROFILE = Entry("gridprobe_world.command:profile", "Measure what a model can do, with needles.", section=HELP)
DEMO = Entry("gridprobe_world.command:demo", "Try the method on two generated videos; needs no data.", section=ASKING)
