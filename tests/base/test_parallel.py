"""Work for all cores: the same results whatever their number, and what happens to processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import environment, tree
from helpers import dirty_pairs

from tf_transformer.base.errors import UserError
from tf_transformer.base.parallel import Processes, at_once
from tf_transformer.config import DataConfig
from tf_transformer.data.encoded_corpus import encode_corpus
from tf_transformer.data.text import write_pairs
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.quality.cleaning import clean
from tf_transformer.terms.alignment_model import mined_spans


def test_results_come_in_order_from_as_many_processes_as_wanted():
    with Processes(str.upper, 3) as upper:
        texts = [letter * 50_000 for letter in "abcdefghijklmnop"]  # more than a pipe holds
        assert [*at_once(texts, upper, 3)] == [(text, text.upper()) for text in texts]
        assert len({process.pid for process in upper.all}) == 3
    assert all(process.returncode == -signal.SIGKILL for process in upper.all)


def test_a_killed_process_is_one_error():
    with Processes(time.sleep, 2) as sleep:
        os.kill(sleep.all[0].pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"has ended \(status -9\)"):
            list(at_once([0.1] * 9, sleep, 2))


SCRIPT = """
import os, time
from tf_transformer.base.parallel import Processes
processes = Processes(time.sleep, 2)
processes(0)
print(*[each.pid for each in processes.all], flush=True)
os.kill(os.getpid(), 9)
"""


def test_processes_end_with_the_one_that_started_them():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    folders, end = [Path("/proc", pid) for pid in done.stdout.split()], time.monotonic() + 60
    assert len(folders) == 2 and done.returncode == -signal.SIGKILL
    while any(folder.exists() for folder in folders):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_files_are_the_same_whatever_the_number_of_cores(tmp_path, monkeypatch):
    pairs = dirty_pairs()
    write_pairs(tmp_path / "text", ("en", "de"), pairs)
    lines = [side for pair in pairs for side in pair]
    train_tokenizer(lines, tmp_path / "t.model", vocab_size=600)
    tokenizer = Tokenizer(tmp_path / "t.model")
    data = DataConfig(train=(str(tmp_path / "text"),), source="en", target="de")
    encoded, cleaned, mined = [], [], []
    monkeypatch.setattr("tf_transformer.data.encoded_corpus.CHUNK_PAIRS", 100)
    monkeypatch.setattr("tf_transformer.data.encoded_corpus.MANY_CHUNKS", 2)
    monkeypatch.setattr("tf_transformer.terms.alignment_model._CHUNK", 10_000)
    monkeypatch.setattr("tf_transformer.quality.cleaning._CHUNK_PAIRS", 100)
    monkeypatch.setattr("tf_transformer.quality.cleaning._MANY", 1)
    for cores in (1, 3):
        for module in ("data.encoded_corpus", "terms.alignment_model", "quality.cleaning"):
            name = f"tf_transformer.{module}.usable_cores"
            monkeypatch.setattr(name, lambda cores=cores: cores)
        folder, forms = tmp_path / f"encoded{cores}", [(*pair, *pair) for pair in pairs]
        corpus = encode_corpus([pairs, forms], tokenizer, folder, max_length=64, max_ratio=3.0)
        encoded.append(tree(folder))
        mined.append([array.tobytes() for array in mined_spans(corpus, tokenizer.models)])
        clean(data, (), tmp_path / f"cleaned{cores}", seed=1)
        cleaned.append(
            {Path(name).name: text for name, text in tree(tmp_path / f"cleaned{cores}").items()}
        )
    encoded = [{Path(name).name: text for name, text in each.items()} for each in encoded]
    for one, other in (encoded, cleaned, mined):
        assert one == other
