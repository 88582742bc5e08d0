"""Kernels that LoRA can adapt (Hu et al. 2022), following the conventions of Keras's Dense."""

import keras
from keras import ops


def refuse_quantization(layer: keras.layers.Layer, mode: str | None) -> None:
    """Raises a ValueError, where Keras would only warn and skip the layer."""
    raise ValueError(
        f"{type(layer).__name__} cannot be quantized: it computes in floating point only, "
        f"bfloat16 included. Received: mode={mode!r}."
    )


class KernelLayer(keras.layers.Layer):
    """A layer with several kernels, which `enable_lora` adapts together.

    Saving merges the adapters into the kernels; the layer is loaded without LoRA.

    Attributes:
        lora_rank: rank of the adapters; None before `enable_lora`.
    """

    lora_rank: int | None = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._kernels = {}
        self._adapters = {}

    def add_kernel(self, name: str, shape, initializer) -> None:
        """Creates the weight that `kernel(name)` returns."""
        self._kernels[name] = self.add_weight(name=name, shape=shape, initializer=initializer)

    def kernel(self, name: str):
        """Returns a kernel, merged with its adapter if there is one."""
        kernel = self._kernels[name]
        if self.lora_rank is None:
            return kernel
        a, b = self._adapters[name]
        return kernel + self._lora_scale * ops.matmul(a, b)

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer="he_uniform",
        b_initializer="zeros",
    ) -> None:
        """Freezes every kernel W and trains A and B in W + lora_alpha / rank * A B.

        Biases stay trainable, as in Keras. Compile the model afterwards.

        Args:
            rank: number of columns of A and of rows of B.
            lora_alpha: numerator of the scale; `rank` if None.
            a_initializer: initializer of A.
            b_initializer: initializer of B; zeros leave the layer's outputs unchanged at first.

        Raises:
            ValueError: if the layer is not built, or already adapted.
        """
        if not self.built or self.lora_rank is not None:
            state = "already adapted" if self.built else "not built"
            raise ValueError(
                "`enable_lora` needs a built layer and can be called only once. "
                f"Received: {self.name}, which is {state}."
            )
        self._tracker.unlock()
        for name, kernel in self._kernels.items():
            rows, columns = kernel.shape
            self._adapters[name] = [
                self.add_weight(
                    name=f"{name}_lora_{side}",
                    shape=shape,
                    initializer=keras.initializers.get(initializer).clone(),
                )
                for side, shape, initializer in (
                    ("a", (rows, rank), a_initializer),
                    ("b", (rank, columns), b_initializer),
                )
            ]
            kernel.trainable = False
        self._tracker.lock()
        self.lora_rank = rank
        self._lora_scale = (rank if lora_alpha is None else lora_alpha) / rank

    def _own_weights(self) -> list[keras.Variable]:
        """Returns the weights without the adapters, in order of creation."""
        return self.weights[: len(self.weights) - 2 * len(self._adapters)]

    def save_own_variables(self, store):
        merged = {id(weight): self.kernel(name) for name, weight in self._kernels.items()}
        for index, weight in enumerate(self._own_weights()):
            store[str(index)] = ops.convert_to_numpy(merged.get(id(weight), weight))

    def load_own_variables(self, store):
        if not self._adapters:
            super().load_own_variables(store)
            return
        for index, weight in enumerate(self._own_weights()):
            weight.assign(store[str(index)])
        for _, b in self._adapters.values():
            b.assign(ops.zeros_like(b))

    def quantize(self, mode=None, type_check=True, config=None):
        refuse_quantization(self, mode)
