"""What a user passes, as arrays and back: tables, images, targets and labels, checked and scaled."""

from gdkl.inputs.checks import MIN_ROWS, FloatArray, as_frame, check_labels, check_row_count, check_rows, check_targets
from gdkl.inputs.encoding import ColumnCode, TableEncoder
from gdkl.inputs.images import ImageInput, is_image_batch, refuse_channels_last
from gdkl.inputs.tables import ColumnMoments, TableInput, is_long_table, row_parts
from gdkl.inputs.targets import TargetScaler
from gdkl.inputs.warp import (
    LinearTails,
    LogWarp,
    Warp,
    YeoJohnson,
    candidate_warps,
    check_warp_option,
    joint_warp,
    warp_from_spec,
)

__all__ = [
    "MIN_ROWS",
    "ColumnCode",
    "ColumnMoments",
    "FloatArray",
    "ImageInput",
    "LinearTails",
    "LogWarp",
    "TableEncoder",
    "TableInput",
    "TargetScaler",
    "Warp",
    "YeoJohnson",
    "as_frame",
    "candidate_warps",
    "check_labels",
    "check_row_count",
    "check_rows",
    "check_targets",
    "check_warp_option",
    "is_image_batch",
    "is_long_table",
    "joint_warp",
    "refuse_channels_last",
    "row_parts",
    "warp_from_spec",
]
