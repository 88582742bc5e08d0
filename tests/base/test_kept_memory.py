"""Tests of base/system.py: page faults of a process that allocates and frees the same size."""

import platform
import subprocess
import sys

import pytest
from command_line import environment

from tf_transformer.base.system import MALLOC

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
