"""The wheel has everything that a user without the repository needs."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_line import run_here

import tf_transformer
from tf_transformer import __version__
from tools.storm.lab import SMALLEST, set_options

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder that `make dist` fills, from a copy to leave nothing in the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    source, no_cache = folder / "source", shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tf_transformer", source / "tf_transformer", ignore=no_cache)
    for name in ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    """The wheel, which was built from the source archive."""
    (built,) = dist.glob("*.whl")
    return built


def test_an_index_accepts_wheel_and_source_archive(dist):
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout


def test_the_wheel_has_exactly_the_files_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(f"tf_transformer-{__version__}.dist-info/METADATA").decode()
    files = (path for path in (ROOT / "tf_transformer").rglob("*") if path.is_file())
    ours = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert packed == ours
    assert re.search(r"^License: Apache-2.0$", metadata, re.MULTILINE)


def test_no_line_installs_the_package_from_an_index():
    """A line names this wheel, or an extra of the installed package: no index has it."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = "|".join(config["options.extras_require"])
    names = rf"tf_transformer-{re.escape(__version__)}-py3-none-any\.whl|tf-transformer"
    right = re.compile(
        rf'pip install [^"]*"(?:{names})\[(?:(?:{extras}|{{extra}}),?)+\]"'
        rf"|pip install --no-deps (?:{names})$"  # beside requirements-light.txt
    )
    listed = ["git", "ls-files", "README.md", "docs", "examples", "notebooks", "serving"]
    done = subprocess.run(
        [*listed, "tf_transformer/*.py"], cwd=ROOT, capture_output=True, text=True
    )
    files = [ROOT / name for name in done.stdout.split() if not name.endswith((".png", ".bz2"))]
    text = "\n".join(file.read_text("utf-8") for file in files)
    lines = re.findall(r"pip install (?!-e).*(?:tf.transformer|\.\[).*", text)
    assert [line for line in lines if not right.search(line)] == []
    assert len(lines) > 12


def test_the_wheel_trains_on_the_builtin_corpus_outside_the_repository(wheel, tmp_path):
    installed, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(installed)]
    subprocess.run([*command, f"{wheel}[serve]"], check=True, capture_output=True)
    settings = set_options(*SMALLEST, "training.steps=2", "training.evaluate_every=2")
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-m", "tf_transformer.cli.main", "train", *settings],
        cwd=work, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "20,000 pairs" in done.stdout
    assert (work / "runs" / "tiny" / "checkpoints" / "best.npz").exists()


def test_without_tensorflow_the_wheel_translates_with_an_export(wheel, trained_run, tmp_path):
    """The environment is made of requirements-light.txt alone, as the guide says."""
    options = ["--format", "litert", "--output", str(tmp_path / "exported")]
    assert run_here(["export", str(trained_run.path), *options]).returncode == 0
    home = tmp_path / "light"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    install = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*install, "-r", str(ROOT / "requirements-light.txt")], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    packages = {file.name for file in home.glob("lib/python*/site-packages/*")}
    assert not {"tensorflow", "keras", "tensorflow_text"} & packages and "numpy" in packages
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [str(home / "bin" / "tf-transformer"), *map(str, words)]
        return subprocess.run(
            command, input="A dog runs.\nTwo men.\n", capture_output=True, text=True,
            cwd=tmp_path, env=alone,
        )  # fmt: skip

    expected = tf_transformer.load(trained_run.path).translate(["A dog runs.", "Two men."])
    done = run("translate", "exported")
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr
    dev = [trained_run.corpus / f"dev.{side}" for side in ("en", "de")]
    done = run("evaluate", "exported", "--source", dev[0], "--reference", dev[1])
    assert done.stdout.startswith("BLEU "), done.stderr
    assert run("card", "exported").stdout.startswith("|")
    done = run("translate", trained_run.path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "needs TensorFlow, which is not installed" in done.stderr


def test_the_light_requirements_are_those_of_the_package():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    options, extras = config["options"], config["options.extras_require"]
    names = ("litert", "serve", "files")
    listed = "\n".join([options["install_requires"], *(extras[name] for name in names)])
    lines = (ROOT / "requirements-light.txt").read_text("utf-8").splitlines()
    needed = [line.removeprefix("# ") for line in lines if ">=" in line]
    assert {*needed} <= {*listed.splitlines()} and len(needed) > 12
