"""The virtual environments of the peers, created once from pinned requirements."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tf_transformer.base.errors import UserError

FOLDER = Path(__file__).parents[1]
PEERS = FOLDER / "peers"
ENVIRONMENTS = FOLDER / ".environments"
OWN = "own"


def python_of(name: str) -> str:
    """Returns the interpreter of an environment, installing the environment if necessary.

    Args:
        name: "own" for the interpreter of this process, or a requirements file in peers/.

    Raises:
        UserError: if pip fails; nothing is left behind.
    """
    if name == OWN:
        return sys.executable
    requirements = PEERS / f"{name}.txt"
    folder = ENVIRONMENTS / name
    marker = folder / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not marker.is_file() or marker.read_text() != digest:
        _install(requirements, folder)
        marker.write_text(digest)
    return str(folder / "bin" / "python")


def _install(requirements: Path, folder: Path) -> None:
    print(f"installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    own = [sys.executable, "-m"]
    pip = [*own, "pip", "--python", python, "install", "--quiet", "--requirement"]
    try:
        subprocess.run([*own, "venv", "--without-pip", str(folder)], check=True)
        subprocess.run([*pip, str(requirements)], check=True)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, subprocess.CalledProcessError):
            raise
        raise UserError(
            f"The peers of {requirements.name} could not be installed; see pip's output above. "
            "To measure without them, use --peers none."
        ) from None
