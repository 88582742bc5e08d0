"""`compare`: runs, exports and files of translations on one test set."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.export.card import CARD, read_card


@pytest.fixture
def texts(trained_run, tmp_path) -> Path:
    """The current folder, with test.en, test.de, "short", a line shorter, and "empty"."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:20]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    Path("short").write_text("Hallo.\n" * 19)
    Path("empty").touch()
    return tmp_path


def test_a_run_equals_its_export_its_translations_and_its_copies(
    trained_run, exported, texts, capsys
):
    for name in ("seed-1", "seed-2"):
        shutil.copytree(trained_run.path, texts / "both" / name)
    lines = translated(capsys, trained_run.path, Path("test.en"))
    Path("hyp").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    words = ["compare", str(trained_run.path), str(exported), "both", "hyp"]
    words += ["--source", "test.en", "--reference", "test.de", "--metric", "bleu"]
    assert main(words) == 0
    printed = capsys.readouterr()
    rows = [row for row in printed.out.splitlines() if "1.0000" in row]
    assert len(rows) == 3  # p-values of no difference
    assert sum(" ± 0.00" in row for row in printed.out.splitlines()) == 1
    assert "has seen these lines" in printed.err


def test_settings_of_an_export_are_compared_unless_its_card_is_unreadable(
    trained_run, exported, exported_in_bfloat16, texts, capsys
):
    old = Path(shutil.copytree(exported, texts / "old" / "1"))
    card = read_card(old) | {"config": {"model": {"unknown": 1}}}
    (old / CARD).write_text(json.dumps(card))
    words = ["compare", *map(str, (trained_run.path, exported_in_bfloat16, old.parent))]
    words += ["--source", "test.en", "--reference", "test.de", "--metric", "bleu"]
    assert main(words) == 0
    [row] = [row for row in capsys.readouterr().out.splitlines() if "beam_size" in row]
    assert row.split()[-4:] == ["4", "|", "2", "|"]


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
    assert "--tag has no effect on exports: damaged\n" in printed
    assert f"{trained_run.path} was trained without tags: --tag has no effect on it" in printed


def damaged_export(folder: Path) -> list[str]:
    """Returns arguments that compare test.de with an export that cannot translate."""
    (folder / "damaged").mkdir()
    (folder / "damaged" / "saved_model.pb").write_bytes(b"damaged")
    return ["test.de", "damaged", "--source", "test.en", "--reference", "test.de"]
