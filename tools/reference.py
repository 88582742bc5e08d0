"""Writes docs/reference/ from the code: `python -m tools.reference`."""

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

from tf_transformer.cli.main import COMMANDS, command_parser
from tf_transformer.cli.parser import flag, usage
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
# Groups of options that several commands have, by their title in --help.
_SHARED = {
    "model": "Which weights to use, and how to compute.",
    "search": "Settings of the search, for this command alone; the run's are the defaults.",
    "sampling": "Sampling instead of a search.",
    "run": "What a training is and where it is kept.",
    "training": "Text, batches, devices and any other setting.",
}


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
    """Returns the page: tables of shared options, and of each command's own arguments."""
    shared: dict[str, list[str]] = {}
    for name, title in itertools.product(COMMANDS, _SHARED):
        rows = shared.setdefault(title, [])
        rows += [row for row in _rows(name, title) if row not in rows]
    lines = [_COMMANDS_HEAD, "## Shared options\n"]
    for title, about in _SHARED.items():
        lines += [f"### {title.capitalize()} options\n", f"{about}\n", *_table(shared[title])]
    for heading, commands in itertools.groupby(COMMANDS, lambda name: COMMANDS[name].heading):
        lines.append(f"## {heading.capitalize()}\n")
        for name in commands:
            text = " ".join(command_parser(name).description.split())
            lines += [f"### `tf-transformer {name}`\n", f"{text}\n"]
            lines += _table([row for title in _titles(name) for row in _rows(name, title)])
            used = {title: _rows(name, title) for title in _SHARED}
            links = [_link(title, rows, shared[title]) for title, rows in used.items() if rows]
            lines += [f"And of the shared options: {'; '.join(links)}.\n"] if links else []
    return "\n".join(lines)


def _table(rows: list[str]) -> list[str]:
    return ["| argument | meaning |", "|---|---|", *rows, ""]


def _link(title: str, rows: list[str], every: list[str]) -> str:
    """Names a group of shared options or, if a command has not all of them, the ones it has."""
    link = f"[{title} options](#{title}-options)"
    flags = [row.split()[1].strip("`") for row in rows]
    return link if len(rows) == len(every) else f"`{'`, `'.join(flags)}` of the {link}"


def _groups(name: str) -> dict[str, list[argparse.Action]]:
    return {group.title: group._group_actions for group in command_parser(name)._action_groups}


def _titles(name: str) -> list[str]:
    return [title for title in _groups(name) if title not in _SHARED]


def _rows(name: str, title: str) -> list[str]:
    """Formats the arguments that a command has under a title of its help."""
    parser = command_parser(name)
    exclusive = {
        action.dest: group for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }  # fmt: skip
    rows = []
    for action in _groups(name).get(title, ()):
        hidden = argparse.SUPPRESS in (action.dest, action.help)
        if hidden or action.dest in ("help", "traceback"):
            continue
        meaning = (action.help or "").replace("%(default)s", str(action.default))
        if action.dest in exclusive:
            others = exclusive[action.dest]._group_actions
            names = ", ".join(f"`{flag(each)}`" for each in others if each.dest != action.dest)
            meaning += f"; excludes {names}"
        needed = "; required" if action.option_strings and action.required else ""
        rows.append(f"| `{usage(action)}` | {meaning}{needed} |")
    return rows


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
