"""Hugging Face's `generate` on MarianMT in PyTorch, with the same weights."""

import functools

import numpy as np
import torch
import transformers
from harness.child import serve
from harness.sentences import EOS, Work, up_to_eos, with_eos
from training_marian import BOS, PAD, gpu_memory, marian_config


def setup(work: str, precision: str) -> dict:
    """Args:
    work: the folder of the work.
    precision: "float32" or "bfloat16".
    """
    given = Work(work)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    marian = transformers.MarianMTModel(marian_config(given.model))
    _load(marian, given)
    marian = marian.to(device, getattr(torch, precision)).eval()

    hypotheses = functools.partial(_hypotheses, marian)

    def search(rows, beam: int, forced: int):
        outputs = hypotheses(rows, beam, forced)
        return [best if forced else [*best, EOS] for (best,) in outputs]

    def measured(batch: int, beam: int, forced: int, batches: int) -> dict:
        return given.decode(lambda rows: search(rows, beam, forced), batch, batches)

    def check(batch: int, beam: int, forced: int) -> dict:
        """Returns the hypotheses among which ours should be, as for CTranslate2."""
        (rows,) = given.batches(batch, 1)
        number = beam if forced else 1
        return {"hypotheses": hypotheses(rows, beam, forced and forced - 1, number, 0.0)}

    return {"work": measured, "check": check} | gpu_memory(device)


@torch.inference_mode()
def _hypotheses(marian, rows, beam: int, forced: int, number: int = 1, penalty: float = 0.6):
    """Returns the ids of each sentence's `number` best hypotheses, without BOS and EOS."""
    source = torch.tensor(with_eos(rows), device=marian.device)
    limits = {"max_new_tokens": source.shape[1] + 50}
    if forced:
        limits = {"min_new_tokens": forced, "max_new_tokens": forced}
    settings = transformers.GenerationConfig(
        num_beams=beam,
        num_return_sequences=number,
        length_penalty=penalty,
        early_stopping="never" if beam > 1 else False,
        do_sample=False,
        decoder_start_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        **limits,
    )
    mask = (source != PAD).long()
    outputs = marian.generate(source, attention_mask=mask, generation_config=settings)
    flat = [up_to_eos(row) for row in outputs[:, 1:].tolist()]
    return [flat[i : i + number] for i in range(0, len(flat), number)]


def _load(marian: transformers.MarianMTModel, given: Work) -> None:
    with np.load(given.folder / "marian.npz") as file:
        tensors = {name: torch.tensor(file[name]) for name in file.files}
    unknown = marian.load_state_dict(tensors, strict=False).unexpected_keys
    if unknown:
        raise ValueError(f"MarianMT has no {unknown[0]}")
    marian.tie_weights()
    for module in marian.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = given.model["norm_epsilon"]


if __name__ == "__main__":
    serve(setup, "torch", "transformers")
