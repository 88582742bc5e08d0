"""The reference of the commands is that of the present parsers."""

from tf_transformer.cli.main import GROUP_OF
from tools.command_reference import PATH, page


def test_the_page_is_current_and_has_every_command():
    text = page()
    assert PATH.read_text("utf-8") == text, "run `python -m tools.command_reference`"
    assert all(f"\n## `tf-transformer {name}`: " in text for name in GROUP_OF)
