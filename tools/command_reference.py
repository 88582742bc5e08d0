"""The reference of the commands, from their parsers."""

import argparse
from collections.abc import Iterator

from tf_transformer.cli.main import GROUPS, build_parser

_HEAD = """\
<!-- Written by `python -m tools.reference` from the parsers in tf_transformer/cli. -->
# Commands

Every command with its arguments. In the repository `train.py` is `tf-transformer train`, and
`export.py` is `tf-transformer export`.
"""


def commands_page() -> str:
    """Returns the page: a table of arguments for every command, group after group."""
    lines = [_HEAD]
    for group, commands in GROUPS.items():
        lines += [f"## {group.capitalize()}\n", *map(_section, commands)]
    return "\n".join(lines)


def _section(name: str) -> str:
    [commands] = (action for action in build_parser(name)._actions if action.choices)
    parser = commands.choices[name]
    head = f"### `tf-transformer {name}`\n\n{' '.join(parser.description.split())}\n"
    return "\n".join([head, "| argument | meaning |", "|---|---|", *_rows(parser), ""])


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    exclusive = {
        action.dest: group for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }  # fmt: skip
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or action.dest == "help":
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
    """Formats an argument, such as "--beam W", "RUN" or "[RECIPE]"."""
    choices = f"{{{','.join(action.choices)}}}" if action.choices else ""
    value = action.metavar or choices or action.dest.upper()
    value = {"+": f"{value} ...", "?": f"[{value}]", 0: ""}.get(action.nargs, value)
    return " ".join(filter(None, [*action.option_strings[-1:], value]))
