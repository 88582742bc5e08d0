"""A training step of Hugging Face's MarianMT in PyTorch, by the paper's recipe."""

from collections.abc import Callable

import torch
import transformers
from harness.arrays import load_batches, real_tokens
from harness.child import serve

PAD, BOS, EOS = 0, 2, 3


def marian_config(model: dict, **others) -> transformers.MarianConfig:
    """Returns Marian's settings for the arguments of ModelConfig: sizes and dropout."""
    sizes, depth = {}, model["num_layers"]
    for side, layers in (("encoder", depth), ("decoder", model.get("decoder_layers") or depth)):
        sizes |= {
            f"{side}_layers": layers,
            f"{side}_ffn_dim": model["d_ff"],
            f"{side}_attention_heads": model["num_heads"],
        }
    return transformers.MarianConfig(
        vocab_size=model["vocab_size"],
        d_model=model["d_model"],
        dropout=model["dropout"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **sizes,
        **others,
    )


def setup(batches: str, model: dict, precision: str, compiled: bool) -> dict:
    """Args:
    batches: path of the file of batches.
    model: arguments of ModelConfig.
    precision: "float32", or "mixed_bfloat16", which is autocast.
    compiled: apply torch.compile to the forward pass and the loss.
    """
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    arrays = load_batches(batches)
    tensors = [[torch.tensor(part, dtype=torch.int64, device=device) for part in batch]
               for batch in arrays]  # fmt: skip
    marian = transformers.MarianMTModel(marian_config(model)).to(device).train()
    optimizer = torch.optim.Adam(
        marian.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    compute = torch.compile(_loss_of(marian)) if compiled else _loss_of(marian)

    def work() -> dict:
        losses = []
        for batch in tensors:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=precision != "float32"):
                loss = compute(*batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return real_tokens(arrays) | {"loss": float(torch.stack(losses).mean())}

    return {"work": work} | gpu_memory(device)


def _loss_of(marian: transformers.MarianMTModel) -> Callable[..., torch.Tensor]:
    """Returns the loss of (source, target, labels), each [B, S or T]."""

    def loss_of(source, target, labels):
        logits = marian(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            decoder_input_ids=target,
            use_cache=False,
        ).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1
        )

    return loss_of


def gpu_memory(device: str) -> dict:
    """Returns functions that read and reset a GPU's peak memory, if there is a GPU."""
    if device != "cuda":
        return {}

    def forget() -> dict:
        torch.cuda.reset_peak_memory_stats()
        return {}

    return {"memory": lambda: {"peak_bytes": torch.cuda.max_memory_allocated()},
            "forget_peak": forget}  # fmt: skip


if __name__ == "__main__":
    serve(setup, "torch", "transformers")
