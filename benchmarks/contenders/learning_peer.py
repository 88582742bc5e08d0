"""Training of `peer_transformer` on given batches with the package's recipe: losses by step."""

from pathlib import Path

import numpy as np
import torch
from harness.arrays import load_batches
from harness.child import serve, versions
from peer_transformer import PAD, PeerTransformer, assign


def setup(batches: str, model: dict, training: dict, seed: int) -> dict:
    """Args:
    batches: path of the file of batches, in order.
    model: arguments of ModelConfig; see `PeerTransformer`.
    training: of TrainingConfig: warm-up, scale of the learning rate and label smoothing.
    seed: of the initial weights and of dropout.
    """
    torch.manual_seed(seed)
    arrays = load_batches(batches)
    peer = PeerTransformer(model).train()
    optimizer = torch.optim.Adam(peer.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)

    def rate(step: int) -> float:
        warmup = training["warmup_steps"]
        decay = min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
        return training["learning_rate_scale"] * model["d_model"] ** -0.5 * decay

    def train(first: int, number: int) -> dict:
        losses, total, tokens = [], 0.0, 0
        for step in range(first, first + number):
            source, target, labels = (
                torch.tensor(part, dtype=torch.int64) for part in arrays[step]
            )
            logits = peer(source, target).flatten(0, 1)
            options = {"ignore_index": PAD}
            loss = torch.nn.functional.cross_entropy(
                logits, labels.flatten(), label_smoothing=training["label_smoothing"], **options
            )
            with torch.no_grad():
                plain = torch.nn.functional.cross_entropy(
                    logits, labels.flatten(), reduction="sum", **options
                )
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
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

    return {
        "train": train, "start_from": start_from, "save": save, "restore": restore,
        "versions": lambda: versions(["torch"]),
    }  # fmt: skip


if __name__ == "__main__":
    serve(setup)
