"""`compare`: runs, exports and files of translations on one test set."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.export.card import CARD, read_card
from tf_transformer.run import Run


@pytest.fixture
def texts(trained_run, tmp_path) -> Path:
    """The current folder, with test.en, test.de, "short", a line shorter, and "empty"."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:20]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    Path("short").write_text("Hallo.\n" * 19)
    Path("empty").touch()
    return tmp_path


BLEU = ["--source", "test.en", "--reference", "test.de", "--metric", "bleu"]


def test_a_run_equals_its_translations_and_its_copies(copied, texts, capsys):
    Run.open(copied).change_settings({"decoding.beam_size": 1}, "for speed")
    for name in ("seed-1", "seed-2"):
        shutil.copytree(copied, texts / "both" / name)
    lines = translated(capsys, copied, Path("test.en"))
    Path("hyp").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    assert main(["compare", str(copied), "both", "hyp", *BLEU]) == 0
    printed = capsys.readouterr()
    rows = [row for row in printed.out.splitlines() if "1.0000" in row]
    assert len(rows) == 2  # p-values of no difference
    assert sum(" ± 0.00" in row for row in printed.out.splitlines()) == 1
    assert "has seen these lines" in printed.err


def test_a_run_equals_its_export_whose_settings_are_compared_unless_unreadable(
    trained_run, exported, exported_in_bfloat16, texts, capsys
):
    old = Path(shutil.copytree(exported, texts / "old" / "1"))
    card = read_card(old) | {"config": {"model": {"unknown": 1}}}
    (old / CARD).write_text(json.dumps(card))
    words = ["compare", str(trained_run.path), "old", str(exported_in_bfloat16), *BLEU]
    assert main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    [row] = [row for row in printed if "beam_size" in row]
    assert row.split()[-4:] == ["4", "|", "2", "|"]
    [row] = [row for row in printed if re.match(r"\|? *old .*1\.0000", row)]  # no difference


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("test.de short", "Received: test.de with 20, short with 19"),
        ("test.de test.de", "two different systems or more"),
        ("test.de", "two different systems or more"),
        ("test.de nowhere", "need --source"),
        ("test.de nowhere --source test.en", "must be a run, an export.* Received: nowhere"),
        (
            "test.de nowhere --source empty",
            "must have the same number of lines.* Received: test.de with 20, empty with 0",
        ),
    ],
)
def test_incomparable_systems_are_refused_before_any_translation(texts, capsys, line, expected):
    words = ["compare", *line.split(), "--reference", "test.de"]
    assert_refused(capsys, words, expected, status=1)


def test_a_tag_for_exports_and_runs_without_tags_gives_a_warning(trained_run, texts, capsys):
    words = ["compare", *damaged_export(texts), "--tag", "<2de>"]
    assert main([*words[:3], str(trained_run.path), *words[3:]]) == 1
    printed = capsys.readouterr().err
    assert "`tag` has no effect on exports: damaged\n" in printed
    assert f"{trained_run.path} was trained without tags: `tag` has no effect on it" in printed


def damaged_export(folder: Path) -> list[str]:
    """Returns arguments that compare test.de with an export that cannot translate."""
    (folder / "damaged").mkdir()
    (folder / "damaged" / "saved_model.pb").write_bytes(b"damaged")
    return ["test.de", "damaged", "--source", "test.en", "--reference", "test.de"]
