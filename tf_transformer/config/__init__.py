"""The settings of a run: frozen dataclasses with bounds and help, presets, recipes."""

from tf_transformer.config.config import SAMPLING, SETTINGS, Config
from tf_transformer.config.data import NORMALIZATIONS, DataConfig
from tf_transformer.config.decoding import (
    MAX_ALPHA,
    MAX_BEAM_SIZE,
    TEMPERATURES,
    DecodingConfig,
    SamplingConfig,
    SearchOptions,
)
from tf_transformer.config.model import BOS_ID, EOS_ID, PAD_ID, UNK_ID, ModelConfig
from tf_transformer.config.settings import MAX_COUNT, MAX_TOKENS
from tf_transformer.config.training import TrainingConfig

# fmt: off
__all__ = [
    "BOS_ID", "Config", "DataConfig", "DecodingConfig", "EOS_ID", "MAX_ALPHA",
    "MAX_BEAM_SIZE", "MAX_COUNT", "MAX_TOKENS", "ModelConfig", "NORMALIZATIONS", "PAD_ID",
    "SAMPLING", "SETTINGS", "SamplingConfig", "SearchOptions", "TEMPERATURES", "TrainingConfig",
    "UNK_ID",
]
# fmt: on
