"""What a user passes, as arrays and back: tables, images, targets and labels, checked and scaled."""

from gdkl.inputs.checks import MIN_ROWS, FloatArray, check_labels, check_row_count, check_rows, check_targets
from gdkl.inputs.encoding import ColumnCode, TableEncoder
from gdkl.inputs.images import ImageInput, is_image_batch, refuse_channels_last
from gdkl.inputs.tables import ColumnMoments, TableInput, is_long_table, row_parts
from gdkl.inputs.targets import TargetScaler

__all__ = [
    "MIN_ROWS",
    "ColumnCode",
    "ColumnMoments",
    "FloatArray",
    "ImageInput",
    "TableEncoder",
    "TableInput",
    "TargetScaler",
    "check_labels",
    "check_row_count",
    "check_rows",
    "check_targets",
    "is_image_batch",
    "is_long_table",
    "refuse_channels_last",
    "row_parts",
]
