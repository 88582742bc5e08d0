"""Training of `peer_transformer`, by the package's recipe, on prepared batches."""

import functools
from pathlib import Path

import numpy as np
import torch
from harness.arrays import load_batches
from harness.child import serve
from peer_transformer import PAD, PeerTransformer, assign


def setup(batches: str, model: dict, training: dict, seed: int) -> dict:
    """Args:
    batches: path of the file of batches, in order.
    model: arguments of ModelConfig; see `PeerTransformer`.
    training: settings of TrainingConfig: warm-up, learning rate scale and label smoothing.
    seed: seed of the initial weights and of dropout.
    """
    torch.manual_seed(seed)
    arrays = load_batches(batches)
    peer = PeerTransformer(model).train()
    optimizer = torch.optim.Adam(peer.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)

    def train(first: int, number: int) -> dict:
        losses, total, tokens = [], 0.0, 0
        for step in range(first, first + number):
            source, target, labels = (torch.tensor(part).long() for part in arrays[step])
            loss, plain = _losses(peer(source, target), labels, training["label_smoothing"])
            optimizer.param_groups[0]["lr"] = _learning_rate(step, model["d_model"], training)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            total, tokens = total + plain.item(), tokens + int((labels != PAD).sum())
        return {"loss": float(np.mean(losses)), "nats": total / tokens}

    def start_from(path: str) -> dict:
        with np.load(path) as file:
            assign(peer, {name: file[name] for name in file.files if name.startswith("model/")})
        return {}

    def save(path: str) -> dict:
        state = {"model": peer.state_dict(), "optimizer": optimizer.state_dict()}
        temporary = Path(f"{path}.tmp")
        torch.save(state | {"random": torch.get_rng_state()}, temporary)
        temporary.replace(path)
        return {}

    def restore(path: str) -> dict:
        state = torch.load(path)
        peer.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        return {}

    return {"train": train, "start_from": start_from, "save": save, "restore": restore}


def _learning_rate(step: int, d_model: int, training: dict) -> float:
    decay = min((step + 1) ** -0.5, (step + 1) * training["warmup_steps"] ** -1.5)
    return training["learning_rate_scale"] * d_model**-0.5 * decay


def _losses(logits: torch.Tensor, labels: torch.Tensor, smoothing: float):
    """Returns the mean smoothed loss, and the sum of the plain loss, without a gradient."""
    entropy = functools.partial(torch.nn.functional.cross_entropy, ignore_index=PAD)
    logits, labels = logits.flatten(0, 1), labels.flatten()
    with torch.no_grad():
        plain = entropy(logits, labels, reduction="sum")
    return entropy(logits, labels, label_smoothing=smoothing), plain


if __name__ == "__main__":
    serve(setup, "torch")
