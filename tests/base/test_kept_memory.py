"""Tests of base/system.py: page faults of a process that allocates and frees the same size, and
where XLA stores what it compiles."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import environment

from tf_transformer.base.system import MALLOC, _store_programs

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is changed"
)

ROUNDS, PAGES = 20, 8192  # 32 MB each time
CHURN = f"""
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    block = bytearray(b"x") * ({PAGES} * 4096)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
AS_A_COMMAND = f"""
from tf_transformer.cli.process import run_process
run_process(lambda: exec({CHURN!r}) or 0)
"""


RESIDENT = f"""
import pathlib
from tf_transformer.base.system import keep_freed_memory, return_freed_memory
def pages():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1])
keep_freed_memory()
before = pages()
bytearray(b"x") * ({PAGES} * 4096)
kept = pages() - before
return_freed_memory()
print(pages() - before if kept > {PAGES} / 2 else "nothing was kept")
"""


def number_from(code: str, **more: str) -> int:
    """Returns the number that a process prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment() | more, capture_output=True, check=True)
    return int(done.stdout)


def test_a_command_takes_memory_from_the_kernel_once():
    assert number_from(AS_A_COMMAND) < 3 * PAGES


@pytest.mark.parametrize(
    ("code", "more"),
    [(f"import tf_transformer\n{CHURN}", {}), (AS_A_COMMAND, {MALLOC: "0"})],
    ids=["import", "switched off"],
)
def test_an_import_and_the_switch_leave_the_allocator_as_it_is(code, more):
    assert number_from(code, **more) > ROUNDS * PAGES / 2


def test_kept_memory_can_be_returned():
    assert number_from(RESIDENT) < PAGES / 4


def two_gpus(folder: Path) -> Path:
    """Writes what NVIDIA's driver tells of its GPUs."""
    for number in range(2):
        info = folder / "gpus" / f"0000:0{number}:00.0" / "information"
        info.parent.mkdir(parents=True)
        info.write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 5\n")
    return folder / "gpus"


@pytest.mark.parametrize(
    ("name", "error"), [("cache_folder", RuntimeError), ("tempfile.TemporaryFile", OSError)]
)
def test_xla_stores_nothing_where_it_could_not_write(tmp_path, monkeypatch, name, error):
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(f"tf_transformer.base.system.{name}", Mock(side_effect=error))
    _store_programs(two_gpus(tmp_path))
    assert "TF_XLA_FLAGS" not in os.environ


@pytest.mark.parametrize("given", [None, ""])
def test_xla_stores_programs_for_each_kind_of_gpu_unless_flags_are_given(
    tmp_path, monkeypatch, given
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", given or "")
    if given is None:
        monkeypatch.delenv("TF_XLA_FLAGS")
    _store_programs(tmp_path / "none")
    assert os.environ.get("TF_XLA_FLAGS") == given
    _store_programs(two_gpus(tmp_path))
    folders = list((tmp_path / "tf_transformer" / "xla").glob("*"))
    if given is None:
        assert [f.name.partition("-")[2] for f in folders] == ["NVIDIA-H100-80GB-HBM3"]
        flag = f"--tf_xla_persistent_cache_directory='{folders[0]}'"
        assert os.environ["TF_XLA_FLAGS"] == flag
    else:
        assert (os.environ["TF_XLA_FLAGS"], folders) == ("", [])
