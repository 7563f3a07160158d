"""What a fitted stack tells of itself: who speaks, and which columns count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gdkl.nets import ColumnScale, Members, scales_columns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from gdkl.inputs import FloatArray, TableInput
    from gdkl.training import Stack


def stack_relevance(
    stack: Stack, table: TableInput, columns: NDArray[np.object_] | None
) -> FloatArray | pd.DataFrame | None:
    """The guides' relevances, their geometric mean by weight: one number per column of X, 0 for a constant one.

    Those of the student where it is alone. A DataFrame where ``columns`` names them; None where there are none.
    """
    import pandas as pd  # noqa: PLC0415  (slow to import)

    weighted = list(zip((model.embed for model in stack.models.values()), stack.weights, strict=True))
    found = [
        (float(weight.mean()), np.log(embed.template.factors.double().cpu().numpy()))
        for embed, weight in weighted
        if isinstance(embed, Members) and isinstance(embed.template, ColumnScale)
    ]
    embed = weighted[0][0]
    if len(weighted) == 1 and isinstance(embed, Members) and scales_columns(embed.template):
        # Relevances are the first buffer, a row for each of several members.
        factors = next(embed.buffers()).double().cpu().numpy().reshape(embed.count, -1)
        found = [(1.0, np.log(factors).mean(axis=0))]
    total = sum(weight for weight, _ in found)
    if not total:
        return None
    relevance = np.zeros(len(table.names))
    relevance[table.groups] = np.exp(sum(weight * logs for weight, logs in found) / total)
    return relevance if columns is None else pd.DataFrame({"relevance": relevance}, index=columns)
