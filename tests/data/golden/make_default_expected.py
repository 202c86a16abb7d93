"""Writes `default_expected.json`: the bundled model's vectors as transformers and torch give them, without sidr_rag.

To be run anew when the bundled weights change: `python tests/data/golden/make_default_expected.py`.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[2] / "sidr_rag" / "encoder" / "default"
QUERIES = (
    "Who first proposed the theory of relativity?",
    "how do plants turn sunlight into sugar",
    "refund policy for damaged items",
)
SPECIAL = 999  # the ids before the ordinary tokens
SHOWN = 24


def main() -> None:
    """Encode the queries in float32, and write their largest weights."""
    raw = load_file(MODEL / "model.safetensors")
    weights = {name: _whole(raw, name) for name in raw if not name.endswith(".scale")}
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    body = _body(config["bert"], weights)
    expected = [_encoded(query, body, weights, tokenizer) for query in QUERIES]
    if config.get("dense") is None:
        for case in expected:
            del case["dense"]
    if config.get("binary_layers"):
        own = {_stored(n): w for n, w in weights.items() if n.startswith("binary.")}
        binary = weights | own
        body = _body(config["bert"], binary)
        for case, query in zip(expected, QUERIES, strict=True):
            read = _encoded(query, body, binary, tokenizer)
            case["binary"] = {"top_dims": read["top_dims"], "weights": read["weights"]}
    (HERE / "default_expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def _body(sizes: dict[str, object], weights: dict[str, torch.Tensor]) -> BertModel:
    body = BertModel(BertConfig(**sizes, attn_implementation="eager"), add_pooling_layer=False).eval()
    body.load_state_dict({n.removeprefix("bert_model."): w for n, w in weights.items() if n.startswith("bert_model.")})
    return body


def _stored(name: str) -> str:
    """What stands in the place of a weight that binary queries have of their own."""
    name = name.removeprefix("binary.")
    return f"bert_model.{name}" if name.startswith("encoder.") else name


def _whole(raw: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    scale = raw.get(f"{name}.scale")
    return raw[name].float() if scale is None else raw[name].float() * scale[:, None]


@torch.no_grad()
def _encoded(query: str, body: BertModel, weights: dict[str, torch.Tensor], tokenizer: Tokenizer) -> dict[str, object]:
    ids = tokenizer.encode(query).ids
    states = body(torch.tensor([ids])).last_hidden_state[0]
    hidden = torch.nn.functional.layer_norm(states, states.shape[-1:], weights["ln.weight"], weights["ln.bias"], 1e-12)
    rows = weights["bert_model.embeddings.word_embeddings.weight"][SPECIAL:]
    logits = (hidden @ rows.T + weights["logit_bias"]).amax(dim=0)
    theta = torch.where(logits >= 0, logits + 1, logits.exp())  # elu1p, section 3.1 of the paper
    dense = torch.nn.functional.normalize(states.mean(dim=0), dim=0)
    top = torch.topk(theta, SHOWN)
    dims = top.indices.tolist()
    return {
        "query": query,
        "token_ids": ids,
        "top_dims": dims,
        "top_tokens": [tokenizer.id_to_token(dim + SPECIAL) for dim in dims],
        "weights": [round(weight, 4) for weight in top.values.tolist()],
        "dense": [round(number, 4) for number in dense.tolist()],
    }


if __name__ == "__main__":
    main()
