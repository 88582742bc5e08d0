"""`python -m tools.bounds lowest|newest [PATH ...]`: tests at one end of setup.cfg's bounds.

It makes an environment in build/bounds-lowest or build/bounds-newest, which takes minutes and
some gigabytes, installs exactly the lower bounds of all requirements, or the newest releases
that the bounds allow, and runs pytest on the paths; without any it runs all tests.
"""

import argparse
import configparser
import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("dev", "plot")  # what tests need, as in the Makefile


def requirements() -> list[Requirement]:
    """Returns all requirements of the tests."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = [setup["options.extras_require"][name] for name in EXTRAS]
    text = "\n".join([setup["options"]["install_requires"], *extras])
    lines = (line.strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def lowest(requirement: Requirement) -> str:
    """Returns the requirement of exactly the lower bound."""
    [bound] = (each for each in requirement.specifier if each.operator == ">=")
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={bound.version}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("end", choices=("lowest", "newest"))
    parser.add_argument("paths", nargs="*", help="folders or files of tests; all by default")
    options = parser.parse_args()
    folder = ROOT / "build" / f"bounds-{options.end}"
    wanted = lowest if options.end == "lowest" else str
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet"]
    installed = [*install, "--upgrade", *map(wanted, requirements())]
    subprocess.run(installed, check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [python, "-m", "pytest", *options.paths]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
