"""The reference in docs/ is current."""

import pytest

from tf_transformer.config import SAMPLING, SETTINGS
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_current(name):
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `python -m tools.reference`"


@pytest.mark.parametrize(("name", "setting"), (SETTINGS | SAMPLING).items())
def test_every_setting_has_one_line_of_help_on_the_page(name, setting):
    assert setting.help and "\n" not in setting.help
    row = next(line for line in PAGES["settings.md"]().splitlines() if f"`{name}`" in line[:60])
    assert setting.help in row and row.count(" | ") == 3
