"""Large texts on Beam: the same answers as without it, whatever fails or is killed."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from command_line import environment, tree
from helpers import DEFECTS, dirty_pairs, lines_of
from trained import quick_export, small_model

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.base.output import single_line
from tf_transformer.bulk import Clean, Score, Translate, __main__
from tf_transformer.bulk.transforms import _joined, _judge, _sample
from tf_transformer.config import DataConfig, DecodingConfig
from tf_transformer.data import builtin
from tf_transformer.data.text import Sample, write_pairs
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.decoding.interface import Translation
from tf_transformer.quality.cleaning import clean
from tf_transformer.translation.translator import Translator

BULK = [sys.executable, "-m", "tf_transformer.bulk"]
DATA = DataConfig(source="en", target="de", max_length=128)


def bulk(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [*BULK, *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)


def table(folder: Path, name: str) -> list[list[str]]:
    """The rows of all shards of a table, by file and line."""
    rows = [
        line.split("\t") for file in folder.glob(f"{name}-*.tsv") for line in lines_of(file)
    ]
    return sorted((row for row in rows if len(row) > 1), key=lambda row: (row[0], int(row[1])))


def run_here(*words: str) -> None:
    """Runs the command in this process, without a worker of its own."""
    options = __main__._parser().parse_args(words)
    options.beam = ["--direct_running_mode=in_memory"]
    __main__._run(options)


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    folder = tmp_path_factory.mktemp("tokenizer")
    lines = [side for pair in builtin.pairs(300) for side in pair]
    train_tokenizer(lines, folder / "tok.model", vocab_size=400)
    decoding = DecodingConfig(beam_size=2, max_extra_length=3)
    return Translator(small_model(400), folder / "tok.model", decoding)


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    return quick_export(translator, folder, "serving_default", "with_options", "score")


# --- Cleaning --------------------------------------------------------------------------------


@pytest.fixture
def dirty(tmp_path, monkeypatch) -> tuple[list[tuple[str, str]], list[str]]:
    """Dirty pairs in a.en.gz, a.de, b.en, b.de, some in both; and dev and test text of them."""
    monkeypatch.chdir(tmp_path)
    rows = dirty_pairs()
    parts = {"a": rows[:800], "b": rows[700:], "dev": rows[-40:-20], "test": rows[-20:]}
    for name, pairs in parts.items():
        write_pairs(Path(name), ("en", "de"), pairs)
    Path("a.en.gz").write_bytes(gzip.compress(Path("a.en").rename("a").read_bytes()))
    Path("b.en.gz").write_text("beside b.en it is not read")
    return parts["a"] + parts["b"], ["dev", "test"]


def test_the_command_keeps_the_lines_that_doctor_keeps(dirty):
    rows, (dev, test) = dirty
    data = DataConfig(train=("a", "b"), valid=(dev,), source="en", target="de", max_length=128)
    clean(data, [test], Path("expected"), seed=1)
    options = ["--source", "en", "--target", "de", "--max-length", "128", "--held", dev, test]
    done = bulk("clean", "?", *options, "--output", "out", "--direct_num_workers=2")
    assert done.returncode == 0, done.stderr
    kept = [(source, target) for _, _, source, target in table(Path("out"), "kept")]
    sides = [lines_of(Path(f"expected/train.{end}")) for end in ("en", "de")]
    assert kept == [*zip(*sides, strict=True)]
    rejected = [line.split("\t") for line in lines_of(Path("expected/rejected.tsv"))]
    found = [
        [reason, f"{file}:{line}", *sides]
        for file, line, reason, *sides in table(Path("out"), "rejected")
    ]
    assert found == rejected
    counts = json.loads(Path("out/counts.json").read_text())
    assert counts["lines"] == len(rows) and counts["kept"] == len(kept)
    reasons = Counter(reason for reason, *_ in found)
    assert reasons.items() <= counts.items() and {"overlap", *DEFECTS} == reasons.keys()


@pytest.mark.parametrize("bundles", [1, 7])
def test_what_is_kept_does_not_depend_on_order_or_bundles(tmp_path, bundles):
    rows = [(("a", line), pair) for line, pair in enumerate(dirty_pairs(), start=1)]
    pairs = [pair for _, pair in rows]
    places = {pair: line for line, pair in reversed([*enumerate(pairs, start=1)])}
    with beam.Pipeline(FnApiRunner()) as pipeline:
        parts = [
            pipeline | f"{i}" >> beam.Create(rows[::-1][i::bundles]) for i in range(bundles)
        ]
        found = parts | beam.Flatten() | Clean(["a"], DATA)
        first = found["main"] | "is first" >> beam.Map(
            lambda each: places[each[1]] == each[0][1]
        )
        assert_that(first | beam.Distinct(), equal_to([True]), "the first stays")
        reasons = (
            found["rejected"]
            | beam.Map(lambda each: each[1][0])
            | beam.combiners.Count.PerElement()
        )
        assert_that(reasons, equal_to([(defect, 50) for defect in DEFECTS]))


def test_a_sample_does_not_depend_on_how_its_items_are_split(monkeypatch):
    monkeypatch.setattr("tf_transformer.bulk.transforms.SAMPLE_PAIRS", 100)
    monkeypatch.setattr("tf_transformer.bulk.transforms.Judge", lambda sample, *_: sample)
    whole, elements = Sample(100), [(("a", line), (str(line), "")) for line in range(5_000)]
    for (_, line), pair in elements:
        whole.offer(line, (*pair, line))
    parts = [_sample(elements[i::7], {"a": 0}) for i in range(7)]
    taken = _judge(_joined([_joined(parts[4:]), *parts[3::-1]]), DATA, False)
    assert taken == whole.items() and 30 < len(taken) <= 100


# --- Translating and scoring -----------------------------------------------------------------


def test_two_workers_translate_as_translate_does_and_bad_lines_come_out_beside(
    export, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    lines = [source for source, _ in builtin.pairs(120)] + ["", "  ", "a\u2028b \x1b 4711"]
    with gzip.open("a.txt.gz", "wb") as file:
        file.write("\r\n".join(lines[:60]).encode())
    Path("b.txt").write_bytes("\n".join(lines[60:]).encode() + b"\n\xff\xfe\n")
    words = ["translate", str(export), "?.txt*", "--output", "out", "--batch", "16"]
    done = bulk(*words, "--direct_num_workers=2")
    assert (done.returncode, done.stderr) == (0, "")
    expected = load(export).translate(lines)
    rows = table(Path("out"), "translated")
    assert [row[4] for row in rows] == [*map(single_line, expected)]
    places = [("a.txt.gz", n) for n in range(1, 61)] + [("b.txt", n) for n in range(1, 64)]
    assert [(row[0], int(row[1])) for row in rows] == places
    suspects = {place for place, each in zip(places, expected, strict=True) if each.warnings}
    beside = table(Path("out"), "suspect")
    assert suspects == {(row[0], int(row[1])) for row in beside} and suspects
    ((file, line, reason, _),) = table(Path("out"), "unreadable")
    assert (file, line) == ("b.txt", "64") and "must be UTF-8" in reason
    counts = json.loads(Path("out/counts.json").read_text())
    assert counts["lines"] == counts["translated"] == 123 and counts["unreadable"] == 1
    assert counts["tokens"] == sum(e.num_tokens for e in expected)
    assert counts["suspect"] == len(suspects)
    assert re.fullmatch(r"out: lines 123, milliseconds [\d,]+, suspect .*\n", done.stdout)


def test_with_a_model_for_litert_no_worker_imports_tensorflow(
    translator, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = translator.export("lite", format="litert")
    lines = [source for source, _ in builtin.pairs(40)] + ["", "\u4f60 4711", "a" * 900]
    Path("a.txt").write_text("".join(f"{line}\n" for line in lines))
    Path("tensorflow.py").write_text(
        "raise ImportError"
    )  # the modules of workers are here, too
    expected = [*map(single_line, load(model).translate(lines))]
    for number in "12":
        words = ["translate", str(model), "a.txt", "--output", number, "--batch", "8"]
        done = bulk(*words, f"--direct_num_workers={number}")
        assert (done.returncode, done.stderr) == (0, "")
        assert [row[4] for row in table(Path(number), "translated")] == expected


def test_pairs_get_the_scores_of_the_model(export):
    pairs = builtin.pairs(20)
    expected = load(export).score(*map(list, zip(*pairs, strict=True)))
    probs = [each.log_prob for each in expected]
    with beam.Pipeline(FnApiRunner()) as pipeline:
        rows = [(("a", line), pair) for line, pair in enumerate(pairs)]
        found = pipeline | beam.Create(rows) | Score(str(export), 7)
        close = beam.Map(lambda row: abs(row[1][1] - probs[row[0][1]]) < 1e-4)
        assert_that(found["main"] | close, equal_to([True] * 20))


class Picky:
    """A translator that cannot translate one line."""

    def translate(self, texts: list[str]) -> list[Translation]:
        if "no" in texts:
            raise MemoryError("too\nlong")
        return [Translation(text.upper(), -1.0, -1.0, 1) for text in texts]


def test_an_element_that_fails_comes_out_beside(monkeypatch):
    monkeypatch.setattr("tf_transformer.load", lambda path: Picky())
    lines = [(("a", line), ("no" if line in (5, 77) else f"l{line}",)) for line in range(100)]
    with beam.Pipeline(FnApiRunner()) as pipeline:
        found = pipeline | beam.Create(lines) | Translate("model", 32)
        texts = found["main"] | beam.Map(lambda row: row[1][2])
        assert_that(texts, equal_to([text.upper() for _, (text,) in lines if text != "no"]))
        expected = [(("a", line), ("MemoryError: too\\nlong", "no")) for line in (5, 77)]
        assert_that(found["failed"], equal_to(expected), "beside")


def test_if_every_line_fails_so_does_the_command(export, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tf_transformer.load", lambda path: Picky())
    Path("a.txt").write_text("no\nno\n")
    Path("b.tsv").write_text("a dog\ta dog\n")
    Path("empty.txt").touch()
    with pytest.raises(UserError, match="No line is translated, .* out: failed 2, lines 2, "):
        run_here("translate", str(export), "a.txt", "--output", "out")
    assert [row[3] for row in table(Path("out"), "failed")] == ["no", "no"]
    with pytest.raises(UserError, match="No line is kept, see the reasons in o: copies 1"):
        run_here("clean", "b.tsv", "--output", "o")
    run_here("translate", str(export), "empty.txt", "--output", "empty")
    assert Path("empty/counts.json").read_text() == "{}"


class Elsewhere(LocalFileSystem):
    """A file system elsewhere://, which is the folder "elsewhere:"."""

    scheme = classmethod(lambda cls: "elsewhere")

    def split(self, path: str) -> tuple[str, str]:
        return os.path.split(path)


def test_texts_and_tables_may_be_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("elsewhere:/in").mkdir(parents=True)
    for name, text in {"1.en": b"one dog\n\xff\n", "1.de": b"ein\tHund\nzwei"}.items():
        Path(f"elsewhere:/in/{name}.gz").write_bytes(gzip.compress(text))
    words = ["clean", "elsewhere://in/?", "--source", "en", "--target", "de"]
    run_here(*words, "--output", "elsewhere://out")
    expected = ["elsewhere://in/1.en.gz", "1", "one dog", "ein Hund"]  # a TAB would be a column
    assert table(Path("elsewhere:/out"), "kept") == [expected]
    ((_, line, _, *sides),) = table(Path("elsewhere:/out"), "unreadable")
    assert (line, sides) == ("2", ["\ufffd", "zwei"])
    with pytest.raises(UserError, match="elsewhere://out exists already"):
        run_here(*words, "--output", "elsewhere://out")


def workers(pid: int) -> list[int]:
    """The Python processes below a process that have no children: Beam's workers."""
    lists = Path("/proc").glob(f"{pid}/task/*/children")
    children = [int(child) for file in lists for child in file.read_text().split()]
    return [leaf for child in children for leaf in workers(child) or [child]]


def test_a_killed_worker_ends_the_command_which_can_be_run_again(export, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [source for source, _ in builtin.pairs(40)]
    Path("a.txt").write_text("".join(f"{line}\n" for line in lines))
    words = ["translate", str(export), "a.txt", "--output", "out", "--direct_num_workers=2"]
    text = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    with subprocess.Popen([*BULK, *words], **text) as process:
        while process.poll() is None and len(found := workers(process.pid)) < 2:
            time.sleep(0.05)
        os.kill(found[0], signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert stdout == "" and re.fullmatch("error: A worker was lost[^\n]*\n", stderr), stderr
    assert not Path("out").exists()
    done = bulk(*words)
    assert done.returncode == 0, done.stderr
    assert [int(row[1]) for row in table(Path("out"), "translated")] == [*range(1, 41)]
    assert [path.name for path in Path().glob(".out*")] == []


@pytest.mark.parametrize(
    ("words", "expected", "status"),
    [
        ("translate nowhere a.tsv", "nowhere must be a run directory, an export", 1),
        ("clean a", "--source and --target are needed for a PREFIX: a", 2),
        (
            "clean a --source en --target de",
            r"There is no a\.en and no a\.en\.gz\. There is",
            1,
        ),
        ("clean b.tsv", r"There is no b\.tsv", 1),
        ("clean a.tsv", "The pipeline has failed: .*lines must end in LF or CRLF", 1),
        ("clean a.tsv.gz", "The pipeline has failed: a.tsv.gz is not a complete gzip file", 1),
        ("clean a.tsv --output .", "exists already", 1),
    ],
)
def test_mistakes_give_one_line_and_no_output(tmp_path, monkeypatch, words, expected, status):
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text("a\tb\rc\td\r")
    Path("a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n")[:-1])  # it was cut off
    before = tree(Path())
    done = bulk(*words.split(), *([] if "--output" in words else ["--output", "out"]))
    assert re.fullmatch("error: [^\n]+\n", done.stderr), done.stderr
    assert re.search(expected, done.stderr)
    assert done.returncode == status and tree(Path()) == before
