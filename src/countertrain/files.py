"""Tensors and numbers on disk: safetensors with JSON beside them, written whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["CheckpointError", "read_tensors", "write_bytes", "write_tensors", "write_text"]


class CheckpointError(ValueError):
    """A file of weights or of training state cannot be used; the message says why."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able metadata under a temporary name, then rename: never half a file."""
    kept = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(kept, temporary, {"json": json.dumps(meta)})
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata as `write_tensors` wrote them; no code in the file is ever run."""
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}; check the folder, or train first")
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get("json", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118  # not a dict
    except (SafetensorError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file ({error}); delete it and train again"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
