"""The comparison of two commits names differences and ignores times."""

import json
from pathlib import Path

import numpy as np
import pytest

from tools.compare_commits.comparison import compare
from tools.compare_commits.trees import Program, Tree

ROOT = Path(__file__).parents[2]
WEIGHTS = np.linspace(0, 1, 5, dtype="float32")


def write_run(folder: Path, seconds: float) -> None:
    """Writes a run directory like that of a training that took some seconds."""
    (folder / "run" / "checkpoints").mkdir(parents=True)
    (folder / "run" / "logs").mkdir()
    (folder / "run" / "logs" / "events").write_text(str(seconds))
    (folder / "run" / "card.md").write_text(str(seconds))
    record = {"step": 15, "valid_bleu": 1.5, "train_seconds": seconds}
    speed = {"tokens_per_second": 99 / seconds}
    (folder / "run" / "metrics.jsonl").write_text(json.dumps(record | speed) + "\n")
    (folder / "answer.txt").write_text("eins\nzwei\n")
    for name in ("best", "step-00000015"):
        path = folder / "run" / "checkpoints" / f"{name}.npz"
        members = {"progress/period_seconds": seconds, "members": str(seconds)}
        np.savez(path, **{"model/weight": WEIGHTS}, **members)


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path]:
    old, new = tmp_path / "old", tmp_path / "new"
    write_run(old, 2.0)
    write_run(new, 3.0)
    return old, new


def different(folders: tuple[Path, Path]) -> dict[str, str]:
    return {row.what: row.difference for row in compare(*folders) if row.difference}


def test_runs_that_differ_only_in_times_are_equal(folders):
    rows = {row.what: row for row in compare(*folders)}
    assert rows.keys() == {"answer.txt", "run/checkpoints", "run/metrics.jsonl"}
    assert rows["run/checkpoints"].files == 2
    assert all(str(row).endswith(" equal") for row in rows.values())


@pytest.mark.parametrize(
    ("name", "weights", "expected"),
    [
        ("weight", np.nextafter(WEIGHTS, 2), "by at most 1.2e-07"),
        ("weight", WEIGHTS * np.float32([-1, 1, 1, 1, 1]), "by at most 0"),
        ("weight", WEIGHTS.astype("float64"), "float32 (5,), float64 (5,)"),
        ("weight", WEIGHTS[np.newaxis], "float32 (5,), float32 (1, 5)"),
        ("weights", WEIGHTS, "only in OLD"),
    ],
    ids=["last bit", "sign of zero", "type", "shape", "name"],
)
def test_any_different_bit_of_an_array_is_detected(folders, name, weights, expected):
    np.savez(folders[1] / "run/checkpoints/best.npz", **{f"model/{name}": weights})
    assert different(folders) == {"run/checkpoints": f"best.npz: model/weight: {expected}"}


def test_changed_scores_answers_and_files_are_detected(folders):
    _, new = folders
    record = {"step": 15, "valid_bleu": 1.25, "train_seconds": 3.0, "tokens_per_second": 33.0}
    (new / "run" / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (new / "answer.txt").write_text("eins\n")
    (new / "more.txt").write_text("")
    (new / "run" / "checkpoints" / "step-00000015.npz").unlink()
    assert different(folders) == {
        "answer.txt": "line 2: b'zwei', b''",
        "more.txt": "only in NEW",
        "run/checkpoints": "step-00000015.npz: only in OLD",
        "run/metrics.jsonl": "line 1: valid_bleu: 1.5, 1.25",
    }


def test_a_program_runs_in_its_tree_and_failures_are_described(tmp_path):
    (tmp_path / "answers").mkdir()
    tree = Tree(ROOT)
    tree.require_own_package()
    assert tree.run(Program("help", ["tf-transformer", "--help"]), tmp_path) == ""
    assert "COMMAND" in (tmp_path / "answers" / "help.txt").read_text()
    why = tree.run(Program("none", ["tf-transformer", "translate", "none"]), tmp_path)
    assert why.startswith("none: status 1: error: none is not a run directory")


def test_a_tree_without_the_package_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match=f"{tmp_path} imports "):
        Tree(tmp_path).require_own_package()
