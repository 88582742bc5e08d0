"""A Marian checkpoint to change."""

import pytest
from marian_folder import write_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """The folder of a tiny one."""
    pytest.importorskip("safetensors")
    folder = tmp_path / "opus-mt"
    folder.mkdir()
    write_checkpoint(folder)
    return folder
