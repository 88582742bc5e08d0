"""The documentation builds as a site without a warning: links, anchors and docstrings."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "furo", "myst_nb", "autoapi"):
        pytest.importorskip(package)
    arguments = ["-q", "-W", "--keep-going", "-b", "dummy", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *arguments, str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
