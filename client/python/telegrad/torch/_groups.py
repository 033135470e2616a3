"""ATen's operators on groups of rows, as mixtures of experts use them: histograms, and products of each group with its
own matrix."""

from __future__ import annotations

from telegrad import Tensor
from telegrad.torch._table import Call, Unsupported, aten


@aten("histc")
def histc(c: Call, x: Tensor, bins: int = 100, low: float = 0, high: float = 0, *, min: float | None = None,
          max: float | None = None) -> Tensor:
    """Counts of `bins` equal parts of [low, high], whose last part has its upper end; all else is not counted."""
    low, high = low if min is None else min, high if max is None else max
    values = x.flatten()
    if low == high:
        raise Unsupported("histc whose range is that of the values; give its min and max")
    inside = (values >= low) & (values <= high)
    part = ((values - low) * bins / (high - low)).cast("i64")
    part = (part < bins).where(part, bins - 1)
    place = inside.where(part, c.tensor(bins).cast("i64").broadcast_to(part.shape))  # out of range: skipped
    ones = c.tensor(1).broadcast_to(place.shape)
    return c.tensor(0).broadcast_to((bins,)).contiguous().scatter(place, ones, "add")


@aten("_grouped_mm", "transformers.grouped_mm_fallback.default")
def grouped_mm(c: Call, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
               out_dtype: object = None) -> Tensor:
    """Rows of `a` (T, K) in groups that end at `offs` (G,), each with its matrix of `b` (G, K, N): (T, N). Rows behind the
    last group are 0."""
    if offs is None:
        return a @ b
    if a.ndim != 2 or b.ndim != 3:
        raise Unsupported("_grouped_mm of two-dimensional matrices that are both split, or of groups of columns")
    groups, rows = b.shape[0], a.shape[0]
    row = c.graph.arange(rows).cast("i64").reshape(rows, 1)
    group = (offs.cast("i64").reshape(1, groups) <= row).cast("i64").sum(1)
    product = (a.reshape(rows, a.shape[1], 1) * b[group.minimum(groups - 1)]).sum(1)
    result = c.tensor((group < groups).reshape(rows, 1).where(product, 0))
    return result if bias is None else result + bias
