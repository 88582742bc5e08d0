"""The settings of a run: frozen dataclasses with bounds and help, presets, recipes."""

from tf_transformer.config.config import (
    BOS_ID,
    EOS_ID,
    NORMALIZATIONS,
    PAD_ID,
    SAMPLING,
    SEARCH,
    SETTINGS,
    SLOTS,
    UNK_ID,
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    SamplingConfig,
    TrainingConfig,
    settings_with,
)
from tf_transformer.config.settings import MAX_COUNT, MAX_TOKENS

# fmt: off
__all__ = [
    "BOS_ID", "Config", "DataConfig", "DecodingConfig", "EOS_ID", "MAX_COUNT", "MAX_TOKENS",
    "ModelConfig", "NORMALIZATIONS", "PAD_ID", "SAMPLING", "SEARCH", "SETTINGS",
    "SLOTS", "SamplingConfig", "TrainingConfig", "UNK_ID", "settings_with",
]
# fmt: on
