"""Files of OLD as NEW reads them: weights and settings that have other names since.

Empty this module when OLD is newer than the changes in it.
"""

import json
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np

# The projections of attention have become `Dense` layers: "query_kernel" is "query/kernel". An
# optimizer's variables have "_" for each "/" in the paths of weights, so they keep their names.
_PROJECTION = re.compile(r"(.*attention/)(query|key|value|output)_(kernel|bias)")


def new_name(name: str) -> str:
    """Returns NEW's name of an array in a checkpoint of OLD or NEW."""
    match = None if name.startswith("optimizer/") else _PROJECTION.fullmatch(name)
    return "{}{}/{}".format(*match.groups()) if match else name


def rename(folder: Path) -> None:
    """Changes the checkpoints, runs and Keras models of OLD in a folder into those of NEW."""
    for path in folder.rglob("checkpoints/*.npz"):
        with np.load(path) as archive:
            arrays = {new_name(name): archive[name] for name in archive if name != "members"}
        np.savez(path, **arrays, members=np.array(list(arrays)))
    for path in folder.rglob("lengths.json"):
        config, lengths = path.with_name("config.json"), json.loads(path.read_text("utf-8"))
        settings = json.loads(config.read_text("utf-8"))
        for side, length in lengths.items():
            settings["model"][f"{side}_positions"] = length
        config.write_text(json.dumps(settings), "utf-8")
        path.unlink()
    for path in folder.glob("*.keras"):
        _rename_in_keras_file(path)


def _rename_in_keras_file(path: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(temporary)
        with h5py.File(Path(temporary, "model.weights.h5"), "a") as file:
            for name in _attention_layers(file):
                layer = file[name]
                for index, projection in enumerate(("query", "key", "value", "output")):
                    layer.move(f"vars/{index}", f"{projection}_dense/vars/0")
        packed = shutil.make_archive(str(Path(temporary).with_suffix("")), "zip", temporary)
        shutil.move(packed, path)


def _attention_layers(file: h5py.File) -> list[str]:
    """Lists the groups of attention layers, which have no biases in these models."""
    names: list[str] = []
    file.visit(names.append)
    return [name for name in names if name.endswith(("self_attention", "cross_attention"))]
