"""A folder as the Hugging Face Hub has one: `config.json`, `model.safetensors`, and the card `README.md`.

It can be uploaded as it is. Nothing here needs a network or another package; the layout is that of
`huggingface_hub.PyTorchModelHubMixin`, which reads and writes the same files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.files import read_json, read_text, write_whole
from ham.core.tensors import check_weights, from_file, plain, to_bytes
from ham.core.text import one_line

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
OF_A_RUN = ("checkpoint.safetensors", "state.safetensors")
"""What only the folder of a run holds, whose `CONFIG` and log have the names of ours."""
LIBRARY = "ham-memory"
TAGS = ("hierarchical-attentive-memory", "memory", "pytorch")


def write(folder: str | Path, files: Mapping[str, bytes]) -> Path:
    """The files in a folder, which is made if there is none; a run's is left alone."""
    folder = Path(folder)
    if any((folder / name).exists() for name in OF_A_RUN):
        raise InputError(f"{folder} holds a run, whose files would be replaced; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    for name, data in files.items():
        write_whole(folder / name, data)
    return folder


def card(title: str, body: str, *, tags: Sequence[str] = (), license: str | None = None) -> bytes:
    """A model card; before its text the header that the Hub reads."""
    about = {"library_name": LIBRARY, **({"license": license} if license else {})}
    lines = [f"{name}: {value}" for name, value in about.items()]
    listed = [f"- {tag}" for tag in (*TAGS, *tags)]
    return "\n".join(["---", *lines, "tags:", *listed, "---", "", f"# {title}", "", body, ""]).encode()


def save_memory(memory: Any, folder: str | Path, license: str | None) -> Path:
    """A memory alone, for a network of the user's own."""
    kind = type(memory).__name__
    given = {name: f"Your{name.title()}(...)" for name in memory.own}
    call = ", ".join(["folder", *(f"{name}={module}" for name, module in given.items())])
    numbers = sum(tensor.numel() for tensor in memory.parameters())
    own = (
        f" Its {', '.join(map(str.upper, given))} must be given: only their weights are here."
        if given
        else ""
    )
    body = (
        f"A Hierarchical Attentive Memory of {numbers:,} parameters: a neural memory read and written in Θ(log n).{own}"
        "\n\n```python\nimport ham\n\n"
        f"memory = ham.{kind}.from_pretrained({call})\n```\n\n"
        "| setting | value |\n|---|---|\n"
        + "\n".join(f"| `{name}` | {value} |" for name, value in memory.config.items())
    )
    config = {**memory.config, **({"own": list(memory.own)} if memory.own else {})}
    files = {
        CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
        WEIGHTS: to_bytes(plain(memory.state_dict()), {"format": "pt"}),
        CARD: card(kind, body, license=license),
    }
    return write(folder, files)


def load_memory(kind: type[Any], folder: str | Path, own: Mapping[str, nn.Module | None]) -> Any:
    """A memory from such a folder, whoever wrote it."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"{path} is not a folder with a {CONFIG} and a {WEIGHTS}")
    config = read_json(read_text(path / CONFIG), str(path / CONFIG))
    if not isinstance(config, dict) or not {"features", "query"} <= config.keys():
        is_whole = isinstance(config, dict) and "task" in config
        whole = "; it is a whole model: ham.load(folder).model" if is_whole else ""
        raise InputError(f"{path / CONFIG} does not hold the settings of a memory{whole}")
    needed = config.pop("own", [])
    if not isinstance(needed, list) or not all(isinstance(name, str) and name in own for name in needed):
        raise InputError(f"{path / CONFIG}: own must be a list of some of {', '.join(own)}, got {needed!r}")
    given = {name: module for name, module in own.items() if module is not None}
    for name in needed:
        if name not in given:
            raise InputError(f"this memory has its own {name.upper()}, which must be given: {name}=...")
    settings = {name: value for name, value in config.items() if value is not None and name not in given}
    for name in own.keys() & settings.keys() - {"join"}:
        raise InputError(
            f"{path / CONFIG}: {name} must be null, got {settings[name]!r}; give a module: {name}=..."
        )
    tensors, _ = from_file(path / WEIGHTS)
    built = _built(kind, {**settings, **given}, tensors, path)
    built.load_state_dict(tensors)
    return built.eval()


def _built(kind: type[Any], settings: dict[str, Any], tensors: Mapping[str, Tensor], path: Path) -> Any:
    """A memory of these settings; first by shapes alone, since a file may lie about its widths."""
    # A module of the user's may count something: whole numbers stay what they are.
    kinds = {str(tensor.dtype): tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(kinds) > 1:
        raise InputError(
            f"{path / WEIGHTS} has weights of several types, {', '.join(sorted(kinds))}, not of one"
        )
    dtype = next(iter(kinds.values()), torch.float32)
    try:
        with torch.device("meta"):
            check_weights(kind(**settings).to(dtype), tensors, path / WEIGHTS)
        return kind(**settings).to(dtype)
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"{path / CONFIG} does not hold the settings of a {kind.__name__}: {one_line(str(error))}"
        ) from None
