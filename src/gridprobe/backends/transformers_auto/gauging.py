"""What a checkpoint of another family costs, from its configuration and tokenizer, without loading its weights."""

from collections.abc import Sequence
from pathlib import Path

import transformers

from gridprobe.backends.base import ScoreRequest
from gridprobe.backends.gauge import Gauge
from gridprobe.backends.local.memory import CAUTION
from gridprobe.backends.local.reading import read
from gridprobe.backends.transformers_auto.engine import picture_sizes
from gridprobe.backends.transformers_auto.families import FAMILY
from gridprobe.backends.transformers_auto.features import hollow_tower
from gridprobe.backends.transformers_auto.loading import compose
from gridprobe.backends.transformers_auto.pictures import read_pictures
from gridprobe.backends.transformers_auto.pricing import (
    PicturePrice,
    cache_bytes,
    language_price,
    price,
    price_texts,
    token_bytes,
)
from gridprobe.flops import Cost

__all__ = ["gauge"]

BYTES = 2
"""Bytes of a weight or an activation in bfloat16, the default on a GPU."""


def gauge(name: str, folder: Path) -> Gauge:
    """Gauge a checkpoint folder."""
    config = read(name, transformers.AutoConfig, folder)
    tokenizer = read(name, transformers.AutoTokenizer, folder)
    pictures = read_pictures(name, folder, config=config, tokenizer=tokenizer, family=FAMILY[config.model_type])
    composer = compose(name, tokenizer, pictures)
    language = language_price(config)
    tower = PicturePrice(hollow_tower(config, pictures), pictures)

    def measure(request: ScoreRequest) -> Cost:
        return price(language, composer.layout(request, picture_sizes(request, pictures.multiple)), tower)

    def measure_texts(request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        read = measure(request)
        return sum(price_texts(language, tokens, known=read.tokens), read)

    return Gauge(
        identity=name,
        estimate=measure,
        multiple=pictures.multiple,
        exact=True,
        weights=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        pass_bytes=CAUTION * token_bytes(config, BYTES) + cache_bytes(config, BYTES),
        recalls=False,
        texts=measure_texts if pictures.family.writes else None,
    )
