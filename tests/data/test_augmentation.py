"""Joined pairs and forms of pairs: their ids, their shares, and a plan that stays pure."""

import io
from collections import Counter

import numpy as np
import pytest
import sentencepiece

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, PAD_ID, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.augmentation import (
    CAPITALS,
    FORMS,
    MOST_JOINED,
    TITLE_CASE,
    UNMARKED,
    Augmentation,
    in_form,
    pairs_in_form,
)
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import BatchPlan, Mixture, bucket_boundaries
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import SIDES, ParallelText
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import require_joinable, train_tokenizer

SIZES, TAGS, LENGTH = (200, 100), ("<2de> <made>", ""), 96
PAIRS = sum(SIZES)


@pytest.mark.parametrize(
    ("text", "capitals", "titles", "unmarked"),
    [
        ("I don't e-mail.", "I DON'T E-MAIL.", "I Don't E-Mail.", "I don't e-mail"),
        ("Die Straße? ", "DIE STRASSE? ", "Die Straße? ", "Die Straße"),
        ("to <name> <name2>!", "TO <name> <name2>!", "To <name> <name2>!", "to <name> <name2>"),
        ("他走了。", "他走了。", "他走了。", "他走了"),
        ("...", "...", "...", "..."),
        ("He said: “ice”.", "HE SAID: “ICE”.", "He Said: “Ice”.", "He said: “ice”"),
    ],
)  # fmt: skip
def test_forms_of_a_sentence(text, capitals, titles, unmarked):
    symbols = ["<name", "<name>", "<name2>"]
    forms = [in_form(text, form, symbols) for form in FORMS]
    assert forms == [text, capitals, titles, unmarked]


# --- A corpus of two texts ----------------------------------------------------------------


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> list[ParallelText]:
    folder, pairs = tmp_path_factory.mktemp("texts"), builtin.pairs(PAIRS)
    result = []
    for tag, part in zip(TAGS, (pairs[: SIZES[0]], pairs[SIZES[0] :]), strict=True):
        file = folder / f"{len(result)}.tsv"
        file.write_text("".join(f"{source}\t{target}\n" for source, target in part), "utf-8")
        result.append(ParallelText(file.name, file, file, ("en", "de"), tag))
    return result


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(texts, tmp_path_factory, request) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    lines = [side for text in texts for pair in text.plain_pairs() for side in pair]
    lines += [pair[2] for pair in pairs_in_form(texts[0], CAPITALS, [])]
    symbols = [mark + tag for tag in ("<2de>", "<made>") for mark in ("", "\u2581")]
    train_tokenizer(lines, path, vocab_size=600, kind=request.param, symbols=symbols)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def corpus(texts, tokenizer, tmp_path_factory) -> EncodedCorpus:
    pairs = [pairs_in_form(text, form, []) for form in FORMS for text in texts]
    folder = tmp_path_factory.mktemp("corpus") / "c"
    return encode_corpus(pairs, tokenizer, folder, max_length=LENGTH, max_ratio=9.0)


def augmentation_of(tokenizer: Tokenizer, **settings) -> Augmentation:
    tags = [len(ids) for ids in tokenizer.ids(TAGS)]
    names = {"train": ("a", "b")} if "mix" in settings else {}
    return Augmentation(DataConfig(**names, **settings), SIZES, tags)


def plan_of(
    corpus: EncodedCorpus, tokenizer: Tokenizer, seed=1, most_shapes=None, **settings
) -> BatchPlan:
    mix = settings.get("mix")
    return BatchPlan(
        *(corpus.lengths(side) for side in SIDES), batch_tokens=512, max_length=LENGTH,
        seed=seed, mixture=Mixture(SIZES, mix, seed) if mix else None,
        augmentation=augmentation_of(tokenizer, **settings), most_shapes=most_shapes,
    )  # fmt: skip


def joined_texts(texts: list[ParallelText], rows: np.ndarray) -> tuple[str, str]:
    """The text of an example: its sentences, joined by spaces, and the tag at the front."""
    pairs = [pair for text in texts for pair in text.plain_pairs()]
    rows = rows[rows >= 0]
    source, target = (
        " ".join(in_form(pairs[row % PAIRS][side], row // PAIRS) for row in rows)
        for side in (0, 1)
    )
    return texts[int(rows[0] % PAIRS >= SIZES[0])].tagged(source), target


SETTINGS = [
    {"join": 0.5, "caps": 0.5},
    {"join": 0.5, "join_order": "random"},
    {"join": 1.0, "caps": 0.2, "mix": "1:3"},
    {"caps": 0.5},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_ids_of_an_example_are_those_of_its_text(corpus, tokenizer, texts, settings):
    plan = plan_of(corpus, tokenizer, **settings)
    seen = Counter()
    batches = make_dataset(corpus, plan, num_steps=plan.steps_per_epoch)
    for step, (inputs, labels) in enumerate(batches.as_numpy_iterator()):
        for number, rows in enumerate(plan.batch(step).indices):
            for side, ids, text in zip(
                SIDES, (inputs["source"], labels), joined_texts(texts, rows), strict=True
            ):
                expected = [*tokenizer.ids([text], side)[0], EOS_ID]
                assert ids[number][: len(expected)].tolist() == expected
                assert not ids[number][len(expected) :].any()
            seen[int((rows >= 0).sum())] += 1
    assert set(seen) == ({1} if "join" not in settings else {*seen, 2, 3})


def examples(plan: BatchPlan, epoch: int = 0) -> list[list[int]]:
    """The rows of each example of an epoch, in the order of the batches."""
    steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
    return [rows[rows >= 0].tolist() for step in steps for rows in plan.batch(step).indices]


def test_each_pair_begins_one_example_of_the_first_epoch(corpus, tokenizer):
    drawn = examples(plan_of(corpus, tokenizer, join=0.4, caps=0.4))
    assert sorted(rows[0] % PAIRS for rows in drawn) == list(range(PAIRS))
    assert 0.25 < np.mean([len(rows) > 1 for rows in drawn]) < 0.55
    forms = Counter(rows[0] // PAIRS for rows in drawn)
    assert 0.25 < 1 - forms[0] / PAIRS < 0.55
    assert min(forms[form] for form in (CAPITALS, TITLE_CASE, UNMARKED)) > 20


@pytest.mark.parametrize("order", ["file", "random"])
def test_only_pairs_of_one_text_and_in_one_form_are_joined(corpus, tokenizer, order):
    drawn = examples(plan_of(corpus, tokenizer, join=1.0, join_order=order, caps=0.3))
    steps = Counter()
    for rows in drawn:
        assert len({row // PAIRS for row in rows}) == 1
        assert len({row % PAIRS < SIZES[0] for row in rows}) == 1
        assert len(rows) <= MOST_JOINED
        steps.update(np.diff(rows).tolist())
    assert (set(steps) == {1}) == (order == "file")


def test_half_of_the_joined_examples_have_two_pairs():
    augmentation = Augmentation(DataConfig(join=1.0), [8_000], [0])
    lengths, limits = np.full([2, 8_000 * len(FORMS)], 5), np.full([2, 1], 40)
    drawn = augmentation.draw(np.arange(8_000), lengths, limits, np.random.default_rng(1))
    shares = np.bincount(drawn.counts[:-7]) / 8_000  # the last have less room
    expected = [0, 0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 64]
    assert shares == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("most_shapes", [None, 5])
def test_joined_examples_fit_and_do_not_grow_the_padding(corpus, tokenizer, most_shapes):
    plan = plan_of(corpus, tokenizer, join=0.5, caps=0.2, most_shapes=most_shapes)
    assert len(plan.shapes) <= (most_shapes or 99)
    pad = positions = 0
    for inputs, labels in make_dataset(corpus, plan, num_steps=3 * plan.steps_per_epoch):
        for side, ids in enumerate((inputs["source"].numpy(), labels.numpy())):
            lengths = (ids != PAD_ID).sum(axis=1)
            assert lengths.max() <= plan.longest[side] <= LENGTH
            pad, positions = pad + (ids == PAD_ID).sum(), positions + ids.size
    assert abs(pad / positions - plan.padding_waste()) < 0.05
    lengths = {plan.batch(step).length for step in range(3 * plan.steps_per_epoch)}
    assert max(lengths) == plan.shapes[-1][1]


def test_joins_stay_within_small_batches(corpus, tokenizer):
    lengths = [corpus.lengths(side) for side in SIDES]
    augmentation = augmentation_of(tokenizer, join=1.0)
    longest = next(b for b in bucket_boundaries(256) if b >= np.max(lengths))
    plan = BatchPlan(
        *lengths, batch_tokens=longest, max_length=256, seed=1, augmentation=augmentation
    )
    assert plan.shapes[-1] == (1, longest)
    assert max(map(len, examples(plan))) > 1


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_plan_depends_on_seed_and_step_alone(corpus, tokenizer, settings):
    one, other = (plan_of(corpus, tokenizer, **settings) for _ in range(2))
    steps = [0, 2 * one.steps_per_epoch + 5, 3, one.steps_per_epoch]
    backwards = {step: other.batch(step) for step in reversed(steps)}
    for step in steps:
        np.testing.assert_array_equal(one.batch(step).indices, backwards[step].indices)
    seeded = plan_of(corpus, tokenizer, seed=2, **settings)
    assert len({str(examples(one)), str(examples(one, 1)), str(examples(seeded))}) == 3


@pytest.mark.parametrize("settings", SETTINGS)
def test_resuming_and_replicas_give_the_batches_of_an_unbroken_run(corpus, tokenizer, settings):
    plan, start = plan_of(corpus, tokenizer, **settings), 5
    start += plan.steps_per_epoch  # in the second epoch
    sampler = SubwordSampler(corpus, tokenizer, 0.1, seed=3)
    unbroken = list(make_dataset(corpus, plan, sampler, num_steps=start + 3))[start:]
    again = plan_of(corpus, tokenizer, **settings)
    resumed = make_dataset(corpus, again, sampler, start_step=start, num_steps=3)
    for (inputs, labels), (expected, expected_labels) in zip(resumed, unbroken, strict=True):
        np.testing.assert_array_equal(inputs["source"], expected["source"])
        np.testing.assert_array_equal(labels, expected_labels)
    whole = make_dataset(corpus, plan, start_step=start, num_steps=3)
    shared = make_dataset(
        corpus, again, start_step=start, num_steps=3, replicas=(0, 1), num_replicas=2
    )
    shares = iter(shared)
    for _, labels in whole:
        parts = [next(shares)[1].numpy() for _ in range(2)]
        rows = [row.tolist() for row in np.concatenate(parts) if row.any()]
        assert sorted(rows) == sorted(row.tolist() for row in labels.numpy() if row.any())


def test_resampled_subwords_keep_the_joined_text(corpus, tokenizer, texts):
    plan = plan_of(corpus, tokenizer, join=1.0)
    sampler = SubwordSampler(corpus, tokenizer, 0.2, seed=3)
    usual, drawn = (
        next(iter(make_dataset(corpus, plan, each, num_steps=1)))[1].numpy()
        for each in (None, sampler)
    )
    assert tokenizer.texts(usual) == tokenizer.texts(drawn)


def test_a_form_that_the_filters_would_drop_is_the_pair_itself(tokenizer, tmp_path):
    pairs = [
        ("a dog", "ein Hund", "A DOG", "EIN HUND"),
        ("a", "b", "A " * 99, "B"),
        ("", "a", "B", "A"),
    ]
    corpus = encode_corpus([pairs], tokenizer, tmp_path / "c", max_length=32, max_ratio=9.0)
    sources = tokenizer.texts([corpus.source(row) for row in range(len(corpus))])
    assert sources == ["A DOG", "a"]


def test_a_tokenizer_with_pieces_across_spaces_is_refused(tokenizer):
    require_joinable(tokenizer.model_bytes)
    lines = ["in the house of the man"] * 9
    for unusual, received in (
        ({"split_by_whitespace": False}, "'.*▁.*'"),
        ({"add_dummy_prefix": False}, "no such mark"),
    ):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, model_type="bpe",
            vocab_size=40, hard_vocab_limit=False, minloglevel=2, **unusual,
        )  # fmt: skip
        with pytest.raises(UserError, match=f"Received: {received}. Leave"):
            require_joinable(model.getvalue())
