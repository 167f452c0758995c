"""Run the cells of docs/tour.ipynb and keep their outputs in it, as a notebook server would; needs none.

python scripts/run_tour.py [NOTEBOOK]
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOUR = ROOT / "docs" / "tour.ipynb"


def run(notebook: dict[str, Any]) -> None:
    """Replace the outputs of all cells of code. An error in a cell ends it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = outputs("".join(cell["source"]), names, count)


def outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The printed text, the open figures, and the value of a last expression."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    tree.body = tree.body[:-1] if last else tree.body
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    cell_outputs: list[dict[str, Any]] = []
    if text := out.getvalue():
        cell_outputs.append(
            {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
        )
    cell_outputs += [
        {"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}}
        for picture in pictures()
    ]
    if value is not None:
        shown = {"text/plain": repr(value).splitlines(keepends=True)}
        cell_outputs.append(
            {"output_type": "execute_result", "execution_count": count, "data": shown, "metadata": {}}
        )
    return cell_outputs


def pictures() -> list[str]:
    """The open figures as PNG, in base64; they are closed."""
    import matplotlib.pyplot as plt

    images = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(
            file, format="png", dpi=72, bbox_inches="tight", metadata={"Software": None}
        )
        images.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return images


def main(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"MPLBACKEND": "agg", "PHYSML_RESULTS": folder, "COLUMNS": "80"}
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        run(notebook)
        text = json.dumps(notebook, indent=1, ensure_ascii=False).replace(folder, "results")
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else TOUR)
