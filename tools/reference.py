"""Writes docs/reference/ from the code: `python -m tools.reference`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tf_transformer.config import Config, SamplingConfig
from tf_transformer.config.settings import Setting, settings_of
from tools.command_reference import commands_page

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def settings_page() -> str:
    """Writes a table for each section of the configuration, and one for sampling."""
    sections = [
        _section(f"`{field.name}`", field.type, f"{field.name}.")
        for field in dataclasses.fields(Config)
        if dataclasses.is_dataclass(field.type)
    ]
    return "\n".join(
        [
            "<!-- Written by `python -m tools.reference` from tf_transformer/config. -->",
            "# Settings",
            "",
            "Every setting of a run is `--set SECTION.FIELD=VALUE`, such as",
            "`--set model.dropout=0.3`; the defaults are the paper's base model and recipe.",
            *sections,
            _section("Sampling (`translate --sample`)", SamplingConfig, ""),
            "",
        ]
    )


def _section(title: str, section: type, prefix: str) -> str:
    rows = [_row(name, setting) for name, setting in settings_of(section, prefix).items()]
    summary = section.__doc__.partition("\n\n")[0]
    head = f"\n## {title}\n\n{summary}\n\n| setting | default | values | meaning |\n"
    return head + "|---|---|---|---|\n" + "\n".join(rows)


def _row(name: str, setting: Setting) -> str:
    if setting.choices:
        values = ", ".join(f"`{choice}`" for choice in setting.choices)
    else:
        values = str(setting)
    default = setting.default
    written = "empty" if default in ("", ()) else f"`{default}`"
    return f"| `{name}` | {written} | {values} | {setting.help} |"


# The pages by file name.
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
}


def main() -> None:
    """Writes every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
