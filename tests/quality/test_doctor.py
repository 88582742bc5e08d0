"""Planted defects are found, with their numbers and their first line, and clean text passes."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import sentencepiece

from tf_transformer.config import DataConfig
from tf_transformer.config.presets import preset
from tf_transformer.data import builtin
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPECIAL_IDS, train_tokenizer
from tf_transformer.quality import doctor
from tf_transformer.quality.defects import line_defects
from tf_transformer.quality.doctor import (
    TEXT_CHECKS,
    Count,
    Finding,
    Survey,
    diagnose,
    judge,
    percent,
    quick_findings,
    take_surveys,
)
from tf_transformer.run import Run
from tf_transformer.translation.task import TranslationTask

Pairs = Sequence[tuple[str, str]]

PAIRS = builtin.pairs(1_200)
TRAIN, DEV, TEST = PAIRS[:1_000], PAIRS[1_000:1_100], PAIRS[1_100:]
LINES = [line for pair in TRAIN for line in pair]
DATA = DataConfig()

# Raw text of other kinds that no check may mistake for a defect.
RAW = [
    "« Où est-elle ? », dit-il ; « là »… Non !",
    "Der Spaß“ – so heißt’s – kostet 3 €…",
    "CAFÉ », « ÉTÉ »",
    "Fish & chips; R&D; AT&T; a&b",
    "A\ttab, and 5.3",
    "Οὐκ ἔστιν. Привет, мир.",
    "HYVÄÄ”, „Ä“ AMANHÃ… »TÄÄLLÄ« 3\u00a0×\u00a04, été\u00a0»",
    "É»  Ünï—  à » ô »",
    "你好,世界。",
]


@pytest.fixture
def write(tmp_path) -> Callable[[str, Pairs], str]:
    """`write("dev", pairs)` writes dev.en and dev.de and returns their prefix."""

    def write(name: str, pairs: Pairs) -> str:
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{name}.{language}").write_text(text, "utf-8", newline="")
        return str(tmp_path / name)

    return write


@pytest.fixture
def surveys(write) -> Callable[..., list[Survey]]:
    """`surveys(train, dev, test)` writes pairs and takes their surveys."""

    def take(*splits: Pairs, **how) -> list[Survey]:
        named = zip(("train", "dev", "test"), splits, strict=False)
        texts = {name: [write(name, pairs)] for name, pairs in named}
        return take_surveys(texts, DataConfig(source="en", target="de"), **how)

    return take


def edit(pairs: Pairs, change: Callable[[str], str], side: str, every: int) -> Pairs:
    """Returns the pairs with `change` applied to one side of every `every`-th."""
    edited = list(pairs)
    for number in range(every - 1, len(pairs), every):
        source, target = pairs[number]
        is_source = side == "source"
        edited[number] = (change(source), target) if is_source else (source, change(target))
    return edited


# --- The survey --------------------------------------------------------------------------


def test_a_small_corpus_is_kept_whole_and_in_order(surveys):
    (train,) = surveys(TRAIN)
    assert [pair[:2] for pair in train.sample] == TRAIN
    assert [pair.number for pair in train.sample] == list(range(1_000))
    assert train.pairs == 1_000


def test_a_large_corpus_is_sampled_evenly_and_its_memory_does_not_grow(surveys, monkeypatch):
    monkeypatch.setattr("tf_transformer.quality.doctor.SAMPLE_PAIRS", 1_000)
    lines = [(f"line {number}", "x") for number in range(20_000)]
    train, dev = surveys(lines, lines[-1_500:])
    numbers = [pair.number for pair in train.sample]
    assert 400 < len(set(numbers)) <= 1_000 and numbers == sorted(numbers)
    assert all(pair.source == f"line {pair.number}" for pair in train.sample)
    quarters = Counter(number // 5_000 for number in numbers)
    # Binomial: a quarter, with a standard deviation of at most 14.
    assert all(abs(quarters[each] - len(numbers) / 4) < 60 for each in range(4))
    assert train.shared == {key for pair in dev.sample for key in pair.keys}
    assert len(train.shared) == 2 * len(dev.sample) <= 2_000  # of 1,500 in dev


def test_every_nth_training_pair_is_examined(surveys):
    train, dev = surveys(TRAIN, DEV, every=7)
    assert [pair.number for pair in train.sample] == list(range(0, 1_000, 7))
    assert (train.pairs, dev.pairs) == (143, 100)


def test_a_location_is_a_file_and_a_line(write, tmp_path):
    names = [write(name, TRAIN[:count]) for name, count in (("a", 3), ("b", 0), ("c", 2))]
    data = DataConfig(source="en", target="de")
    (train,) = take_surveys({"train": names}, data)
    assert [train.location(pair.number) for pair in train.sample] == [
        f"{tmp_path}/{line}" for line in ("a.en:1", "a.en:2", "a.en:3", "c.en:1", "c.en:2")
    ]
    assert train.location(4, "target") == f"{tmp_path}/c.de:2"


def test_progress_names_the_split_and_counts_all_pairs_that_are_read(surveys):
    calls: list[tuple[str, int]] = []
    surveys([("a", "b")] * 25_000, DEV, every=2, progress=lambda *call: calls.append(call))
    assert calls == [("reading train", 10_000), ("reading train", 20_000)]


# --- Findings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.256, "26%"), (0.0123, "1.2%"), (1 / 29_000, "0.0034%")],
)
def test_a_small_share_is_not_shown_as_zero(share, text):
    assert percent(share) == text


def test_every_count_above_the_limit_is_a_warning_with_its_location():
    counts = [
        Count(2, 100, "lines of train", "train.en:7"),
        Count(1, 100, "lines of dev", "dev.en:3"),
        Count(3, 100, "lines of test", "test.en:1"),
    ]
    assert list(map(str, judge("dust", counts, 0.01, "are dusty: sweep."))) == [
        "warning  dust: 2 of 100 lines of train (2%) are dusty: sweep. First: train.en:7.",
        "warning  dust: 3 of 100 lines of test (3%) are dusty: sweep. First: test.en:1.",
    ]


def test_without_a_warning_the_worst_count_is_shown():
    counts = [Count(0, 50, "lines of train"), Count(1, 1_000, "lines of dev", "dev.en:9")]
    assert judge("dust", counts, 0.01, "") == [
        Finding("dust", "at most 1 of 1,000 lines of dev (0.1%). First: dev.en:9.")
    ]
    assert judge("dust", counts[:1], 0.01, "") == [Finding("dust", "none")]


def test_an_empty_text_has_no_defect():
    assert judge("dust", [Count(0, 0, "lines")], 0.0, "") == [Finding("dust", "none")]


# --- Lines -------------------------------------------------------------------------------


def test_clean_text_passes_every_check(surveys):
    splits = surveys(TRAIN, DEV, TEST)
    checks = [check for check in TEXT_CHECKS if check is not doctor.check_variety]
    findings = [finding for check in checks for finding in check(splits, DATA)]
    assert list(map(str, findings)) == [
        f"ok       {check}: none"
        for check in (
            "encoding", "control characters", "HTML entities", "empty lines", "length",
            "length ratio", "copies", "languages", "duplicates", "overlap",
        )
    ]  # fmt: skip


@pytest.mark.parametrize("line", RAW)
def test_raw_text_of_any_language_is_not_a_defect(surveys, line):
    splits = surveys([(line, line)] * 30, [(line, line)] * 30)
    names = ("encoding", "control characters", "HTML entities")
    findings = [finding for name in names for finding in doctor.check_lines(name, splits, DATA)]
    assert not [str(finding) for finding in findings if finding.warning]


@pytest.mark.parametrize(
    "text", ["это", "είναι", "שלום", "كلب", "日本", "यह", "개입", "�", "😀"]
)
def test_utf_8_of_every_script_read_as_windows_1252_is_broken(text):
    assert line_defects(DATA)["encoding"](text.encode().decode("cp1252", "ignore"))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("check", "defect"),
    [
        ("encoding", lambda text: text + "\ufffd"),
        ("encoding", lambda text: f"{text} für".encode().decode("latin-1")),
        ("encoding", lambda text: f"{text} Straße".encode().decode("cp1252")),
        ("encoding", lambda text: f"{text} “quoted”".encode().decode("cp1252", "ignore")),
        ("encoding", lambda text: f"{text} это".encode().decode("cp1252", "ignore")),
        ("control characters", lambda text: text + "\x92"),
        ("control characters", lambda text: text + "\x00"),
        ("control characters", lambda text: text + "\u2028"),
        ("control characters", lambda text: text + "\x0b"),
        ("HTML entities", lambda text: text + " &amp; so on"),
        ("HTML entities", lambda text: text + " &#8217;"),
        ("HTML entities", lambda text: text + " &#xE4;"),
    ],
)
def test_broken_characters_are_found_with_their_first_line(surveys, check, defect, side):
    splits = surveys(edit(TRAIN, defect, side, every=100), DEV)
    (finding,) = doctor.check_lines(check, splits, DATA)
    assert finding.warning and finding.check == check
    assert f"10 of 1,000 {side} lines of train (1%)" in finding.text
    language = {"source": "en", "target": "de"}[side]
    assert re.search(rf"First: \S+/train\.{language}:100\.$", finding.text)


def test_entities_that_moses_writes_belong_to_tokenised_text(surveys):
    tokenised = DataConfig(bleu_tokenizer="none")
    moses = [("a &quot; b &apos;s &amp; &#91;", "c &lt; d &#124;")] * 30
    assert not doctor.check_lines("HTML entities", surveys(moses), tokenised)[0].warning
    (finding,) = doctor.check_lines(
        "HTML entities", surveys([("a &quot; b", "c &#8217; d")] * 30), tokenised
    )
    assert finding.warning and "30 of 30 target lines of train" in finding.text


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_empty_lines_are_found(surveys, blank):
    splits = surveys(TRAIN, edit(DEV, lambda _: blank, "target", every=50))
    (finding,) = doctor.check_empty(splits, DATA)
    assert finding.warning and "2 of 100 target lines of dev (2%)" in finding.text


@pytest.mark.parametrize("pairs", [[], [("", " "), ("A dog.", "")]])
def test_a_split_without_any_text_is_a_warning(surveys, pairs):
    (finding,) = doctor.check_empty(surveys(pairs, DEV), DATA)
    assert finding.warning and finding.text.startswith("train has no pair with text")


def test_lines_longer_than_the_limit_in_words_are_found(surveys):
    long = surveys(edit(TRAIN, lambda _: "word " * 32, "source", every=10))
    (finding,) = doctor.check_lines("length", long, DataConfig(max_length=32))
    assert finding.warning and "100 of 1,000 source lines of train (10%)" in finding.text
    assert not doctor.check_lines("length", long, DataConfig(max_length=33))[
        0
    ].warning  # 32 words and EOS


# --- Pairs -------------------------------------------------------------------------------


def copied(pairs: Pairs) -> Pairs:
    return [(source, f" {source}") for source, _ in pairs]


def test_untranslated_copies_are_found(surveys):
    (finding,) = doctor.check_copies(surveys(TRAIN[:-20] + copied(TRAIN[-20:]), DEV), DATA)
    assert finding.warning
    assert "20 of 1,000 pairs of train (2%)" in finding.text
    assert finding.text.endswith("train.en:981.")


def test_numbers_and_punctuation_may_be_equal(surveys):
    splits = surveys([("1984", "1984"), ("...", "..."), ("", "")])
    assert not doctor.check_copies(splits, DATA)[0].warning


@pytest.mark.parametrize(
    "plant",
    [lambda pair, _: pair[::-1], lambda pair, other: (other[1], pair[1]),
     lambda pair, other: (pair[0], other[0])],
    ids=["swapped", "source", "target"],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_sides_in_the_other_language_are_found(surveys, plant, share):
    """Even when they are many, without knowing any language."""
    planted = {round(n / share) for n in range(int(share * 1_000))}
    pairs = [plant(it, PAIRS[n + 50]) if n in planted else it for n, it in enumerate(TRAIN)]
    (finding,) = doctor.check_languages(surveys(pairs), DATA)
    found = int(finding.text.split()[0])
    assert finding.warning and 0.97 * len(planted) <= found <= len(planted)
    assert finding.text.endswith("train.en:1.")
    (in_dev,) = doctor.check_languages(surveys(TRAIN, pairs), DATA)
    assert in_dev.text.split(" (")[0] == f"{len(planted)} of 1,000 pairs of dev"


def test_sides_in_one_language_are_not_told_apart(surveys):
    sources = [source for source, _ in TRAIN]
    pairs = [*zip(sources, sources[1:], strict=False)]
    (finding,) = doctor.check_languages(surveys(pairs), DATA)
    assert finding.text.startswith("not checked") and not finding.warning


def test_pairs_that_were_there_before_are_counted(surveys):
    again = [(f" {source}  ", target) for source, target in TRAIN[:100]]
    (finding,) = doctor.check_duplicates(surveys(TRAIN + again, DEV), DATA)
    assert finding.warning and finding.text.startswith("100 of 1,100 pairs of train (9.1%)")
    assert finding.text.endswith("train.en:1001.")
    assert not doctor.check_duplicates(surveys(TRAIN + again[:50]), DATA)[0].warning
    other = [("A dog.", "Ein Hund."), ("A", "dog. Ein Hund.")]
    assert doctor.check_duplicates(surveys(other), DATA)[0].text == "none"


def test_shifted_lines_are_found_by_their_lengths(surveys):
    """Sentences of very different lengths, the translations one line too late."""
    pairs = [(text * (1 + 9 * (n % 2)), line * (1 + 9 * (n % 2)))
             for n, (text, line) in enumerate(TRAIN)]  # fmt: skip
    sources, targets = zip(*pairs, strict=True)
    shifted = list(zip(sources[1:], targets[:-1], strict=True))
    assert not doctor.check_ratio(surveys(pairs), DATA)[0].warning
    (finding,) = doctor.check_ratio(surveys(pairs, shifted), DATA)
    assert finding.warning and re.match(r"99\d of 999 pairs of dev \(99%\)", finding.text)


def test_the_usual_length_ratio_is_learned_from_the_text(surveys):
    """A language with few characters is no outlier, but other text beside it is."""
    short = [(source, target[::4]) for source, target in TRAIN]
    (finding,) = doctor.check_ratio(surveys(short, DEV), DATA)
    assert finding.warning and "pairs of dev" in finding.text
    assert not doctor.check_ratio(surveys(short), DATA)[0].warning


def test_short_and_empty_lines_have_no_ratio(surveys):
    odd = [("Yes.", "Aber selbstredend"), ("Text " * 9, "")] * 20
    assert not doctor.check_ratio(surveys(TRAIN, DEV + odd), DATA)[0].warning


def test_pairs_of_dev_or_test_in_train_are_found(surveys):
    splits = surveys(TRAIN, DEV[:95] + TRAIN[:5], TRAIN[7:9] + TEST[2:])
    dev, test = doctor.check_overlap(splits, DATA)
    assert dev.warning and test.warning
    assert "5 of 100 pairs of dev (5%)" in dev.text
    assert dev.text.endswith("dev.en:96.")
    assert "2 of 100 pairs of test (2%)" in test.text


def test_sources_with_another_translation_overlap_too(surveys):
    again = [(source, f"Nun: {target}") for source, target in TRAIN[:10]]
    (finding,) = doctor.check_overlap(surveys(TRAIN, DEV[:90] + again), DATA)
    assert finding.warning and "10 of 100 source sentences of dev (10%)" in finding.text


def test_overlap_is_sought_in_all_of_train_not_in_its_sample(surveys, monkeypatch):
    monkeypatch.setattr("tf_transformer.quality.doctor.SAMPLE_PAIRS", 100)
    (finding,) = doctor.check_overlap(surveys(TRAIN, DEV[:90] + TRAIN[::100]), DATA)
    assert finding.text.startswith("10 of 100 pairs of dev (10%) are also in train.")


def test_overlap_with_every_nth_pair_of_train_is_reported_as_such(surveys):
    (finding,) = doctor.check_overlap(surveys(TRAIN, TRAIN[:100], every=4), DATA)
    assert finding.warning
    assert (
        "25 of 100 pairs of dev (25%) are also in a sample of train (1 pair in 4)"
        in finding.text
    )


def test_text_without_paragraphs_capitals_or_digits_is_found(surveys):
    plain = [("Mr. Fox has 2 dogs.", "a")] * 999
    joined, capitals, digits = doctor.check_variety(surveys(plain), DATA)
    assert joined.warning and "only 0 of 999 source lines of train (0%) have s" in joined.text
    assert joined.text.endswith("Set `data.join=0.3` and `decoding.alpha=1`.")
    assert capitals.text.endswith("translated badly. Set `data.caps=0.1`.")
    assert digits.text.endswith("digits 0, 1, 3, 4, 5, 6, 7, 8, 9: add some, or they go wrong.")
    (only,) = doctor.check_variety(surveys(plain), DataConfig(join=0.1, caps=0.1))
    assert only == digits
    rich = [*plain[:99], ("A fox sleeps. It has 0134 dogs.", "a"), ("ALL IN 56789", "a")]
    (finding,) = doctor.check_variety(surveys(rich), DATA)
    assert str(finding) == "ok       variety: several sentences, capitals and all digits"
    without_case = [("他有0123456789只。狗走了。", "a")] * 9
    assert not doctor.check_variety(surveys(without_case), DATA)[0].warning


# --- Vocabulary --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train_tokenizer(LINES, path, vocab_size=600, kind="bpe")
    return Tokenizer(path)


@pytest.fixture(scope="module")
def byteless(tmp_path_factory) -> Tokenizer:
    """A tokenizer made elsewhere, with <unk> instead of byte pieces."""
    path = tmp_path_factory.mktemp("tokenizer") / "unknown.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_writer=file,
            vocab_size=300,
            character_coverage=1.0,
            minloglevel=2,
            **SPECIAL_IDS,
        )
    return Tokenizer(path)


@pytest.fixture
def encode(tokenizer, tmp_path) -> Callable[..., EncodedCorpus]:
    limits = {"max_length": 64, "max_ratio": 4.0}
    return lambda pairs: encode_corpus([pairs], tokenizer, tmp_path / "encoded", **limits)


def test_a_model_of_another_size_is_found(tokenizer):
    (finding,) = doctor.check_size(tokenizer, 599)
    assert finding.warning
    assert finding.text.endswith("and the model 599. Set `model.vocab_size=600`.")
    fits = Finding("vocabulary", "600 pieces, as in the model")
    assert doctor.check_size(tokenizer, 600) == [fits]


@pytest.mark.parametrize("kind", ["tokenizer", "byteless"])
def test_lines_with_unknown_characters_are_found(request, surveys, kind):
    """Whether they become bytes or <unk>."""
    foreign = [(source, f"{target} Łódź 你") for source, target in TRAIN[:5]]
    splits = surveys(TRAIN, TRAIN[5:100] + foreign)
    (finding,) = doctor.check_unknown(splits, request.getfixturevalue(kind))
    assert finding.warning
    assert "5 of 100 target lines of dev (5%)" in finding.text
    assert "(ó Ł ź 你)" in finding.text  # but no known letters
    assert finding.text.endswith("dev.de:96.")
    assert str(doctor.check_unknown(splits[:1], request.getfixturevalue(kind))[0]) == (
        "ok       unknown characters: none"
    )


def test_invisible_unknown_characters_are_shown_as_code_points(tokenizer, surveys):
    (finding,) = doctor.check_unknown(surveys([("a", "10\u00a0000\u200c e\u0301")]), tokenizer)
    assert "(U+00A0 U+0301 U+200C)" in finding.text


def test_each_side_is_checked_with_its_own_vocabulary(tmp_path, surveys):
    for lines, name in ((["abc"], "tokenizer.model"), (["xyz"], "tokenizer.target.model")):
        train_tokenizer(lines * 9, tmp_path / name, vocab_size=265, kind="bpe")
    apart = Tokenizer(tmp_path / "tokenizer.model")
    assert not doctor.check_unknown(surveys([("cab", "zyx")] * 9), apart)[0].warning
    source, target = doctor.check_unknown(surveys([("zyx", "cab")] * 9), apart)
    assert "(a b c x y z)" in source.text and "target lines" in target.text


def test_pairs_that_the_filters_drop_are_counted_with_the_reason(encode):
    pairs = TRAIN[:90] + [("", "leer")] * 4 + [(TRAIN[0][0] * 20, TRAIN[0][1] * 20)] * 6
    (finding,) = doctor.check_filters({"train": encode(pairs)})
    assert finding.warning and finding.text.startswith("10% of train is not used")
    assert "4 empty, 6 longer than 64 tokens" in finding.text


def test_lengths_after_the_filters_are_those_of_the_corpus(encode):
    corpus = encode(TRAIN)
    longer = np.maximum(corpus.source_lengths, corpus.target_lengths)
    (finding,) = doctor.check_filters({"train": corpus})
    assert not finding.warning
    assert finding.text.endswith(f"the longest {longer.max()}")
    usual = int(finding.text.split(" up to ")[1].split()[0])
    assert 0.98 <= np.mean(longer <= usual) <= 1


# --- All checks of a run -----------------------------------------------------------------


def ignore(text: str, done: int) -> None:
    """Ignores progress."""


@pytest.fixture
def copied_task(trained_run, tmp_path) -> Callable[..., TranslationTask]:
    """`copied_task(settings)`: the task of a copy of the trained run, with these settings."""

    def make(settings: Mapping[str, object]) -> TranslationTask:
        run = Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))
        return TranslationTask(Run(run.path, run.config.replace(settings)), ignore)

    return make


def test_the_built_in_corpus_passes_every_check(tmp_path):
    """That of `python train.py`."""
    run = Run.create_or_resume(tmp_path / "run", preset("tiny"))
    task = TranslationTask(run, ignore)
    test = [str(run.data / "builtin" / "test")]
    findings = diagnose(run.config, task.data, task, test=test)
    assert {finding.check for finding in findings if finding.warning} == {"variety"}
    assert len({finding.check for finding in findings}) == 14
    assert quick_findings(task) == []


def test_dev_sentences_in_the_training_text_are_a_quick_warning(copied_task):
    """As in this run, whose dev set is the beginning of its training text."""
    (line,) = quick_findings(copied_task({}))
    assert line.startswith("overlap: 40 of 40 pairs of dev (100%) are also in train.")


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"model.vocab_size": 700}, "vocabulary: the tokenizer has 600"),
        ({"data.max_length": 16}, "filters: "),
    ],
)
def test_wrong_settings_are_a_quick_warning(copied_task, settings, check):
    lines = quick_findings(copied_task(settings))
    assert [line for line in lines if line.startswith(check)]
