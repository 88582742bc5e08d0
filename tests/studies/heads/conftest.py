"""A trained model of one layer, and masks of its heads."""

import pytest

from tf_transformer.config import DecodingConfig
from tf_transformer.run import Run
from tf_transformer.studies.heads.measurements import HeadMasks
from tf_transformer.tasks.translation.translator import Translator, load_translator


@pytest.fixture(scope="module")
def translator(trained_run) -> Translator:
    """A translator that the tests of a module share: they must restore masked heads."""
    decoding = DecodingConfig(beam_size=4)
    return load_translator(Run.open(trained_run.path), "best", decoding=decoding)


@pytest.fixture
def masks(translator):
    masks = HeadMasks(translator.model)
    yield masks
    masks.apply([])


@pytest.fixture
def pairs(trained_run) -> tuple[list[str], list[str]]:
    return trained_run.lines("dev.en")[:12], trained_run.lines("dev.de")[:12]
