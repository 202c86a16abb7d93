"""On request, in the metadata of found nodes: why a node has its score, and what the search cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.schema import NodeWithScore
from llama_index.retrievers.sidr.nodes import to_node

from sidr_rag import InvalidInputError, InvalidTypeError, SearchResult, SiDR

EXPLANATION_KEY = "sidr_explanation"
"""The metadata key of a found node's explanation."""
COSTS_KEY = "sidr_costs"
"""The metadata key of the costs of the search that found a node."""
REQUESTS: dict[str, bool] = {"explain": False, "costs": False}
"""What may be asked for, and whether it is by default."""

_OF_THE_SCORE = ("search", "first_stage", "query_repr", "max_active_dims", "weight_floor")


def checked_requests(options: Mapping[str, Any]) -> dict[str, bool]:
    """The requests among some options; those that are not there have their defaults.

    Raises:
        InvalidTypeError: if a value is neither True nor False.
    """
    asked = {name: options.get(name, default) for name, default in REQUESTS.items()}
    for name, value in asked.items():
        if not isinstance(value, bool):
            raise InvalidTypeError(f"{name}={value!r} must be True or False")
    return asked


def found_nodes(
    engine: SiDR,
    query: str,
    find: Callable[[], list[SearchResult]],
    options: Mapping[str, Any],
    *,
    explain: bool,
    costs: bool,
) -> list[NodeWithScore]:
    """What a search finds as nodes, with the metadata that were asked for, as JSON values.

    Those metadata are left out of the text for embedding models and language models.

    Args:
        engine: where.
        query: the question.
        find: the search; only what it spends is counted.
        options: of the search; those that shape the first stage's score are the explanation's, too.
        explain: `Explanation.to_dict()` under `EXPLANATION_KEY`: the first stage's score by token. None for a node that
            was deleted in the meantime.
        costs: `Costs.to_dict()` under `COSTS_KEY`, the same for every node of the search.

    Raises:
        InvalidInputError: if the first stage's score has no parts by token.
    """
    with engine.measured() as spent:
        results = find()
    of_the_score = {name: value for name, value in options.items() if name in _OF_THE_SCORE}
    found = []
    for result in results:
        node = to_node(result.passage)
        more: dict[str, Any] = {COSTS_KEY: spent.to_dict()} if costs else {}
        if explain:
            more[EXPLANATION_KEY] = _explanation(engine, query, result.passage.id, of_the_score)
        node.metadata.update(more)
        node.excluded_embed_metadata_keys.extend(more)
        node.excluded_llm_metadata_keys.extend(more)
        found.append(NodeWithScore(node=node, score=result.score))
    return found


def _explanation(engine: SiDR, query: str, passage_id: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        return engine.explain(query, passage_id, **options).to_dict()
    except InvalidInputError:
        if engine.get([passage_id]):
            raise
        return None
