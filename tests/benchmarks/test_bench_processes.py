"""Contenders as processes: called in turn, measured inside, their failures told."""

import os
import textwrap
from argparse import Namespace
from pathlib import Path

import pytest
from harness import environments
from harness.contender import Contender, Spec, make_file
from harness.rounds import measure

from tf_transformer.base.errors import UserError

HEAD = """
import mmap, os, sys, time
from harness.child import serve
def setup(**options):
"""
TAIL = """
    return locals()
serve(setup)
"""


@pytest.fixture
def contender(tmp_path):
    """Writes the script of a contender; its functions are given as source."""

    def write(functions: str, name: str = "contender", /, **options) -> Spec:
        body = textwrap.indent(textwrap.dedent(functions), "    ")
        (tmp_path / f"{name}.py").write_text(HEAD + body + TAIL)
        return Spec(name, str(tmp_path / name), options=options)

    return write


RECORDED = """
    def work(text):
        print("noise on stdout")
        os.system("echo noise from below")
        with open(options["log"], "a") as log:
            log.write(options["name"] + text + " ")
        return {"tokens": 7}
    def versions():
        return {"python": "3"}
"""


def test_contenders_work_in_turn(contender, tmp_path):
    log = tmp_path / "log"
    specs = [contender(RECORDED, name, log=str(log), name=name) for name in "AB"]
    cases = {"one": {"text": "1"}, "two": {"text": "2"}}
    found = dict(measure(specs, cases, Namespace(rounds=2, threads=1)))
    warm_up_and_rounds = 3
    expected = ["A1 B1 "] * warm_up_and_rounds + ["A2 B2 "] * warm_up_and_rounds
    assert log.read_text() == "".join(expected)
    assert [len(found["two"][name].answers) for name in "AB"] == [2, 2]
    assert all(answer.result == {"tokens": 7} for answer in found["one"]["A"].answers)


def test_what_a_contender_uses_is_measured_inside_it(contender):
    spec = contender("""
        def work(asleep=0.0, busy=0.0, size=1):
            time.sleep(asleep)
            end = time.process_time() + busy
            while time.process_time() < end:
                pass
            with mmap.mmap(-1, size) as pages:  # not of the heap, which may be kept
                for place in range(0, size, 4096):
                    pages[place] = 1
            names = ["OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "CUDA_VISIBLE_DEVICES"]
            return {name: os.environ[name] for name in names}
    """)
    with Contender(spec, threads=3) as running:
        running.call("setup")
        asleep, busy = running.call("work", asleep=0.2), running.call("work", busy=0.2)
        large = running.call("work", size=10**8)
        running.call("forget_peak")
        after = running.call("work")
    assert asleep.seconds >= 0.2 > 0.1 > asleep.cpu_seconds
    # Two clocks of the system, which may differ by some thousandths.
    assert busy.seconds * 1.01 >= busy.cpu_seconds >= 0.19
    assert [*asleep.result.values()] == ["3", "3", ""]
    if os.path.exists("/proc/self/clear_refs"):  # of Linux
        assert large.peak_bytes >= asleep.peak_bytes + 9 * 10**7
        assert after.peak_bytes < asleep.peak_bytes + 10**7


USERS_MISTAKE = """
from tf_transformer.base.errors import UserError
def work():
    raise UserError("There is no such file.")
"""


@pytest.mark.parametrize(
    ("functions", "told"),
    [
        (
            "def work():\n    raise OSError('no such thing')",
            "failed at.*no such thing",
        ),
        ("def work():\n    print('words')\n    os._exit(3)", "failed at.*status 3\nwords"),
        ("sys.exit('setup went wrong')", "failed at.*setup went wrong"),
        (USERS_MISTAKE, r"^There is no such file\.$"),
    ],
)
def test_a_failure_is_told_with_its_cause(contender, functions, told):
    with (
        Contender(contender(functions), threads=1) as running,
        pytest.raises(UserError, match=f"(?s){told}"),
    ):
        running.call("setup")
        running.call("work")


MAKER = """
    def write(path):
        with open(options["read"]) as read, open(path, "w") as made:
            made.write(read.read())
        return {"note": "made of a text"}
"""


def test_a_file_is_made_anew_when_what_it_is_made_of_changes(contender, tmp_path, capsys):
    script = contender(MAKER).script  # absolute, so the file lies beside it
    text = tmp_path / "text"

    def make(said: str) -> str:
        path = make_file(script, [text], read=str(text))
        assert capsys.readouterr().err == said
        return Path(path).read_text()

    text.write_text("old")
    note = "made of a text\n"
    assert make(note) == make("") == "old"
    text.write_text("new")
    os.utime(text, ns=(0, 0))  # of the same size: only the time tells
    assert make(note) == make("") == "new"
    text.write_text("longer")
    os.utime(text, ns=(0, 0))
    assert make(note) == "longer"
    contender(MAKER.replace("read.read()", "read.read().upper()"))
    assert make(note) == "LONGER"


def test_what_pip_refuses_leaves_no_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "environments")
    (tmp_path / "environments").mkdir()
    (tmp_path / "wrong.txt").write_text("./there-is-no-such-folder\n")
    with pytest.raises(UserError, match="wrong.txt could not be installed"):
        environments.python_of("wrong")
    assert list((tmp_path / "environments").iterdir()) == []


def test_requirements_of_the_peers_are_pinned():
    files = list(environments.PEERS.glob("*.txt"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    packages = [line for line in lines if line and not line.startswith(("#", "--"))]
    assert packages and all("==" in package for package in packages)
