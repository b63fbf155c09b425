"""Published selectors, encoders, and `gridprobe compare`: what they offer to the registries of gridprobe."""

from gridprobe.registry import ASKING, Entry

__all__ = [
    "AKS",
    "AVUA",
    "BOLT",
    "CLIP",
    "CLIP_ENCODER",
    "COMPARE",
    "FOCUS",
    "FRAG",
    "HYBRID",
    "KEYFRAMES",
    "MDP3",
    "Q_FRAME",
    "SCORES",
    "SIGLIP",
    "SIGLIP_ENCODER",
    "UNCERTAINTY",
    "VIDEOAGENT",
    "VIDEOATLAS",
    "WAVELET",
]

CLIP_ENCODER = Entry(
    "gridprobe_selectors.encoders:load_clip",
    "CLIP: a folder or a Hugging Face id; openai/clip-vit-large-patch14 if none is given",
    argument="FOLDER|OWNER/NAME",
    optional=True,
    extra="local",
)
SIGLIP_ENCODER = Entry(
    "gridprobe_selectors.encoders:load_siglip",
    "SigLIP or SigLIP2: a folder or a Hugging Face id; google/siglip-so400m-patch14-384 if none is given",
    argument="FOLDER|OWNER/NAME",
    optional=True,
    extra="local",
)
CLIP = Entry(
    "gridprobe_selectors.encoded:clip",
    "the frames most similar to the question by CLIP; any budget rule",
    argument="ENCODER",
    optional=True,
)
SIGLIP = Entry(
    "gridprobe_selectors.encoded:siglip",
    "the frames most similar to the question by SigLIP; any budget rule",
    argument="ENCODER",
    optional=True,
)
MDP3 = Entry(
    "gridprobe_selectors.mdp3:MDP3.make",
    "MDP3: relevant, diverse and sequential frames by SigLIP; published with --frames 8",
    argument="ENCODER",
    optional=True,
)
AKS = Entry(
    "gridprobe_selectors.aks:AKS.make",
    "AKS: splits the video where relevance is even; by CLIP",
    argument="ENCODER",
    optional=True,
)
BOLT = Entry(
    "gridprobe_selectors.bolt:BOLT.make",
    "BOLT: inverse transform sampling of similarities; by CLIP",
    argument="ENCODER",
    optional=True,
)
FOCUS = Entry(
    "gridprobe_selectors.focus:FOCUS.make",
    "FOCUS: a bandit that compares few frames with the question; by SigLIP",
    argument="SEED:ENCODER",
    optional=True,
)
WAVELET = Entry(
    "gridprobe_selectors.wavelet:Wavelet.make",
    "WFS-SB: diverse frames of segments that a wavelet finds; by SigLIP",
    argument="ENCODER",
    optional=True,
)
HYBRID = Entry(
    "gridprobe_selectors.hybrid:Hybrid.make",
    "gridprobe's probes, of the rows and columns that SigLIP finds promising",
    argument="ENCODER",
    optional=True,
)
SCORES = Entry(
    "gridprobe_selectors.imported:imported_scores",
    "frame scores of other programs, such as Frame-Voyager or HFS, which have no public code; by question id",
    argument="FILE",
)
KEYFRAMES = Entry(
    "gridprobe_selectors.imported:imported_keyframes",
    "frames chosen before: score --keyframes, or frame_idx files of AKS and LongVideoBench; by question id",
    argument="FILE",
    frames="none",
)
FRAG = Entry("gridprobe_selectors.agents:Frag.make", "FRAG: the model says of each frame alone whether it is needed")
UNCERTAINTY = Entry(
    "gridprobe_selectors.agents:Uncertainty.make",
    "uncertainty guidance: frames, or windows of them, from which the answer has a low entropy",
    argument="WINDOW",
    optional=True,
)
Q_FRAME = Entry(
    "gridprobe_selectors.q_frame:make",
    "Q-Frame: N frames at full size, 2N at half and 8N at a quarter of the side",
    argument="SEED:ENCODER",
    optional=True,
)
VIDEOAGENT = Entry(
    "gridprobe_selectors.agents:VideoAgent.make",
    "VideoAgent without text: few frames, and at most twice more from the best segments; at most N",
)
VIDEOATLAS = Entry(
    "gridprobe_selectors.agents:VideoAtlas.make",
    "VideoAtlas without text: the model descends through contact sheets",
)
AVUA = Entry(
    "gridprobe_selectors.agents:Avua.make",
    "AVUA, no public code: a policy by type of question, frames accessed in rounds; at most N",
)
COMPARE = Entry(
    "gridprobe_selectors.command:compare_selectors",
    "Ask one question with several selectors, side by side.",
    section=ASKING,
)
