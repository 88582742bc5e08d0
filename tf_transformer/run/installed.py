"""Versions of the software that a run is trained with."""

import platform
from importlib import metadata

_PACKAGES = (
    "tf-transformer",
    "tensorflow",
    "keras",
    "keras-nlp",
    "tensorflow-text",
    "sentencepiece",
    "sacrebleu",
    "numpy",
)


def versions() -> dict[str, str]:
    """Returns the versions of Python, the platform and the packages."""
    installed = {name: _version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), "platform": platform.platform()} | installed


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
