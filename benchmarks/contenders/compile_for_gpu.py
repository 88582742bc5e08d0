"""Compiles StableHLO files for an H100, without a GPU, and prints what the programs launch.

python compile_for_gpu.py FOLDER
"""

import math
import os
import re
import sys
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax_plugins.xla_cuda12 as plugin  # noqa: E402
from jax._src import compiler  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402

# From openxla/xla, xla/backends/gpu/target_config/specs/h100_sxm.txtpb.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  shared_memory_per_block: 49152
  shared_memory_per_core: 233472  threads_per_core_limit: 2048  core_count: 132
  fpus_per_core: 128  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535
  block_dim_limit_z: 65535  memory_bandwidth: 3352320000000  l2_cache_size: 52428800
  clock_rate_ghz: 1.98  device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
BANDWIDTH = 3.35e12
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast"}
BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "s64": 8, "u64": 8}


def devices() -> xla_client.DeviceList:
    """A device that programs can be compiled for, and not run on."""
    library = Path(plugin.__file__).with_name("xla_cuda_plugin.so")
    api = xla_client.load_pjrt_plugin_dynamically("cuda", str(library))
    xla_client.initialize_pjrt_plugin("cuda")
    topology = xla_client.make_c_api_device_topology(
        api, "h100", target_config=H100, topology="1x1x1"
    )
    return xla_client.DeviceList(tuple(topology._make_compile_only_devices()[:1]))


def repacked(match: re.Match) -> str:
    """A boolean constant with bits for bytes or bytes for bits: MLIR's format has changed."""
    data, size = bytes.fromhex(match[1]), math.prod(map(int, match[2].split("x")))
    if len(data) == size:
        bits = "".join("1" if byte else "0" for byte in data)
        data = bytes(int(bits[i : i + 8].ljust(8, "0")[::-1], 2) for i in range(0, size, 8))
    else:
        data = bytes(data[i // 8] >> i % 8 & 1 for i in range(size))
    return f'dense<"0x{data.hex().upper()}"> : tensor<{match[2]}xi1>'


def compiled(text: str, on: xla_client.DeviceList) -> str:
    """The optimised module of a program."""
    text = re.sub(r'dense<"0x([0-9A-F]+)"> : tensor<([0-9x]+)xi1>', repacked, text)
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    with mlir.make_ir_context():
        module = mlir.ir.Module.parse(text)
        return on[0].client.compile(module, on, options).hlo_modules()[0].to_string()


def size_of(shape: str) -> int:
    parts = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(BYTES.get(t, 0) * math.prod(int(d) for d in s.split(",") if d) for t, s in parts)


def launches(text: str) -> tuple[int, int]:
    """The number of launches of a module, and the bytes that they read and write."""
    sizes: dict[str, int] = {}
    number = moved = 0
    pattern = r"\s+(?:ROOT )?(%?[\w.-]+) = (\(.*?\)|\S+) ([a-z-]+)\((.*?)\)(?:,|$)"
    for line in text[text.index("\nENTRY ") :].splitlines()[2:]:
        if found := re.match(pattern, line):
            name, shape, kind, operands = found.groups()
            sizes[name] = size_of(shape)
            if kind not in FREE:
                number += 1
                read = (sizes.get(each, 0) for each in re.findall(r"%[\w.-]+", operands))
                moved += sizes[name] + sum(read)
    return number, moved


def main(folder: str) -> None:
    on = devices()
    print("| program | launches | GB moved | ms at 3.35 TB/s | CPU s to compile |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for path in sorted(Path(folder).glob("*.mlir")):
        start = time.process_time()
        text = compiled(path.read_text(), on)
        seconds = time.process_time() - start
        number, moved = launches(text)
        figures = f"{moved / 1e9:.2f} | {1e3 * moved / BANDWIDTH:.2f} | {seconds:.1f}"
        print(f"| {path.stem} | {number} | {figures} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
