"""The list of commands is complete and quick to print."""

import subprocess
import sys
from pathlib import Path

import pytest

from tf_transformer import cli
from tf_transformer.cli.main import GROUP_OF, GROUPS, main


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_module_is_listed(group):
    modules = {path.stem for path in (Path(cli.__path__[0]) / group).glob("*.py")}
    assert modules - {"__init__"} == set(GROUPS[group])


def test_help_lists_all_commands_without_importing_them():
    code = (
        "import sys\n"
        "from tf_transformer.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(sum(name in sys.modules for name in ('numpy', 'tensorflow', 'sacrebleu')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"\n    {name} " in done.stdout for name in GROUP_OF)


@pytest.mark.parametrize("name", GROUP_OF)
def test_every_command_has_its_own_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: tf-transformer {name} " in shown
    assert "--traceback" in shown
