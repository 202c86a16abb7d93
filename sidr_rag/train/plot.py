"""The run's curves as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sidr_rag.errors import MissingExtraError
from sidr_rag.train.journal import read_log
from sidr_rag.train.sections import TERMS

_WINDOW = 25


def plot_log(log: Path, picture: Path) -> None:
    """Draw losses, in-batch accuracies, sparsity and dev measures over the steps.

    Args:
        log: a run's JSON-lines log.
        picture: the file to write; its suffix chooses the format (.svg, .png, .pdf).

    Raises:
        MissingExtraError: if matplotlib is absent.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", "train", "plotting a training log") from error
    lines = read_log(log)
    steps = [line for line in lines if line.get("event") == "step"]
    evaluations = [line for line in lines if line.get("event") == "dev"]
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    loss, right, sparsity, dev = figure.subplots(2, 2).ravel()
    for term in TERMS:
        _curve(loss, steps, f"loss_{term}", term)
        _curve(right, steps, f"accuracy_{term}", term)
    _curve(sparsity, steps, "dims_above_one", "dimensions above 1")
    for search in ("binary", "weighted", "late"):
        means = [
            (e["step"], float(np.mean(list(e["scores"][search].values()))))
            for e in evaluations
            if search in e["scores"]
        ]
        if means:
            dev.plot(*zip(*means, strict=True), marker="o", label=search)
    for axes, title in (
        (loss, "loss"),
        (right, "in-batch accuracy"),
        (sparsity, "query sparsity"),
        (dev, "dev nDCG@10"),
    ):
        axes.set_title(title)
        axes.set_xlabel("optimizer step")
        if axes.has_data():
            axes.legend()
    figure.savefig(picture)


def _curve(axes: Any, lines: Sequence[dict[str, Any]], key: str, label: str) -> None:
    points = [(line["step"], line[key]) for line in lines if key in line]
    if not points:
        return
    places, values = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    window = min(_WINDOW, len(values))
    smooth = np.convolve(values, np.ones(window) / window, mode="valid")
    axes.plot(places[window - 1 :], smooth, label=label)
