"""What a fitted stack tells of itself: who speaks, and which columns count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gdkl.nets import ColumnScale, Members

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from gdkl.inputs import FloatArray, TableInput
    from gdkl.training import Stack


def stack_relevance(
    stack: Stack, table: TableInput, columns: NDArray[np.object_] | None
) -> FloatArray | pd.DataFrame | None:
    """The guides' relevances, their geometric mean by weight: one number per column of X, 0 for a constant one.

    A DataFrame where ``columns`` names them; None where no guide has any.
    """
    import pandas as pd  # noqa: PLC0415  (slow to import)

    found = [
        (float(weight.mean()), np.log(model.embed.template.factors.double().cpu().numpy()))
        for model, weight in zip(stack.models.values(), stack.weights, strict=True)
        if isinstance(model.embed, Members) and isinstance(model.embed.template, ColumnScale)
    ]
    total = sum(weight for weight, _ in found)
    if not total:
        return None
    relevance = np.zeros(len(table.names))
    relevance[table.groups] = np.exp(sum(weight * logs for weight, logs in found) / total)
    return relevance if columns is None else pd.DataFrame({"relevance": relevance}, index=columns)
