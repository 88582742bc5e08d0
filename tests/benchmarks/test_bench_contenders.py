"""Contenders do the work that they are said to do: checked in this process, at tiny sizes."""

import json

import batches
import corpus
import decoding_ours
import decoding_work
import layer
import numpy as np
import pytest
import system
import systems
import training_floor
import training_ours
from harness.arrays import Arrays, load_batches, real_tokens
from harness.sentences import Work

import tf_transformer
from tf_transformer.config import BOS_ID, EOS_ID, ModelConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.reports.cost import Lengths, training_flops

MODEL = {
    "vocab_size": 1000, "num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2,
    "dropout": 0.1,
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "change"), [(1000, "fewer"), (260, "more")])
def test_a_small_corpus_gets_the_pieces_that_its_text_allows(wanted, change, tmp_path):
    model = tmp_path / "tokenizer.model"
    made = corpus._train_tokenizer(["a man sees a house", "ein Mann"], model, wanted)
    size = Tokenizer(model).vocab_size
    assert size < wanted if change == "fewer" else size > wanted
    assert made == {"note": f"using {size} pieces: the text does not allow {wanted}"}
    assert corpus._train_tokenizer(["a man sees a house", "ein Mann"], model, size) == {}


@pytest.fixture(scope="module")
def batch_file(prepared, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("batches") / "batches.npz")
    batches.setup(prepared, batch_tokens=256, number=3)["write"](path)
    return path


def test_batches_are_those_of_training(batch_file):
    found = load_batches(batch_file)
    lengths = [batch.labels.shape[1] for batch in found]
    assert len(found) == 3 and lengths == sorted(set(lengths))  # other quantiles, other lengths
    for source, target, labels in found:
        assert labels.size <= 256
        assert np.all(target[:, 0][labels[:, 0] != 0] == BOS_ID)
        assert np.all(np.sum(labels == EOS_ID, axis=1) == np.any(labels, axis=1))
        assert np.any(source)


@pytest.mark.parametrize("parts_of", [0, 64])
def test_training_traces_once_for_all_lengths(batch_file, parts_of):
    functions = training_ours.setup(
        batch_file, MODEL, "float32", max_tokens_per_device=parts_of
    )
    rounds = [functions["work"]() for _ in range(3)]
    assert len({batch.labels.shape for batch in load_batches(batch_file)}) > 1
    assert rounds[-1]["traces"] == rounds[0]["traces"]
    assert rounds[-1]["tokens"] == real_tokens(load_batches(batch_file))["tokens"]
    assert 0 < rounds[-1]["loss"] < 8


def test_floor_counts_the_products_of_a_training_step():
    ids = np.ones((3, 8), "int32")
    longer = np.ones((3, 12), "int32")
    products = training_floor._products(Arrays(ids, longer, longer), MODEL)
    flops = 0
    for number, left, right in products:
        *rows, inner = left
        flops += number * 2 * 3 * int(np.prod(rows)) * inner * right[-1]
    lengths = Lengths.of(np.full(3, 8), np.full(3, 12))
    assert flops == training_flops(ModelConfig(**MODEL), lengths)


@pytest.fixture(scope="module")
def work(prepared, tmp_path_factory, trained_run) -> Work:
    """The work of decoding with a trained model."""
    pytest.importorskip("ctranslate2")
    path = str(tmp_path_factory.mktemp("work") / "work")
    decoding_work.setup(prepared, MODEL, str(trained_run.path), number=12)["write"](path)
    return Work(path)


def test_random_weights_are_written_for_every_library(prepared, tmp_path):
    """No trained run, and so no tokenizer: what the figures of `base` are measured with."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder = tmp_path / "work"
    decoding_work.setup(prepared, MODEL, None, number=12)["write"](str(folder))
    assert len(json.loads((folder / "pieces.json").read_text())) == MODEL["vocab_size"]
    assert ctranslate2.contains_model(str(folder / "ct2"))


@pytest.mark.parametrize("forced", [0, 5])
def test_ctranslate2_finds_what_we_find(work, forced, monkeypatch):
    import decoding_ctranslate2

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = {"batch": 8, "beam": 3, "forced": forced}
    ours = decoding_ours.setup(str(work.folder), "float32")
    theirs = decoding_ctranslate2.setup(str(work.folder), "float32", streams=2)
    found = zip(
        ours["check"](**arguments)["hypotheses"],
        theirs["check"](**arguments)["hypotheses"],
        strict=True,
    )
    same = [one in others for (one,), others in found]
    assert np.mean(same) >= 7 / 8  # two hypotheses may be as good as equal
    result = ours["work"](**arguments, batches=1)
    if forced:
        assert (
            result["tokens"] == theirs["work"](**arguments, batches=1)["tokens"] == 8 * forced
        )
    assert len(result["latencies"]) == 1


def test_floor_of_decoding_computes_as_many_tokens(work, monkeypatch):
    import decoding_floor

    monkeypatch.setattr(decoding_floor, "_BYTES", 2**20)
    found = decoding_floor.setup(str(work.folder), "float32")["work"]
    short, long = (found(batch=2, beam=3, forced=n, batches=2) for n in (4, 8))
    assert (short["tokens"], long["tokens"]) == (16, 32)
    for bound in ("reading_seconds", "computing_seconds"):
        assert long[bound] == pytest.approx(2 * short[bound]) and short[bound] > 0


@pytest.mark.parametrize("kind", layer.LAYERS)
def test_every_layer_has_all_gradients(kind):
    functions = layer.setup(kind, d_model=8, num_heads=2, batch=2)
    assert functions["work"](length=5)["gradients"] > 1


def test_a_system_translates_the_next_sentences_in_each_round(
    trained_run, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(system, "use_threads", lambda threads: None)  # other tests' too
    lines = ["They find four stories.", "He sees a house.", "We wait.", "She is tall."]
    (text := tmp_path / "test.en").write_text("\n".join(lines), "utf-8")
    work = system.setup(str(trained_run.path), str(text), beam=2, sentences=3)["work"]
    translator = tf_transformer.load(trained_run.path)
    sizes = [each.num_tokens for each in translator.translate(lines, beam_size=2)]
    rounds = [work(batch=2), work(batch=2), work(batch=4)]
    assert [each["tokens"] for each in rounds] == [
        sum(sizes[:3]), sizes[3] + sum(sizes[:2]), sum(sizes[:3])
    ]  # fmt: skip
    assert systems.size_on_disk(trained_run.path) == (
        (trained_run.path / "checkpoints" / "best.npz").stat().st_size
    )


def test_the_newest_version_of_an_export_counts(tmp_path):
    for number, size in (("2", 5), ("10", 7)):
        (tmp_path / number).mkdir()
        (tmp_path / number / "model.tflite").write_bytes(b"x" * size)
    assert systems.size_on_disk(tmp_path) == 7
