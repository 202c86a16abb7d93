"""Executes notebooks and writes their outputs back, without times: `python notebooks/refresh.py [01 ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(path: Path) -> None:
    """Execute one notebook in its folder and replace it."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(HERE)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, resources=resources).execute()
    notebook.metadata = nbformat.from_dict(KERNEL)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with printed text in one piece, however it arrived."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        before = kept[-1] if kept else None
        if output.output_type == "stream" and before is not None and before.get("name") == output.name:
            before.text += output.text
        else:
            kept.append(output)
    return kept


def main() -> None:
    """Refresh the notebooks whose names start with one of the arguments, or all."""
    wanted = tuple(sys.argv[1:]) or ("",)
    for path in sorted(HERE.glob("*.ipynb")):
        if path.name.startswith(wanted):
            print(path.name, flush=True)
            refresh(path)


if __name__ == "__main__":
    main()
