"""Which folders count as versions."""

import pytest

from tf_transformer.serving.versions import versions


def test_only_numbers_are_versions(tmp_path):
    for name in ("1", "20", "007", "a", "1a", "-3", "1.5", "²", "٣", ".5.77.tmp", "assets"):
        (tmp_path / name).mkdir()
    expected = {1: "1", 20: "20", 7: "007"}
    assert {number: path.name for number, path in versions(tmp_path).items()} == expected


@pytest.mark.parametrize("name", ["absent", "file"])
def test_what_is_no_folder_has_none(tmp_path, name):
    (tmp_path / "file").write_text("")
    assert versions(tmp_path / name) == {}
