"""Text in many scripts comes back from a tokenizer as it went in, or as its rule says."""

import logging
import random
import re
from pathlib import Path

import pytest
import sentencepiece
import tensorflow as tf
from helpers import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tf_transformer.base.errors import UserError
from tf_transformer.config import BOS_ID, EOS_ID, NORMALIZATIONS, PAD_ID, UNK_ID, DataConfig
from tf_transformer.data.text import always_tagged, corpus_tag, is_visible
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import (
    check_tags,
    require_known,
    symbol_pieces,
    symbols_of,
    tokenizer_settings,
    train_tokenizer,
    usable_tag,
)

LINES = {
    "German": "Die Straße war naß; „Grüß Gott“, sagte er – und ging … um 5 €.",
    "French": "«\u00a0Où est l’œuvre\u00a0?\u00a0» demanda-t-elle à 10\u202fh\u00a030…",
    "Chinese": "你好，世界！这本书（第１版）售价１００元；他说：“很好。”",
    "Chinese with wide blanks": "标题\u3000作者：王小明\u3000（编）",
    "Japanese": "東京（とうきょう）は、日本の首都です。ｶﾀｶﾅも「カタカナ」も使う～。",
    "Arabic": "قالَ: «مَرْحَبًا بِكُم!» ثُمَّ ذَهَبَ، هل رأيتَهُ؟ ﷺ",
    "Persian": "من می\u200cخواهم کتاب\u200cهای تازه\u200cام را بخوانم؛ نیم\u200cفاصله مهم است.",
    "Hindi": "क्षत्रिय पढ़ाई करता है, क्\u200dष और क्\u200cष अलग हैं। \u0958लम",
    "Thai": "สวัสดีครับ วันนี้อากาศดีมาก น้ำแข็งราคา ๒๐ บาท",
    "emoji": "Familie 👨‍👩‍👧‍👦, Flagge 🏳️‍🌈 und 👍🏽 ☎️",
    "combining accents": "cafe\u0301 und café, A\u030a und Å und \u212b",
    "marks of direction": "Das Wort \u2067שלום\u2069 (\u200fעברית\u200e) steht hier.",
    "superscripts": "E = mc², 10⁻³ m³, H₂O, ½ und №\u00a05, ﬁnden, ™",
    "full width": "ＡＢＣ，．！？：；（）",
    "invisible": "weich\u00adtrennbar, null\u200bbreit, \ufeffMarke, \u2060Wort",
    "control characters": "Tab\there, \x01 \x7f \x00 \u0085 \u2028 \u2029 \x0b Ende",
    "special tokens": "</s> <s> <pad> <unk> <0x41> ⁇ \u2585 \ufffd",
}
# None of these characters is in the training text: they must be spelled in bytes.
UNSEEN = "ⵣ 𐍈 ꙮ 𝒳 ﷽ \U0010ffff"
KINDS = pytest.mark.parametrize("kind", ["bpe", "unigram"])
TRAINED_ON = [line for line in LINES.values() for _ in range(3)]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[tuple[str, str], Tokenizer]:
    """Tokenizers trained on `LINES`, by rule and kind."""
    folder = tmp_path_factory.mktemp("rules")
    made = {}
    for rule, kind in [*((rule, "bpe") for rule in NORMALIZATIONS), ("identity", "unigram")]:
        path = folder / f"{rule}.{kind}.model"
        train_tokenizer(TRAINED_ON, path, vocab_size=540, kind=kind, normalization=rule)
        made[rule, kind] = Tokenizer(path)
    return made


def round_trip(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    ids = tokenizer.tokenize(tf.constant(lines, tf.string))
    return [line.decode() for line in tokenizer.detokenize(ids).numpy()]


def single_blanks(line: str) -> str:
    """The text as the rule "identity" leaves it."""
    if not is_visible(line):
        return ""
    return " ".join(word for word in line.replace("\u2581", " ").split(" ") if word)


@KINDS
def test_text_comes_back_unchanged_and_special_tokens_are_plain_text(tokenizers, kind):
    lines, tokenizer = [*LINES.values(), UNSEEN], tokenizers["identity", kind]
    assert round_trip(tokenizer, lines) == lines
    ids = tokenizer.tokenize(tf.constant(lines))
    assert not {*ids.values.numpy()} & {PAD_ID, UNK_ID, BOS_ID, EOS_ID}


@settings(deadline=None, max_examples=60)
@given(
    lines=st.lists(
        st.text(st.characters(codec="utf-8") | st.sampled_from(" \u2581")), min_size=1
    )
)
@example(
    ["a \u2581b", "\u2581 x\u2581", "  a  b ", "\t\r", "\u3000\ufeff", "\n", "\x00", "a\n"]
)
def test_only_spaces_change_in_any_text(tokenizers, lines):
    expected = [single_blanks(line) for line in lines]
    assert round_trip(tokenizers["identity", "bpe"], lines) == expected


def test_the_graph_and_the_library_agree(tokenizers):
    lines = [*LINES.values(), UNSEEN, "  two  blanks ", "a\u2581b", "", " "]
    for tokenizer in tokenizers.values():
        library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
        ids = tokenizer.tokenize(tf.constant(lines))
        assert (ids.dtype, ids.to_list()) == (tf.int32, library.encode(lines))
        assert round_trip(tokenizer, lines) == library.decode(library.encode(lines))


def test_the_rule_of_sentencepiece_is_available(tokenizers):
    lines = ["（你好）", "می\u200cخواهم", "x² …", "a\u00a0b\tc", "\u200fa"]
    expected = ["(你好)", "می خواهم", "x2 ...", "a b c", "a"]
    assert round_trip(tokenizers["nmt_nfkc", "bpe"], lines) == expected
    assert round_trip(tokenizers["nfkc", "bpe"], lines)[1] == lines[1]


def test_the_guide_says_what_nmt_nfkc_makes_of_invisible_characters(
    tokenizers,
):
    guide = (ROOT / "docs" / "guides" / "vocabulary.md").read_text("utf-8")
    made = {"a space, which splits a word": " ", "nothing": "", "themselves": None}
    for name, expected in made.items():
        (row,) = re.findall(rf"^\| {name} \| (.*) \|$", guide, re.MULTILINE)
        spans = re.findall(r"U\+(\w{4})(?: to U\+(\w{4}))?", row)
        codes = [c for a, b in spans for c in range(int(a, 16), int(b or a, 16) + 1)]
        assert len(codes) > 7
        texts = [f"x{chr(code)}y" for code in codes]
        kept = [f"x{chr(code) if expected is None else expected}y" for code in codes]
        assert round_trip(tokenizers["nmt_nfkc", "bpe"], texts) == kept


def test_a_model_records_its_settings(tokenizers, tmp_path):
    for (rule, _), tokenizer in tokenizers.items():
        expected = {"data.normalization": rule, "data.character_coverage": 1.0}
        assert tokenizer_settings(tokenizer.path) == expected
        assert b"tsv" not in tokenizer.model_bytes  # of a temporary file
    (tmp_path / "no.model").write_bytes(b"\xff")
    with pytest.raises(UserError, match="no.model is not a SentencePiece model"):
        tokenizer_settings(tmp_path / "no.model")


def test_rare_characters_beyond_the_coverage_are_spelled_in_bytes(tmp_path):
    rng = random.Random(1)
    lines = ["".join(rng.choices("abcdefgh ", k=60)) for _ in range(200)] + ["龘 Ω"]
    found = []
    for coverage in (1.0, 0.999):
        path = tmp_path / f"{coverage}.model"
        train_tokenizer(lines, path, vocab_size=300, kind="bpe", character_coverage=coverage)
        tokenizer = Tokenizer(path)
        assert round_trip(tokenizer, ["龘 Ω ab"]) == ["龘 Ω ab"]
        assert tokenizer_settings(path)["data.character_coverage"] == coverage
        found.append({*tokenizer.pieces(tf.range(300)).numpy().tolist()})
    assert {"龘".encode(), "Ω".encode()} <= found[0]
    assert not {"龘".encode(), "Ω".encode()} & found[1]


TAGS = ("de=<2de>", "fr=<2fr>", "made=<made>", "en=translate to English:")
DATA = DataConfig(train=("x/real", "x/made:en-fr"), source="en", target="de", tag=TAGS)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(tmp_path_factory, request) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    lines = ["a small text", "that repeats a little", "a small text that repeats"] * 20
    options = {"vocab_size": 280, "kind": request.param, "normalization": "nmt_nfkc"}
    train_tokenizer(lines, path, **options, symbols=symbol_pieces(["<2de>", "<…>"]))
    return path


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.tokenize(tf.constant([text]))
    return [piece.decode() for piece in tokenizer.pieces(ids[0]).numpy()]


def test_a_symbol_is_never_split(tokenizer):
    """Not even within a word, or by a rule that rewrites its characters."""
    for symbol in ("<2de>", "<…>"):
        for text in (f"{symbol} a text", f"text{symbol}text", f"a ({symbol}), {symbol * 2}"):
            words = [piece.lstrip("\u2581") for piece in pieces(Tokenizer(tokenizer), text)]
            assert words.count(symbol) == text.count(symbol)
        assert pieces(Tokenizer(tokenizer), f"{symbol} a")[0] == f"\u2581{symbol}"


def test_a_tagged_tokenizer_puts_the_tag_before_visible_sources(tokenizer):
    tagged, plain = Tokenizer(tokenizer, "<2de>"), Tokenizer(tokenizer)
    texts = ["a text", "", "\u200b", " that "]
    expected = plain.ids(["<2de> a text", "", "", "<2de> that "])
    assert tagged.tokenize(tf.constant(texts)).to_list() == tagged.ids(texts) == expected
    targets = tagged.tokenize_target(tf.constant(texts)).to_list()
    assert targets == tagged.ids(texts, "target") == plain.ids(texts)


def test_a_corpus_has_the_tags_of_its_language_and_its_name():
    assert corpus_tag("x/real", DATA) == "<2de>"
    assert corpus_tag("x/made:en-fr", DATA) == "<2fr>"
    assert corpus_tag("x/made", DATA) == "<2de> <made>"
    assert corpus_tag("x/real:de-en", DATA) == "translate to English:"
    assert corpus_tag("x/real:de-it", DATA) == ""
    assert symbols_of(DATA) == ["<2de>", "<2fr>", "<made>"]
    parts = {"m30k/train": "<cap>", "my/m30k/train": "<tat>", "30k/train": "<no>"}
    data = DataConfig(tag=tuple(f"{key}={tag}" for key, tag in parts.items()))
    assert corpus_tag("data/m30k/train", data) == "<cap>"
    assert corpus_tag("my/m30k/train", data) == "<tat> <cap>"
    assert always_tagged(DATA)
    assert not always_tagged(DataConfig(train=("a", "made"), tag=("made=<made>",)))


def written(folder: Path, line: str = "a text") -> str:
    for language in ("en", "de"):
        (folder / f"t.{language}").write_text(f"one\n{line}\n", "utf-8")
    return str(folder / "t")


def test_a_tag_for_no_corpus_is_refused(tmp_path):
    data = DataConfig(train=(written(tmp_path),), source="en", target="de", tag=("ed=<2de>",))
    with pytest.raises(UserError, match=rf"Received: 'ed'. There are: de, {data.train[0]}\."):
        check_tags(data)


def test_a_tag_that_occurs_in_the_text_is_refused_with_its_line(tmp_path):
    name = written(tmp_path, "so <2de> it")
    data = DataConfig(train=(name,), source="en", target="de", tag=("de=<2de>",))
    with pytest.raises(UserError, match=r"contain the tag <2de>. Received: line 2 of .*/t\."):
        check_tags(data)


def test_symbols_are_counted_in_the_text(tmp_path, caplog):
    name = written(tmp_path, "so <2de> it")
    symbols = ("<2de>", "<2fr>")
    with caplog.at_level(logging.INFO):
        check_tags(DataConfig(train=(name,), source="en", target="de", symbols=symbols))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "symbol <2de>: in 2 lines of the text"),
        ("WARNING", "symbol <2fr>: in 0 lines of the text"),
    ]


@pytest.mark.parametrize(
    "settings", [*({"tag": (t,)} for t in ("de", "=a", "de= ")), {"tag": ("de=<a>", "de=<b>")}]
)
def test_malformed_tags_are_refused(settings):
    with pytest.raises(UserError, match="`data.tag` must be KEY=TAG"):
        DataConfig(**settings)


@pytest.mark.parametrize("word", ["<pad>", "<unk>", "<s>", "</s>", "<0x41>"])
def test_the_names_of_special_ids_are_no_symbols(tmp_path, word):
    for refused in (
        lambda: DataConfig(symbols=("<a>", word)),
        lambda: DataConfig(tag=(f"de={word}",)),
        lambda: train_tokenizer(["a"], tmp_path / "t.model", vocab_size=270, symbols=[word]),
    ):
        with pytest.raises(UserError, match=f"be other words than .* Received: '.*{word}'"):
            refused()
    DataConfig(tag=(f"de=to {word}",), symbols=(f"{word}x",))


def test_a_tag_must_be_known_from_the_training_or_the_tokenizer(tokenizer):
    assert require_known(" <made>  <2fr> ", DATA, tokenizer) == "<made> <2fr>"
    assert require_known("translate to English:", DATA, tokenizer)
    assert require_known(None, DATA, tokenizer) == ""
    assert require_known("<2de>", DataConfig(), tokenizer) == "<2de>"
    for tag, data, known in (
        ("<2de> <2it>", DATA, "<2de>, <2fr>, <made>, translate to English:"),
        ("<2it>", DataConfig(), "<2de>, <…>"),
    ):
        with pytest.raises(UserError, match=f"with: {re.escape(known)}. Received: '<2it>'"):
            require_known(tag, data, tokenizer)


def test_a_run_without_tags_uses_none_and_says_so(tokenizer, trained_run, caplog):
    assert usable_tag("<2de>", DATA, tokenizer) == "<2de>"
    assert usable_tag(None, DATA, tokenizer) is None and not caplog.messages
    plain = trained_run.path / "tokenizer.model"
    assert usable_tag("<2de>", DataConfig(), plain) is None
    assert "was trained without tags: `tag` has no effect on it" in caplog.text
