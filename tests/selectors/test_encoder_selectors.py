"""What is special about each selector that compares frames with the question."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal as scipy_signal

from encoder_checkpoints import ScriptedEncoder, matching
from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.importance import Fixed, NoiseAware, ShapeRule
from gridprobe.models import Request
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.video import FramePool
from gridprobe_selectors.aks import choose_frames as aks_frames
from gridprobe_selectors.aks import stretches
from gridprobe_selectors.bolt import choose_frames as bolt_frames
from gridprobe_selectors.encoded import TopMatches, find_peaks
from gridprobe_selectors.focus import FOCUS
from gridprobe_selectors.hybrid import Hybrid
from gridprobe_selectors.mdp3 import MDP3
from gridprobe_selectors.wavelet import Wavelet, boundaries, detail_band, diverse, shares
from small_selectors import model
from videos_of_arrays import gray_pool, levels

QUESTION = Question("Where is the needle?", ["here", "there", "nowhere"], id="q")
scores_of = st.lists(st.floats(0, 1), min_size=1, max_size=80)


class TestTopMatches:
    def test_the_most_similar_frames_are_kept(self) -> None:
        encoder = matching(lambda level: {3: 0.9, 11: 0.8, 40: 0.7}.get(level, 0.1))

        found = TopMatches(encoder, Fixed(3)).select(gray_pool(64), QUESTION)

        assert found.indices == (3, 11, 40)
        assert found.evidence is not None and found.evidence.kind == "encoder"
        assert found.scores is not None and found.scores[3] == pytest.approx(0.95, abs=1e-6)
        assert found.cost.calls == 65 and found.cost.flops == 64e6 + 1e3

    def test_the_shape_rule_sizes_similarities(self) -> None:
        one = matching(lambda level: 0.9 if level == 30 else 0.1)
        flat = matching(lambda level: 0.3)

        assert TopMatches(one, ShapeRule()).select(gray_pool(144), QUESTION).indices == (30,)
        assert TopMatches(flat, ShapeRule()).select(gray_pool(144), QUESTION).kept == 144

    def test_noise_keeps_few_and_says_so(self) -> None:
        noise = np.random.default_rng(0).normal(0.2, 0.01, 144)

        found = TopMatches(matching(lambda level: float(noise[level])), NoiseAware()).select(gray_pool(144), QUESTION)

        assert found.kept == 4 and any("no frame stands out" in note for note in found.notes)

    def test_the_query_is_the_bare_question_and_mdp3_adds_the_options(self) -> None:
        class Listening(ScriptedEncoder):
            def texts(self, texts):  # type: ignore[no-untyped-def]
                asked.extend(texts)
                return super().texts(texts)

        asked: list[str] = []
        encoder = Listening(lambda level: [1.0, float(level)])
        TopMatches(encoder, Fixed(2)).select(gray_pool(4), QUESTION)
        MDP3(encoder, Fixed(2)).select(gray_pool(4), QUESTION)

        assert asked == ["Where is the needle?", "Where is the needle? here there nowhere"]


class TestDefaults:
    @pytest.mark.parametrize(
        ("name", "encoder"),
        [
            ("clip", "clip"),
            ("siglip", "siglip"),
            ("mdp3", "siglip"),
            ("aks", "clip"),
            ("bolt", "clip"),
            ("focus", "siglip"),
            ("wavelet", "siglip"),
            ("hybrid", "siglip"),
        ],
    )
    def test_a_real_video_gets_the_encoder_of_the_paper_and_gridworld_the_embedded_one(
        self, name: str, encoder: str
    ) -> None:
        def described(argument: str = "", preset: str = "default") -> object:
            options = Options.from_preset(preset, frames=8)
            return options.resolve(model="embedded", selector=name + argument).selector.describe()["encoder"]

        assert described() == f"encoder:{encoder}"
        assert described(":siglip:some/where") == "encoder:siglip:some/where"
        assert described(preset="gridworld") == "encoder:embedded"

    def test_an_unknown_encoder_is_refused_before_anything_is_loaded(self) -> None:
        with pytest.raises(UsageError, match="unknown encoder 'sigclip'; did you mean 'siglip'"):
            Options(frames=8).resolve(model="embedded", selector="mdp3:sigclip")

    def test_a_cache_that_is_off_is_off_for_features_too(self) -> None:
        settings = Options().changed(frames=8, limits={"cache": 0})
        selector = settings.resolve(model="embedded", selector="clip").selector

        assert getattr(selector, "encoder").cache is False  # noqa: B009  # a Selector has none


class TestAKS:
    def test_one_hot_stretch_is_kept_whole(self) -> None:
        scores = np.zeros(64)
        scores[20:24] = 1.0

        assert stretches(scores, 4) == [(range(64), 0)]
        assert aks_frames(scores, 4) == (20, 21, 22, 23)

    def test_even_relevance_is_split_to_the_end(self) -> None:
        found = stretches(np.linspace(0, 1, 64), 32)

        assert [depth for _, depth in found] == [5] * 32
        assert [len(stretch) for stretch, _ in found] == [2] * 32
        assert aks_frames(np.linspace(0, 1, 64), 32) == tuple(range(1, 64, 2))

    def test_no_stretch_goes_without_a_frame(self) -> None:
        assert {depth for _, depth in stretches(np.linspace(0, 1, 64), 5)} == {2}

    @given(scores_of, st.integers(1, 80))
    def test_exactly_as_many_as_asked(self, scores: list[float], kept: int) -> None:
        kept = min(kept, len(scores))
        found = aks_frames(np.array(scores), kept)

        assert len(found) == kept and list(found) == sorted(set(found))


class TestBOLT:
    def test_frames_follow_the_cumulated_weight(self) -> None:
        weights = np.array([0, 0, 1.0, 0, 0, 3.0, 0, 0])

        assert bolt_frames(np.ones(8), 4) == (1, 3, 4, 5)  # levels 1/4, 5/12, 7/12, 3/4 of the cumulated share
        assert bolt_frames(weights, 2)[1] == 5

    def test_it_equals_the_published_rule_where_that_has_no_duplicates(self) -> None:
        weights = np.random.default_rng(0).uniform(0.9, 1.1, 500)
        places = np.searchsorted(np.cumsum(weights) / weights.sum(), np.linspace(1 / 16, 1 - 1 / 16, 16))

        assert bolt_frames(weights, 16) == tuple(places.tolist())

    def test_a_single_peak_still_gives_distinct_frames(self) -> None:
        weights = np.zeros(40)
        weights[7] = 1.0

        found = bolt_frames(weights, 10)

        assert len(set(found)) == 10 and 7 in found

    @given(scores_of, st.integers(1, 80))
    def test_exactly_as_many_as_asked(self, scores: list[float], kept: int) -> None:
        kept = min(kept, len(scores))
        found = bolt_frames(np.array(scores) ** 3, kept)

        assert len(found) == kept and list(found) == sorted(set(found))


class TestFOCUS:
    @staticmethod
    def hot(*where: int) -> Callable[[int], float]:
        return lambda level: 0.8 if level in where else 0.1

    def test_it_compares_few_frames_of_a_large_pool(self) -> None:
        encoder = matching(self.hot(*range(100, 110)))

        found = FOCUS(encoder, Fixed(8)).select(gray_pool(240, step=1.0), QUESTION)

        assert len(encoder.seen) < 150 and found.cost.calls == len(encoder.seen) + 1
        assert set(found.indices) & set(range(100, 110))

    def test_fine_samples_count_for_their_arms(self) -> None:
        encoder = matching(self.hot(*range(96, 104)))
        selector = FOCUS(encoder, Fixed(6))

        found = selector.select(gray_pool(240, step=1.0), QUESTION)

        hot = [i for i in encoder.seen if 96 <= i < 104]
        assert len(hot) > 3, "the arm was looked at again"
        assert found.scores is not None
        assert {i for i, score in enumerate(found.scores) if score > 0.8} >= set(hot)

    def test_draws_depend_on_seed_and_question_alone(self) -> None:
        pool, noise = gray_pool(200), np.random.default_rng(1).uniform(0.1, 0.4, 256)
        other = Question("Another question?", ["a", "b"])

        def indices(seed: int, question: Question) -> tuple[int, ...]:
            return (
                FOCUS(matching(lambda level: float(noise[level])), Fixed(8), seed=seed).select(pool, question).indices
            )

        assert indices(0, QUESTION) == indices(0, QUESTION)
        assert len({indices(seed, question) for seed in (0, 1) for question in (QUESTION, other)}) == 4

    def test_frames_keep_a_distance(self) -> None:
        hot = matching(lambda level: 0.5 if 96 <= level < 112 else 0.1)

        found = FOCUS(hot, Fixed(12)).select(gray_pool(200, step=0.25), QUESTION)

        assert np.diff(found.timestamps).min() >= 1.0, "a quarter of 50 s / 12 is more than a second"

    @pytest.mark.parametrize(
        ("argument", "seed", "encoder"),
        [("", 0, "siglip"), (":7", 7, "siglip"), (":7:clip", 7, "clip"), (":clip:some/where", 0, "clip:some/where")],
    )
    def test_the_argument_has_the_seed_and_the_encoder(self, argument: str, seed: int, encoder: str) -> None:
        described = Options(frames=8).resolve(model="embedded", selector=f"focus{argument}").selector.describe()

        assert (described["seed"], described["encoder"]) == (seed, f"encoder:{encoder}")


class TestWavelet:
    @pytest.mark.parametrize(
        ("length", "level", "values", "total"),
        [  # pywt 1.8.0: wavedec(x, "db4", level), all other bands zeroed, waverec
            (16, 1, [-0.043541041, 0.098969842, -0.230101802, -0.258623901, 0.123560805, -0.037656981], 2.494357568),
            (37, 2, [-0.081219004, 0.128900499, -0.018399152, 0.260599047, -0.0052064, -0.013835863], 4.125588282),
            (144, 4, [-0.104516269, -0.096000592, -0.048065484, 0.006965874, 0.043286043, 0.041853536], 12.250108381),
            (150, 4, [-0.104516269, -0.096000592, -0.048065484, 0.052142884, 0.012920471, -0.0093202], 12.522691371),
        ],
    )
    def test_the_band_is_that_of_pywavelets(self, length: int, level: int, values: list[float], total: float) -> None:
        found = detail_band(np.array([((i * i * 7 + 3 * i) % 31) / 31 for i in range(length)]), level)

        assert len(found) == length
        assert found[[0, 1, 5, length // 2, length - 2, length - 1]] == pytest.approx(values, abs=1e-8)
        assert np.abs(found).sum() == pytest.approx(total, abs=1e-7)

    @given(
        st.lists(st.floats(0, 1).map(lambda value: round(value, 2)), min_size=1, max_size=60),
        st.floats(0, 0.5),
        st.integers(1, 8),
    )
    def test_peaks_are_those_of_scipy(self, values: list[float], prominence: float, distance: int) -> None:
        signal = np.array(values) + np.arange(len(values)) * 1e-5  # scipy breaks ties of distant peaks arbitrarily

        theirs, _ = scipy_signal.find_peaks(signal, height=0.3, prominence=prominence, distance=distance)

        assert find_peaks(signal, height=0.3, prominence=prominence, distance=distance) == tuple(theirs.tolist())

    def test_a_plateau_has_one_peak_in_its_middle(self) -> None:
        signal = np.array([0.0, 2, 2, 2, 0, 1, 1, 0])

        theirs, _ = scipy_signal.find_peaks(signal, height=0.5)

        assert find_peaks(signal, height=0.5, prominence=0.1, distance=1) == tuple(theirs.tolist()) == (2, 5)

    def test_a_step_is_a_boundary(self) -> None:
        scores = np.concatenate([np.zeros(70), np.ones(74)])

        assert min(abs(edge - 70) for edge in boundaries(scores)) <= 8
        assert boundaries(np.full(144, 0.5)) == () == boundaries(np.linspace(0, 1, 12))

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 60), st.integers(0, 9))
    def test_shares_add_up_and_fit(self, sizes: list[int], kept: int, seed: int) -> None:
        starts = np.cumsum([0, *sizes])
        segments = [range(int(a), int(b)) for a, b in pairwise(starts)]
        kept = min(kept, sum(sizes))

        found = shares(np.random.default_rng(seed).uniform(size=sum(sizes)), segments, kept)

        assert sum(found) == kept and all(share <= size for share, size in zip(found, sizes, strict=True))

    def test_of_equal_relevance_the_most_different_is_next(self) -> None:
        vectors = np.array([[1.0, 0, 0], [0.99, 0.14, 0], [0, 1.0, 0], [0, 0, 1.0]])

        assert diverse(np.array([1.0, 0.9, 0.9, 0.2]), vectors, 3) == [0, 2, 3]

    def test_without_boundaries_half_is_uniform_and_half_the_best(self) -> None:
        encoder = matching(lambda level: {2: 0.9, 3: 0.8}.get(level, 0.1))

        found = Wavelet(encoder, Fixed(4)).select(gray_pool(12), QUESTION).indices

        assert {3, 9} <= set(found), "uniform"
        assert 2 in found and len(found) == 4, "the best of the rest"


class TestHybrid:
    def test_only_promising_lines_are_probed(self) -> None:
        asks = model()
        encoder = matching(lambda level: 0.9 if level == 17 else 0.1 + level % 5 / 100)

        found = Hybrid(asks, Fixed(1), encoder=encoder).select(gray_pool(144), QUESTION)

        shown = [levels(request.frames) for request in asks.requests]
        assert len(shown) == 12 and sum(17 in each for each in shown) == 2
        assert found.indices == (17,) and found.cost.calls == 12 + 144 + 1
        assert found.evidence is not None and found.evidence.kind == "probes"
        assert min(found.evidence.row_confidence) == pytest.approx(1 / 3)

    def test_a_line_that_was_not_probed_is_as_good_as_the_worst_that_was(self) -> None:
        def answer(request: Request) -> dict[str, float]:
            return {"A": 1.0 + min(levels(request.frames)), "B": 1.0, "C": 1.0}

        encoder = matching(lambda level: 0.5 if level >= 8 else 0.1)
        found = Hybrid(MockModel(answer), Fixed(4), encoder=encoder).select(gray_pool(16), QUESTION)

        assert found.evidence is not None
        rows = found.evidence.row_confidence
        assert rows[0] == rows[1] == rows[2] == pytest.approx(9 / 11) and rows[3] == pytest.approx(13 / 15)


def test_frames_of_a_caller_are_compared_as_they_are() -> None:
    pool = FramePool.from_arrays(np.stack([np.full((4, 4, 3), level, np.uint8) for level in (9, 3, 5)]))

    assert TopMatches(matching(lambda level: level / 10), Fixed(1)).select(pool, QUESTION).indices == (0,)
