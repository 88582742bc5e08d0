"""Packages with metrics, found as installed packages declare them."""

from collections.abc import Mapping
from pathlib import Path


def declare_metrics(folder: Path, name: str, version: str, metrics: Mapping[str, str]) -> None:
    """Writes the metadata of a package, with a metric "module:function" for each name."""
    package = folder / f"{name}-{version}.dist-info"
    package.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (package / "METADATA").write_text(metadata)
    lines = [f"{metric} = {function}\n" for metric, function in metrics.items()]
    (package / "entry_points.txt").write_text("[tf_transformer.metrics]\n" + "".join(lines))
