"""From a model's name to a folder on this machine."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from sidr_rag.encoder.config import ModelConfig
from sidr_rag.errors import InvalidTypeError, MissingExtraError, ModelNotFoundError

DEFAULT_MODEL = "default"
DEFAULT_FOLDER = Path(__file__).resolve().parent / "default"

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt"]
# The bundled tokenizer is this model's: the same vocabulary, byte for byte.
_BUNDLED_TOKENIZER_OF = "bert-base-uncased"
_BUNDLED_VOCAB_SIZE = 30522


def resolve_model(model: str | Path) -> Path:
    """The folder that holds the model.

    Args:
        model: "default" for the bundled model; a folder; or a name on the Hugging Face hub, of which only JSON,
            safetensors and text files are fetched. Only the last may touch the network.

    Raises:
        InvalidTypeError: if `model` is neither a string nor a path.
        ModelNotFoundError: if there is no such folder, or the hub has no such model or cannot be reached.
        MissingExtraError: if a hub name is given and torch or transformers is absent.
    """
    if not isinstance(model, (str, Path)):
        raise InvalidTypeError(f"model has type {type(model).__name__}; expected a name or the path of a folder")
    if model == DEFAULT_MODEL:
        return DEFAULT_FOLDER
    folder = Path(model).expanduser()
    if str(model) and folder.is_dir():
        return folder.resolve()
    if isinstance(model, Path) or not _HUB_NAME.fullmatch(model) or model.startswith("."):
        raise ModelNotFoundError(
            f"model {str(model)!r} is no folder on this machine; give 'default', an existing folder, or a name on the "
            "Hugging Face hub such as 'jzhoubu/sidr-nq'"
        )
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "torch", f"loading the model {model!r} from the Hugging Face hub")
    return _from_hub(model)


def tokenizer_source(folder: Path, config: ModelConfig) -> Path:
    """The file the tokenizer is made from: `tokenizer.json`, `vocab.txt`, or the bundled tokenizer where it fits.

    Raises:
        ModelNotFoundError: if the folder has neither and the model's tokenizer is not the bundled one.
    """
    for name in ("tokenizer.json", "vocab.txt"):
        if (folder / name).is_file():
            return folder / name
    base = (config.base_model or "").rsplit("/", 1)[-1]
    if base == _BUNDLED_TOKENIZER_OF and config.bert is not None and config.bert.vocab_size == _BUNDLED_VOCAB_SIZE:
        return DEFAULT_FOLDER / "tokenizer.json"
    raise ModelNotFoundError(
        f"model: {folder} has neither tokenizer.json nor vocab.txt; put the tokenizer.json of "
        f"{config.base_model or 'the base model'} into it"
    )


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (LocalEntryNotFoundError, OSError, HfHubHTTPError, HFValidationError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, HFValidationError) or status in (401, 403, 404):
            reason = "the Hugging Face hub has no public model of that name"
        elif status is not None:
            reason = f"the Hugging Face hub answered with status {status}"
        else:
            reason = "the Hugging Face hub could not be reached (is there a network?) and the local cache lacks it"
        raise ModelNotFoundError(
            f"model {name!r} is no folder on this machine, and {reason}; "
            "download the model where there is a network and give its folder, or use model='default'"
        ) from error
