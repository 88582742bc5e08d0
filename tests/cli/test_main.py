"""The list of commands is complete and quick to print."""

import subprocess
import sys

import pytest

from tf_transformer.cli.main import COMMANDS, main


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
    assert all(f"\n    {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: tf-transformer {name} " in shown
    assert "--traceback" in shown
