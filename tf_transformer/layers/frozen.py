"""Which sublayers are frozen: Keras's configs hold only a layer's own `trainable`."""

from collections.abc import Mapping

import keras

from tf_transformer.fast.keras_model import sublayers


def trainable_changes(layer: keras.layers.Layer) -> dict[str, bool]:
    """Returns `trainable` of each sublayer where it differs from its parent's, by path.

    The result is empty with LoRA, which is not saved: its frozen layers are trained again.
    """
    if any(getattr(part, "lora_rank", None) for part in sublayers(layer, recursive=True)):
        return {}
    return _changes(layer)


def _changes(layer):
    changes = {}
    for part in sublayers(layer):
        if part.trainable != layer.trainable:
            changes[part.name] = part.trainable
        changes |= {f"{part.name}/{path}": value for path, value in _changes(part).items()}
    return changes


def set_trainable(layer: keras.layers.Layer, changes: Mapping[str, bool]) -> None:
    """Freezes the sublayers of a new layer as in the one that gave `trainable_changes`.

    A sublayer that its parent's `build` will create is frozen there: the parent finds it in its
    dict `trainable_when_built`.
    """
    if not layer.trainable:  # set in the constructor, which does not pass it on
        for part in sublayers(layer, recursive=True):
            part.trainable = False
    for path, value in changes.items():
        parents, _, name = path.rpartition("/")
        parent = _find(layer, parents) if parents else layer
        if part := _find(parent, name):
            part.trainable = value
        else:
            parent.trainable_when_built[name] = value


def _find(layer, path):
    name, _, rest = path.partition("/")
    for part in sublayers(layer):
        if part.name == name:
            return _find(part, rest) if rest else part
    return None
