#!/usr/bin/env python3
"""Lets the server import an ONNX model, runs it on an input, and compares with what is expected.

Usage: import_onnx.py [ADDRESS]
"""

import os
import sys

import numpy as np

import telegrad

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "data",
                    "onnx", "mnist_8")


def read_tensor(path: str) -> np.ndarray:
    """A float tensor of an ONNX test: protobuf with dims (field 1) and raw data (field 9)."""
    with open(path, "rb") as file:
        data = file.read()
    dims, values, at = [], b"", 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 0x7F) << shift
            shift += 7
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        tag, value = number(), number()
        if tag == 1 << 3:
            dims.append(value)
        elif tag & 7 == 2:
            values = data[at:at + value] if tag >> 3 == 9 else values
            at += value
    return np.frombuffer(values, np.float32).reshape(dims)


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else None
    with telegrad.connect(address) as connection, connection.session() as session:
        model = session.import_model(os.path.join(DATA, "model.onnx"))
        print(model)
        worst = 0.0
        for i in range(3):
            files = os.path.join(DATA, f"test_data_set_{i}")
            image = read_tensor(os.path.join(files, "input_0.pb"))
            expected = read_tensor(os.path.join(files, "output_0.pb"))
            scores, = model({model.names("input")[0]: image}).values()
            print(f"image {i} shows a {scores.argmax()}")
            worst = max(worst, float(np.abs(scores - expected).max()))
        print(f"the largest difference from what is expected is {worst:.1e}")


if __name__ == "__main__":
    main()
