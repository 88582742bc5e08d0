"""An exported ensemble: two runs in one SavedModel."""

import json
import shutil

import pytest

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.versions import CARD
from tf_transformer.files import sha256
from tf_transformer.run import Run


@pytest.fixture(scope="module")
def runs(trained_run, tmp_path_factory) -> list[str]:
    """The trained run, and a copy whose best weights are those of an earlier step."""
    other = tmp_path_factory.mktemp("runs") / "other"
    shutil.copytree(trained_run.path, other)
    checkpoints = Run.open(other).checkpoints
    shutil.copyfile(checkpoints.find("160"), checkpoints.best)
    return [str(trained_run.path), str(other)]


def test_an_ensemble_is_exported_as_one_model(runs, translator, trained_run, tmp_path):
    assert main(["export", *runs, "--output", str(tmp_path / "both")]) == 0
    both = tmp_path / "both" / "1"
    texts = [*trained_run.lines("dev.en")[:8], ""]
    expected = load(runs[0], ensemble=[runs[1]]).translate(texts)
    found = load(both).translate(texts)
    assert list(map(str, found)) == list(map(str, expected))
    scores = [translation.score for translation in expected]
    assert [translation.score for translation in found] == pytest.approx(scores, abs=1e-4)
    alone = [best.score for best in translator.translate(texts)]
    assert max(abs(one - other) for one, other in zip(alone, scores, strict=True)) > 1e-3
    card = json.loads((both / CARD).read_text("utf-8"))
    weights = sha256(Run.open(runs[1]).checkpoints.find("160"))
    assert card["ensemble"] == {runs[1]: {"sha256": weights}}
    with SavedModelSession(both) as session:
        assert set(session.signatures) == {
            "serving_default", "nbest", "with_options", "tokens", "score",
        }  # fmt: skip


def test_a_checkpoint_that_the_runs_lack_is_refused(runs, tmp_path, capsys):
    assert main(["export", *runs, "--checkpoint", "7", "--output", str(tmp_path / "new")]) == 1
    assert "no checkpoint '7'" in capsys.readouterr().err
