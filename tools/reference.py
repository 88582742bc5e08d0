"""Writes docs/reference/ from the code: `python -m tools.reference`."""

import argparse
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from tf_transformer.cli.main import GROUPS, build_parser
from tf_transformer.config import Config, SamplingConfig
from tf_transformer.config.settings import Setting, settings_of

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_COMMANDS_HEAD = """\
<!-- Written by `python -m tools.reference` from the parsers in tf_transformer/cli. -->
# Commands

Every command with its arguments. In the repository `train.py` is `tf-transformer train`, and
`export.py` is `tf-transformer export`. Every command has `--traceback`, which shows where in
the program an error arose.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | an error, told in one line: a wrong file, a full disk, too little memory |
| 2 | an error in the arguments, told in one line |
| 3 | `export`: the model failed the gate |
| 70 | an error that the program did not foresee; please report it with its traceback |
| 129, 130, 143 | stopped by SIGHUP, Ctrl-C or SIGTERM; `train` has saved everything |
"""


def settings_page() -> str:
    """Returns the page: a table for each section of the configuration, and one for sampling."""
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


def commands_page() -> str:
    """Returns the page: a table of arguments for each command, by group."""
    lines = [_COMMANDS_HEAD]
    for group, commands in GROUPS.items():
        lines += [f"## {group.capitalize()}\n", *map(_command, commands)]
    return "\n".join(lines)


def _command(name: str) -> str:
    [commands] = (action for action in build_parser(name)._actions if action.choices)
    parser = commands.choices[name]
    head = f"### `tf-transformer {name}`\n\n{' '.join(parser.description.split())}\n"
    return "\n".join([head, "| argument | meaning |", "|---|---|", *_arguments(parser), ""])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    exclusive = {
        action.dest: group for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }  # fmt: skip
    for action in parser._actions:
        if action.dest in ("help", "traceback"):
            continue
        meaning = (action.help or "").replace("%(default)s", str(action.default))
        if action.dest in exclusive:
            others = exclusive[action.dest]._group_actions
            names = ", ".join(
                f"`{each.option_strings[-1]}`" for each in others if each != action
            )
            meaning += f"; excludes {names}"
        needed = "; required" if action.option_strings and action.required else ""
        yield f"| `{_usage(action)}` | {meaning}{needed} |"


def _usage(action: argparse.Action) -> str:
    """Formats an argument, such as "--beam W", "RUN" or "[RUN]"."""
    choices = f"{{{','.join(action.choices)}}}" if action.choices else ""
    value = action.metavar or choices or action.dest.upper()
    value = {"+": f"{value} ...", "?": f"[{value}]", 0: ""}.get(action.nargs, value)
    return " ".join(filter(None, [*action.option_strings[-1:], value]))


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
