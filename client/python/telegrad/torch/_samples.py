"""The gradients of samples at places of images (grid_sample), as operators that have graphs: a rule for torch's decompositions."""

from __future__ import annotations

from typing import Any, Callable

import torch

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def _places(at, size, pads, corners):
    """Where in an axis of so many pixels the numbers from -1 to 1 are, and how fast they move there."""
    if corners:
        place, rate = (at + 1) * ((size - 1) / 2), torch.full_like(at, (size - 1) / 2)
    else:
        place, rate = ((at + 1) * size - 1) / 2, torch.full_like(at, size / 2)
    if pads == _ZEROS:
        return place, rate
    if pads != _BORDER:  # reflected at the ends
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return torch.zeros_like(place), torch.zeros_like(rate)
        away = place - low
        far = away.abs()
        turns, rest = torch.floor(far / span), torch.fmod(far, span)
        odd = torch.remainder(turns, 2) == 1
        place = torch.where(odd, span - rest, rest) + low
        rate = rate * torch.where(away < 0, -1.0, 1.0) * torch.where(odd, -1.0, 1.0)
    rate = torch.where((place <= 0) | (place >= size - 1), 0.0, rate)
    return place.clamp(0, size - 1), rate


def _grid_sampler_backward(grad, image, grid, mode, pads, corners, mask):
    """grad (N, C, h, w), image (N, C, H, W), grid (N, h, w, 2): the gradients of the image and the grid, those of `mask`."""
    if mode not in (_BILINEAR, _NEAREST):
        return NotImplemented  # 'bicubic': torch runs it
    count, channels, high, wide = image.shape
    x, x_rate = _places(grid[..., 0], wide, pads, corners)
    y, y_rate = _places(grid[..., 1], high, pads, corners)
    left, top = (torch.round(x), torch.round(y)) if mode == _NEAREST else (torch.floor(x), torch.floor(y))
    corners_of = [(0, 0)] if mode == _NEAREST else [(0, 0), (0, 1), (1, 0), (1, 1)]
    flat = image.reshape(count, channels, high * wide)
    by_image = torch.zeros_like(flat)
    by_x, by_y = torch.zeros_like(x), torch.zeros_like(y)
    for down, right in corners_of:
        row, column = top + down, left + right
        inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
        place = (row.clamp(0, high - 1) * wide + column.clamp(0, wide - 1)).to(torch.int64).reshape(count, 1, -1)
        place = place.expand(count, channels, place.shape[-1])
        part_x = 1 - (x - column).abs() if mode == _BILINEAR else torch.ones_like(x)
        part_y = 1 - (y - row).abs() if mode == _BILINEAR else torch.ones_like(y)
        if mask[0]:
            weight = torch.where(inside, part_x * part_y, 0.0).unsqueeze(1)
            by_image = by_image.scatter_add(2, place, (grad * weight).reshape(count, channels, -1))
        if mask[1] and mode == _BILINEAR:
            value = flat.gather(2, place).reshape(grad.shape)
            slope = torch.where(inside, (value * grad).sum(1), 0.0)
            by_x = by_x + slope * part_y * (1.0 if right else -1.0)
            by_y = by_y + slope * part_x * (1.0 if down else -1.0)
    of_grid = torch.stack([by_x * x_rate, by_y * y_rate], -1)
    return by_image.reshape(image.shape) if mask[0] else None, of_grid if mask[1] else None


def rules() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.grid_sampler_2d_backward.default: _grid_sampler_backward}
