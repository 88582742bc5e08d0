"""Files of other tasks as parallel text: which are refused, what is written, and when."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import DataConfig
from tf_transformer.tasks.checks import require_files
from tf_transformer.tasks.task import write_parallel_text


@pytest.fixture
def data(tmp_path) -> DataConfig:
    """Two training files; the second is the dev set too."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("we won")
    two.write_text("yes")
    return DataConfig(train=(str(one), str(two)), valid=(str(two),))


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_incomplete_data_options_are_refused(data, missing):
    with pytest.raises(
        UserError, match="Parsing needs --train FILE and --valid FILE of trees"
    ) as error:
        require_files(dataclasses.replace(data, **{missing: ()}), "Parsing", "trees")
    assert f"--{missing}" not in str(error.value).partition("Received")[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "en"}, "no --source or --target. Received: .*--source"),
        ({"tag": ("de=<2de>",)}, "data.tag is only for --task translation"),
        ({"join": 0.3}, "data.join is only for --task translation"),
        ({"caps": 0.1}, "data.caps is only for --task translation"),
    ],
)
def test_languages_and_tags_are_refused(data, settings, message):
    with pytest.raises(UserError, match=message):
        require_files(dataclasses.replace(data, **settings), "Parsing", "trees")


def pairs(file: Path) -> Iterator[tuple[str, str]]:
    return ((word, word.upper()) for word in file.read_text().split())


def written(data: DataConfig, **options) -> DataConfig:
    folder = Path(data.train[0]).parent / "text"
    return write_parallel_text(data, folder, ("low", "high"), pairs, **options)


def text_of(prefix: str, side: str) -> str:
    return Path(f"{prefix}.{side}").read_text("utf-8")


def test_each_pair_becomes_a_line_of_both_sides(data):
    text = written(data)
    assert (len(text.train), len(text.valid)) == (2, 1)
    assert (text.source, text.target) == ("low", "high")
    assert text_of(text.train[0], "low") == "we\nwon\n"
    assert text_of(text.train[0], "high") == "WE\nWON\n"
    assert text_of(text.train[1], "high") == text_of(text.valid[0], "high") == "YES\n"


def test_text_is_written_only_if_it_changes_and_never_by_a_worker(data):
    train = written(data).train
    files = [Path(f"{prefix}.{side}") for prefix in train for side in ("low", "high")]
    before = [file.stat().st_ino for file in files]
    Path(data.train[1]).write_text("no\n")
    assert written(data, may_write=False).train == train
    assert [file.stat().st_ino for file in files] == before
    written(data)
    after = [file.stat().st_ino for file in files]
    assert after[:2] == before[:2] and text_of(train[1], "low") == "no\n"
