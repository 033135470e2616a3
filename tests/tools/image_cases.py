#!/usr/bin/env python3
"""Writes the images of tests/fuzz/corpus/image with Pillow, and what they have into tests/data/images.

  image_cases.py tests/fuzz/corpus/image tests/data/images

Needs the packages pillow and numpy. What a file has is what Pillow reads of it, as RGB; where Pillow's own conversion
differs from what engine/frontend/image/image.h says (transparency is left out, of 16 bits the highest 8 are kept, inks
are multiplied), it is computed here.
"""

import io
import os
import sys

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 19, 13


def picture():
    """A gradient with noise and an edge."""
    noise = np.random.RandomState(7).randint(0, 40, size=(HEIGHT, WIDTH, 4))
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    out = np.stack([x * 11, y * 16, (x + y) * 6, 255 - x * 9], axis=2) + noise
    out[4:9, 6:14] = [230, 40, 90, 128]
    return np.clip(out, 0, 255).astype(np.uint8)


def seen(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    pixels = np.array(image)
    if image.mode in ("RGBA", "LA"):
        pixels = pixels[..., :-1]
    if image.mode.startswith("I;16") or image.mode == "I":
        pixels = (pixels.astype(np.int64) >> 8).astype(np.uint8)
    elif image.mode == "CMYK":  # Pillow gives how much of an ink there is
        inks = 255 - pixels.astype(np.int64)
        pixels = (inks[..., :3] * inks[..., 3:] // 255).astype(np.uint8)
    elif image.mode in ("P", "1", "YCbCr"):
        pixels = np.array(image.convert("RGB"))
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def cases():
    rgba = picture()
    color, gray = Image.fromarray(rgba[..., :3]), Image.fromarray(rgba[..., 0])
    alpha, inks = Image.fromarray(rgba), Image.fromarray(rgba, mode="CMYK")
    palette, bits = color.quantize(13), gray.point(lambda v: 255 * (v > 99)).convert("1")
    deep = Image.fromarray(rgba[..., 0].astype(np.uint16) * 256 + rgba[..., 1])
    gray_alpha = Image.merge("LA", [gray, alpha.getchannel("A")])
    for name, image in {"rgb": color, "gray": gray, "palette": palette, "bits": bits, "rgba": alpha}.items():
        yield f"{name}.bmp", image, {}
    for name, image in {"rgb": color, "gray": gray, "palette": palette, "bits": bits, "rgba": alpha,
                        "gray_alpha": gray_alpha, "deep": deep}.items():
        yield f"{name}.png", image, {}
    for name, options in {"444": {"subsampling": 0}, "422": {"subsampling": 1}, "420": {"subsampling": 2},
                          "progressive": {"subsampling": 2, "progressive": True},
                          "restarts": {"restart_marker_blocks": 1}}.items():
        yield f"{name}.jpg", color, {"quality": 85} | options
    yield "gray.jpg", gray, {}
    yield "cmyk.jpg", inks, {}
    yield "lossy.webp", color, {"quality": 70}
    yield "lossless.webp", color, {"lossless": True}
    yield "alpha.webp", alpha, {"lossless": True, "exact": True}
    for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits"):
        yield f"{name}.tif", color, {"compression": name, "tiffinfo": {278: 5}}
    yield "differences.tif", color, {"compression": "tiff_lzw", "tiffinfo": {317: 2}}
    yield "deep_differences.tif", deep, {"compression": "tiff_adobe_deflate", "tiffinfo": {317: 2}}
    for name, image in {"gray": gray, "palette": palette, "bits": bits, "rgba": alpha, "deep": deep, "cmyk": inks}.items():
        yield f"{name}.tif", image, {}
    yield "rgb.jp2", color, {}
    yield "gray.jp2", gray, {}
    yield "rgba.jp2", alpha, {}
    yield "bare.j2k", color, {"no_jp2": True}
    yield "rgb.ppm", color, {}
    yield "gray.pgm", gray, {}
    yield "bits.pbm", bits, {}


FORMATS = {"bmp": "BMP", "png": "PNG", "jpg": "JPEG", "webp": "WEBP", "tif": "TIFF", "jp2": "JPEG2000",
           "j2k": "JPEG2000", "ppm": "PPM", "pgm": "PPM", "pbm": "PPM"}


def main():
    encoded, decoded = sys.argv[1:]
    os.makedirs(encoded, exist_ok=True)
    os.makedirs(decoded, exist_ok=True)
    for name, image, options in cases():
        buffer = io.BytesIO()
        image.save(buffer, format=FORMATS[name.split(".")[1]], **options)
        with open(os.path.join(encoded, name), "wb") as f:
            f.write(buffer.getvalue())
        Image.fromarray(np.ascontiguousarray(seen(buffer.getvalue()))).save(os.path.join(decoded, name + ".ppm"))


if __name__ == "__main__":
    main()
