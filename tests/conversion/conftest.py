"""A Marian checkpoint that tests may change."""

import pytest
from marian_folder import write_checkpoint

from tf_transformer.base.errors import UserError
from tf_transformer.conversion.marian import from_marian


@pytest.fixture
def checkpoint(tmp_path):
    """The folder of a tiny checkpoint."""
    pytest.importorskip("safetensors")
    folder = tmp_path / "opus-mt"
    folder.mkdir()
    write_checkpoint(folder)
    return folder


@pytest.fixture
def assert_refused(checkpoint, tmp_path):
    """`assert_refused(message)`: the checkpoint is not converted, and nothing is written."""

    def check(message: str) -> None:
        with pytest.raises(UserError, match=message):
            from_marian(checkpoint, tmp_path / "run")
        assert [path.name for path in tmp_path.iterdir()] == ["opus-mt"]

    return check
