"""The size of parts: whole batches if they fit, otherwise always the same on a machine."""

import dataclasses

import pytest
import tensorflow as tf

from tf_transformer.config import Config
from tf_transformer.config.presets import PRESETS
from tf_transformer.doctor.diagnosis import longest_shape
from tf_transformer.errors import UserError
from tf_transformer.training.devices import Workers
from tf_transformer.training.parts import SHARE, Parts, Workload, choose_size, device_memory

GIB = 2**30


def workload(config: Config, **fields) -> Workload:
    return Workload(config, [longest_shape(config)], **fields)


def asking(work: Workload, size: int | None) -> Workload:
    config = work.config.replace({"training.max_tokens_per_device": size})
    return dataclasses.replace(work, config=config)


BASE = workload(PRESETS["base"])


@pytest.mark.parametrize("name", ["tiny", "small", "multi30k", "parsing-small"])
def test_a_batch_that_fits_is_computed_whole(name):
    assert choose_size(workload(PRESETS[name]), ("RAM", 16 * GIB)) == 0


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("gigabytes", [12, 24, 64])
def test_every_preset_fits_with_room_for_the_error_of_the_estimate(name, gigabytes):
    work = workload(PRESETS[name], encoder_outputs=5 * (PRESETS[name].task == "classification"))
    size = choose_size(work, ("RAM", gigabytes * GIB))
    assert work.needed(size, "RAM") <= SHARE * gigabytes * GIB
    assert SHARE * 1.15 < 1


def test_the_size_is_the_largest_power_of_two_that_fits():
    size = choose_size(BASE, ("RAM", 16 * GIB))
    assert size.bit_count() == 1 and size >= 256
    assert BASE.needed(2 * size, "RAM") > SHARE * 16 * GIB


@pytest.mark.parametrize("jitter", [-0.02, 0.02])
def test_a_little_more_or_less_memory_gives_the_same_size(jitter):
    sizes = {choose_size(BASE, ("RAM", int(24 * GIB * factor))) for factor in (1, 1 + jitter)}
    assert len(sizes) == 1


def test_sizes_hold_the_longest_sentence_and_are_less_than_a_share_of_the_batch():
    work = Workload(Config(), [(100, 12), (9, 100)], replicas=2)
    assert work.sizes() == [0, 512, 256, 128]  # shares of 50 x 12 and 5 x 100


def test_if_nothing_fits_the_smallest_part_is_tried():
    assert choose_size(BASE, ("RAM", GIB)) == BASE.sizes()[-1] == 256


@pytest.mark.parametrize("asked", [0, 512, 100_000])
def test_a_configured_size_is_used(asked):
    work = asking(BASE, asked)
    assert choose_size(work, ("RAM", GIB), recorded=1024) == asked


def test_the_recorded_size_is_kept_while_it_fits():
    chosen = choose_size(BASE, ("RAM", 16 * GIB))
    for recorded in (0, 256, 700, 16_384):
        assert choose_size(BASE, ("RAM", 64 * GIB), recorded) == recorded
    barely = BASE.needed(8192, "RAM") + 1  # exceeds SHARE, but has worked so far
    assert choose_size(BASE, ("RAM", barely), recorded=8192) == 8192
    assert choose_size(BASE, ("RAM", barely)) < 8192
    assert choose_size(BASE, ("RAM", 16 * GIB), recorded=0) == chosen


def test_replicas_on_one_cpu_share_its_memory_but_gpus_do_not():
    two = workload(PRESETS["base"], replicas=2)
    assert two.needed(512, "RAM") > 2 * two.needed(512, "GPU")
    apart = dataclasses.replace(two, workers=2)
    assert apart.needed(512, "RAM") == BASE.needed(512, "RAM")


@pytest.mark.parametrize(
    ("size", "half"), [(0, 8192), (100_000, 8192), (8192, 4096), (1000, 256), (500, None)]
)
def test_half_is_the_largest_choice_up_to_half_the_size(size, half):
    """The largest batch is [97, 256], or 24,832 positions; a row has 256."""
    assert BASE.half(size) == half


def test_several_workers_are_told_which_size_to_give():
    """One worker cannot go back alone: the others wait for it in the middle of a step."""
    parts = Parts(workload(PRESETS["base"], replicas=2, workers=2))
    with pytest.raises(UserError, match="give --max-tokens-per-device 4096: training resumes"):
        parts.halve()


def test_memory_held_by_other_programs_causes_a_warning(monkeypatch, caplog):
    monkeypatch.setattr("tf_transformer.training.parts.device_memory", lambda: ("RAM", 2**60))
    parts = Parts(workload(Config().replace({"training.batch_tokens": 10**9})))
    assert parts.choose(None, Workers()) == 0
    assert [m for m in caplog.messages if m.startswith("warning  memory: other programs")]


def test_this_machine_has_memory():
    device, available = device_memory()
    assert device in ("RAM", "GPU")
    assert 2**28 < available < 2**45


FAKE_SMI = """#!/bin/sh
case $1 in
--id=5,4,6) echo 81920; echo 24576; echo 40960 ;;
*) echo "[N/A]" ;;
esac
"""


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [("5, 4,6,7", 3, ("GPU", 24_576 * 2**20)), (None, 2, "GPU 0,1: using the RAM instead")],
)
def test_only_the_gpus_in_use_count(monkeypatch, tmp_path, caplog, visible, count, expected):
    (tmp_path / "nvidia-smi").write_text(FAKE_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind] * count)
    memory = device_memory()
    assert memory == expected or (memory[0] == "RAM" and expected in caplog.text)
