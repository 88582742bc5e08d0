"""Fixtures that several tests of tasks share."""

import shutil

import pytest

from tf_transformer.run import Run


@pytest.fixture
def run(trained_run, tmp_path) -> Run:
    """A copy of the trained run, to change."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))
