"""An export for LiteRT is a model at every door, equal to its run, without TensorFlow."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from command_line import run_here
from helpers import snippets
from trained import DECODING, assert_same, small_model

import tf_transformer
from tf_transformer import NextToken, Rule, Translator, load
from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, DecodingConfig
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.decoding.engine import GraphCodec
from tf_transformer.decoding.streams import TURNS
from tf_transformer.decoding.text_codec import TextCodec
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run

# White space, control and format characters of either kind, broken UTF-8, tags, slots, and a
# long text; `\udce9` is how Python reads a byte that is no UTF-8, such as that of a Latin 1 é.
HOSTILE = [
    "A dog runs.",
    "",
    " \t\u00a0\u2003\u3000 ",
    "\u200b\ufeff\u2060\u00ad\x00\x1f\x7f\x85",
    "\u180e\u2028\u2029\u202e",
    "  A   dog\truns . ",
    "A\u00a0dog\u200bruns.\x07",
    "caf\udce9 \ud83d\ude00 \ud800",
    "\ufffd",
    "<b>A dog</b> &amp; <1> <2de> </s> <pad> <unk> <s>",
    "ﬁne naïve ﷺ Å ™ ① 中文 🙂",
    "a" * 700,
    "A man rides a horse. " * 40,
]


@pytest.fixture(scope="module")
def of_run(trained_run) -> Translator:
    """The run with settings that are no defaults, as `tune` writes them."""
    decoding = DecodingConfig(beam_size=3, alpha=1.1, max_extra_length=20, max_source_length=90)
    return load_translator(Run.open(trained_run.path), "best", decoding=decoding)


@pytest.fixture(scope="module")
def folder(of_run, tmp_path_factory) -> Path:
    return of_run.export(tmp_path_factory.mktemp("lite"), format="litert")


@pytest.fixture(scope="module")
def of_export(folder) -> Translator:
    return load(folder.parent)


@pytest.fixture(scope="module")
def kept(keeper, tmp_path_factory) -> Path:
    """An export whose vocabulary has slots, with weights at random and without a run."""
    return keeper.export(tmp_path_factory.mktemp("kept"), format="litert")


def test_the_settings_and_facts_are_those_of_the_run(of_run, of_export):
    assert isinstance(of_export.engine, LiteEngine)
    assert of_export.decoding == of_run.decoding
    for name in ("language", "target_language", "joins", "bleu_tokenizer", "protection"):
        assert getattr(of_export, name) == getattr(of_run, name)
    for name in ("has_slots", "symbols", "longest_trained", "longest"):
        assert getattr(of_export.engine, name) == getattr(of_run.engine, name)
    assert of_export.tokenizer.vocabulary() == of_run.tokenizer.vocabulary()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_best": 2, "alpha": 0.3, "max_length": 9, "min_length": 3, "beam_size": 4},
        {"prefix": ["Ein \udce9 ", *HOSTILE[1:]], "no_repeat_ngram": 2},
        {"lookahead": 5, "batch_tokens": 300},
    ],
)
def test_hostile_text_has_the_ids_and_hypotheses_of_the_run(of_run, of_export, options, caplog):
    both = []
    for one in (of_run, of_export):
        caplog.clear()
        found = one.translate(HOSTILE, **options)
        both.append((found, [r.getMessage() for r in caplog.records if r.name != "tensorflow"]))
    (expected, logged), (found, logged_too) = both
    assert logged_too == logged and any("cut at 90 tokens" in line for line in logged)
    ranked = (
        (expected, found)
        if "n_best" in options
        else ([[t] for t in expected], [[t] for t in found])
    )
    assert_same(*ranked[::-1])
    for (one, *_), (other, *_) in zip(*ranked, strict=True):
        names = ("tokens", "warnings", "source", "is_long", "is_cut", "faults")
        assert all(getattr(one, name) == getattr(other, name) for name in names)
    assert of_export.engine.count_tokens("caf\udce9") == of_run.engine.count_tokens("caf\udce9")
    assert of_export.fits(HOSTILE, HOSTILE) == of_run.fits(HOSTILE, HOSTILE)


def test_prefixes_are_cut_in_python_as_in_the_graph(of_run):
    decoding = dataclasses.replace(of_run.decoding, max_length=6, max_source_length=30)
    python = TextCodec(of_run.tokenizer, decoding, None, None)
    graph = GraphCodec(of_run.tokenizer, decoding, None, None)
    sources = [np.ones([size], np.int32) for size in range(1, 1 + len(HOSTILE))]
    lengths = np.array([*map(len, sources)], np.int32)
    texts = [text.encode("utf-8", "surrogatepass") for text in HOSTILE]
    expected, cut = graph.encode_prefix(texts, lengths)
    found = python.prefix_ids(HOSTILE, sources)
    assert [ids.tolist() for ids in found] == expected.to_list() and cut.numpy().any()
    assert python.limits(lengths).tolist() == graph.limits(lengths).numpy().tolist()


def test_documents_are_cut_into_the_sentences_of_the_run(of_run, of_export):
    document = "A dog runs. Mr. Smith waits.\n\n* Two men \udce9.\n```\ncode\n```\nhttp://a.b/c"
    expected, found = (each.translate_text(document) for each in (of_run, of_export))
    assert found == expected and found.sentences == expected.sentences


def test_spans_and_terms_are_kept_as_by_the_model(keeper, kept, caplog):
    texts = ["Order 4711: {name} and <b>two</b> dogs", "net of <3>", *HOSTILE]
    with caplog.at_level("WARNING"):
        loaded = load(kept)
    assert "does not tell the settings of its training" in caplog.text
    assert loaded.engine.symbols == keeper.engine.symbols and loaded.engine.has_slots
    for options in ({}, {"glossary": {"net": "Netz"}}, {"protect": "none"}):
        found, expected = (each.translate(texts, **options) for each in (loaded, keeper))
        assert found == expected
        for one, other in zip(found, expected, strict=True):
            names = ("tokens", "warnings", "source", "is_cut", "faults")
            assert all(getattr(one, name) == getattr(other, name) for name in names)


def test_only_four_forced_passes_are_computed_at_a_time(of_run, of_export, exported):
    """Those of the 16 documents of a server would need much memory."""
    for engine in (each.engine for each in (of_run, of_export, load(exported))):
        with ThreadPoolExecutor(1) as pool, ExitStack() as others:
            for _ in range(4):
                others.enter_context(TURNS)
            scored = pool.submit(engine.score, ["A dog."], ["Ein Hund."], DecodingConfig())
            with pytest.raises(TimeoutError):
                scored.result(0.5)
            others.close()
            assert len(scored.result(60)) == 1


def test_scores_and_words_have_the_probabilities_of_the_run(of_run, of_export):
    sources = ["A dog runs.", "Two men.", ""]
    pairs = sources, [*of_run.translate(sources)[:2], "Zwei Hunde laufen hier."]
    for one, other in zip(of_export.score(*pairs), of_run.score(*pairs), strict=True):
        assert one == other and one.tokens == other.tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
        assert one.word_probs == pytest.approx(other.word_probs, abs=1e-3)
    assert of_export.translate("A dog runs.", word_probs=True).word_probs


def test_the_function_in_the_guide_answers(of_run, folder):
    (snippet,) = snippets("docs/guides/small_machines.md")
    names: dict = {}
    exec(snippet.replace('"exported/small"', repr(str(folder))), names)
    answer = names["handle"]({"texts": ["A dog runs."]})
    assert answer["translations"] == of_run.translate(["A dog runs."])
    assert len(answer["warnings"]) == 1


def test_rules_in_numpy_are_obeyed(of_export):
    class NoFullStop(Rule):
        def __init__(self, id):
            self.id = id

        def next_token(self, beams):
            return NextToken(forbidden=np.array([self.id]))

    (*_, last, _) = of_export.translate("A dog runs.").tokens
    found = of_export.translate("A dog runs.", rules=[NoFullStop(last)])
    assert last not in found.tokens


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda one: one.align("a", "b"), "cannot align: load the run"),
        (lambda one: one.attention("a", "b"), "cannot show attention: load the run"),
        (lambda one: one.translate("a", sample=True), "cannot sample: load the run"),
        (lambda one: one.export("x"), "cannot be exported: load the run"),
        (lambda one: one.model, "cannot give its model: load the run"),
        (lambda one: load(one.engine.path, litert=True), "`litert` is not for an export for L"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(of_export, ask, what):
    with pytest.raises(UserError, match=what) as refused:
        ask(of_export)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.model", None, "tokenizer.model cannot be read"),
        ("model.tflite", b"no flatbuffer", "model.tflite cannot be loaded: "),
        ("model_card.json", b"[1", "model_card.json must be as `export` wrote it"),
    ],
)
def test_a_damaged_folder_is_refused(folder, tmp_path, file, content, message):
    damaged = Path(shutil.copytree(folder, tmp_path / "1"))
    (damaged / file).unlink()
    if content:
        (damaged / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load(damaged)


def test_the_newest_version_is_loaded_whatever_its_kind(folder, exported, tmp_path):
    for number, source in ((1, exported), (2, folder)):
        shutil.copytree(source, tmp_path / "m" / str(number))
    assert load(tmp_path / "m").engine.path == tmp_path / "m" / "2"
    assert load(tmp_path / "m" / "1").engine.path == tmp_path / "m" / "1"


def test_fixed_shapes_take_one_sentence_at_a_time_and_no_other_sizes(of_run, tmp_path):
    path = of_run.export(tmp_path, format="litert", fixed_length=40, beam_size=2)
    fixed, texts = load(path), HOSTILE[:7]
    assert fixed.translate(texts) == of_run.translate(texts, beam_size=2)
    for wrong in ({"beam_size": 3}, {"max_source_length": 41}):
        with pytest.raises(
            UserError, match="other sizes than 40 and 60 tokens, and `beam_size` 2"
        ):
            fixed.translate(texts, **wrong)
    assert len(fixed.translate(HOSTILE)) == len(HOSTILE)


# --- Each door in a process of its own ------------------------------------------------------

HEAVY = "{'tensorflow', 'keras', 'tensorflow_text', 'torch'}"
# The peak of this program alone: that of `getrusage` is the parent's, where it is larger.
END = f"""
print(*{{name.partition(".")[0] for name in sys.modules}} & {HEAVY}, file=sys.stderr)
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak[0].split()[1]) // 1000, "MB", file=sys.stderr)
"""
COMMAND = f"""
import sys
from tf_transformer.cli.main import main
assert main(sys.argv[1:]) == 0
{END}"""
MOST = 100  # MB, of which NumPy and LiteRT take half


def in_process(code: str, *words: object, text: str = "") -> tuple[str, str]:
    """What a program printed, after checking that it was light."""
    command = [sys.executable, "-c", code, *map(str, words)]
    path = {"PYTHONPATH": str(Path(tf_transformer.__file__).parents[1])}
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=os.environ | path
    )
    assert done.returncode == 0, done.stderr
    *log, modules, memory = done.stderr.split("\n")[:-1]
    assert modules == "" and int(memory.split()[0]) < MOST, done.stderr
    return done.stdout, "\n".join(log)


def test_load_is_light(folder, of_run):
    code = "import sys, tf_transformer\nloaded = tf_transformer.load(sys.argv[1])\n"
    code += "print(loaded.translate('A dog runs.'))\n" + END
    assert in_process(code, folder)[0] == f"{of_run.translate('A dog runs.')}\n"


def test_translate_is_light_at_each_of_its_doors(folder, kept, of_run, keeper, tmp_path):
    texts = ["A dog runs.", "", "Two men."]
    lines = "\n".join(texts) + "\n"
    out, _ = in_process(COMMAND, "translate", folder, text=lines)
    assert out.splitlines() == of_run.translate(texts)
    (tmp_path / "begin").write_text("Ein\n\nZwei\n", "utf-8")
    options = [
        "--n-best",
        2,
        "--beam",
        4,
        "--prefix-file",
        "begin",
        "--report",
        "r",
        "--threads",
        1,
    ]
    out, _ = in_process(COMMAND, "translate", folder, *options, text=lines)
    expected = of_run.translate(texts, n_best=2, prefix=["Ein", "", "Zwei"], beam_size=4)
    assert [line.split("\t")[2] for line in out.splitlines()] == [
        t for s in expected for t in s
    ]
    assert (tmp_path / "r").exists()
    out, _ = in_process(COMMAND, "translate", folder, "--text", text="A dog runs. Two men.\n")
    assert out == of_run.translate_text("A dog runs. Two men.\n")
    (tmp_path / "terms.tsv").write_text("net\tNetz\n", "utf-8")
    options = ["--glossary", "terms.tsv", "--protect", "default"]
    out, _ = in_process(COMMAND, "translate", kept, *options, text="the net of 4711\n")
    assert out == f"{keeper.translate('the net of 4711', glossary={'net': 'Netz'})}\n"
    page = "<!DOCTYPE html>\n<html><body><p>A dog runs.</p></body></html>\n"
    (tmp_path / "page.html").write_text(page, "utf-8")
    in_process(COMMAND, "translate", folder, "--file", "page.html", "--output", "out.html")
    assert of_run.translate("A dog runs.") in (tmp_path / "out.html").read_text("utf-8")


def test_evaluate_and_card_are_light(folder, of_run, trained_run):
    files = [trained_run.corpus / f"dev.{side}" for side in ("en", "de")]
    out, log = in_process(
        COMMAND, "evaluate", folder, "--source", files[0], "--reference", files[1]
    )
    sides = (file.read_text("utf-8").splitlines() for file in files)
    *lines, caution = out.splitlines()
    assert lines == str(of_run.evaluate(*sides)).splitlines() and log == ""
    assert caution.endswith("not checked: an export does not have its training text")
    out, _ = in_process(COMMAND, "card", folder)
    card = json.loads((folder / "model_card.json").read_text("utf-8"))
    for line in ("decoding.alpha", "1.1"), ("checkpoint.sha256", card["checkpoint"]["sha256"]):
        assert any(all(part in row for part in line) for row in out.splitlines())


def test_serve_is_light(folder, of_run, tmp_path):
    """Of a folder of versions it has the newest, as of SavedModels."""
    model = tmp_path / "small"
    shutil.copytree(folder, model / "12")
    (model / "9").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", COMMAND, "serve", str(model), "--port", str(port)]
    home = {"PYTHONPATH": str(Path(tf_transformer.__file__).parents[1])}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ | home)
    try:
        url = f"http://127.0.0.1:{port}"

        def ask(path: str, body: dict | None = None) -> str:
            data = body and json.dumps(body).encode()
            with urllib.request.urlopen(f"{url}{path}", data, timeout=60) as answer:
                return answer.read().decode()

        for _ in range(600):
            time.sleep(0.1)
            try:
                if ask("/readyz") == "ok\n":
                    break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
        texts, path = ["A dog runs.", ""], "/v1/models/small"
        found = json.loads(ask(f"{path}:predict", {"instances": texts}))["predictions"]
        assert [each["translation"] for each in found] == of_run.translate(texts)
        nbest = {"signature_name": "nbest", "inputs": texts}
        found = json.loads(ask(f"{path}/versions/12:predict", nbest))["outputs"]
        assert found["translations"][0] == of_run.translate(texts[0], n_best=3)
        document = "A dog runs. Two men.\n"
        found = json.loads(ask(f"{path}:translateText", {"text": document}))
        assert found["text"] == of_run.translate_text(document)
        described = json.loads(ask(f"{path}/metadata"))["metadata"]["signature_def"]
        assert [*described["signature_def"]] == ["serving_default", "nbest"]
        assert "<html" in ask("/") and "AVAILABLE" in ask(path)
        metric = 'tf_transformer_version{model="small"} 12.0'
        assert metric in ask("/monitoring/prometheus/metrics")
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)
    *_, modules, memory = (tmp_path / "log").read_text().splitlines()
    assert modules == "" and int(memory.split()[0]) < MOST + 20


def test_exports_for_litert_are_no_gate_and_no_source_of_an_export(folder, trained_run):
    words = ["export", str(trained_run.path), "--better-than", str(folder), "--output", "x"]
    dev = [str(trained_run.corpus / f"dev.{side}") for side in ("en", "de")]
    done = run_here([*words, "--source", dev[0], "--reference", dev[1]])
    assert done.returncode and "--better-than must be a SavedModel. Received" in done.stderr


def test_a_run_is_refused_in_one_line_where_tensorflow_is_not_installed(
    trained_run, monkeypatch
):
    code = "import sys\nfrom importlib import util\nfind = util.find_spec\n"
    code += "util.find_spec = lambda name: None if name == 'tensorflow' else find(name)\n"
    code += "from tf_transformer.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "translate", str(trained_run.path)]
    done = subprocess.run(command, input="A dog.\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: This needs TensorFlow, which is not installed")


def test_a_window_and_a_vocabulary_of_each_side_are_those_of_the_model(tmp_path):
    model, random = (
        small_model(272, positions="relative", attention_window=2),
        np.random.default_rng(3),
    )
    model.set_weights([random.normal(0, 0.7, w.shape) for w in model.get_weights()])
    path = tmp_path / "tokenizer.model"
    for file, text in ((path, "two dogs run"), (target_model_path(path), "zwei Hunde rennen")):
        train_tokenizer([text] * 3, file, vocab_size=272)
    values = {"model.positions": "relative", "model.attention_window": 2}
    config = dataclasses.asdict(Config().replace(values))
    plain = Translator(model, path, DECODING, card=lambda: {"config": config})
    loaded = load(plain.export(tmp_path / "lite", format="litert"))
    assert loaded.engine.window == 2 and loaded.tokenizer.models == plain.tokenizer.models
    texts = ["two dogs", "run " * 12, *HOSTILE[:9]]
    assert loaded.translate(texts) == plain.translate(texts)
