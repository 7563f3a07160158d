"""Choosing between settings by held-out rows, with a preference for the usual one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

#: How much more probable held-out labels must be for anything but the usual setting, in nats.
_PREFERENCE = 2.0

SettingT = TypeVar("SettingT")


def select(scores: Mapping[SettingT, float], usual: SettingT) -> SettingT:
    """The setting with the best log-likelihood of held-out rows, if that clearly beats the usual one's.

    Args:
        scores: Log-likelihood of all held-out rows together, by setting.
        usual: What is used unless another is clearly better.

    Example:
        >>> select({"usual": -10.0, "other": -9.0}, "usual"), select({"usual": -10.0, "other": -5.0}, "usual")
        ('usual', 'other')
    """
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] > scores[usual] + _PREFERENCE else usual
