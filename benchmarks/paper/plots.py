"""Small line plots as SVG files that are equal where the figures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.searchers.base import PeerAbsentError, peer


def draw_curves(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], x_label: str, path: Path) -> None:
    """One panel for each quantity, side by side.

    Args:
        panels: label of the vertical axis -> name of a curve -> its points.
        x_label: of the horizontal axis.
        path: of the SVG file.

    Raises:
        SystemExit: if matplotlib is absent.
    """
    try:
        matplotlib = peer("matplotlib", "matplotlib")
    except PeerAbsentError as error:
        raise SystemExit(f"no plot: {error}") from error
    matplotlib.use("svg")
    # Text stays text, and equal figures give equal files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": path.name})
    pyplot = peer("matplotlib.pyplot", "matplotlib")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.0), squeeze=False)
    for axis, (label, curves) in zip(axes[0], panels.items(), strict=True):
        for name, points in curves.items():
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=name)
        axis.set_xlabel(x_label)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if len(curves) > 1:
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
