"""``gdkl export``: a model file in, an ONNX file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gdkl.cli.answers import AsJson, print_json, size_of
from gdkl.cli.failures import say
from gdkl.cli.predict import ModelPath
from gdkl.cli.table_writing import check_output
from gdkl.numerics import OptionError


def export(
    model_path: ModelPath,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE.onnx", help="The ONNX file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as an ONNX file, which other programs run without this library.

    Inputs are the columns of the table by name: numbers in double precision, NaN where they are missing; categories
    as text, empty where they are missing. Outputs are mean and std of a number, label and probabilities of classes.
    Needs: pip install 'gdkl[onnx]'.
    """
    if not output.lower().endswith(".onnx"):
        raise OptionError(f"{output} does not end with .onnx, the only format there is: give another name with -o.")
    check_output(output)
    from gdkl.cli.table_model import TableModel  # noqa: PLC0415  (models take seconds to import)

    model = TableModel(model_path)
    model.require_table()
    model.estimator.to_onnx(output)
    size, inputs = Path(output).stat().st_size, ["X"] if model.needed is None else model.needed
    if as_json:
        print_json({"output": output, "bytes": size, "inputs": inputs})
        return
    say(f"{output}: {size_of(size)}, {len(inputs)} input{'s' if len(inputs) > 1 else ''} ({', '.join(inputs)}).")
