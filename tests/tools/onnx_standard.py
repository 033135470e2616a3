#!/usr/bin/env python3
"""Prints engine/frontend/onnx/standard.def: what the ONNX standard says of each operator's versions, attributes and
types, as facts from the package "onnx" (PyPI, Apache-2.0), which this needs.

Usage: onnx_standard.py > engine/frontend/onnx/standard.def
"""

import sys

SHORT = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16",
         "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
         "bool": "bool", "string": "string", "int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2",
         "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
         "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0", "float4e2m1": "f4e2m1"}


def types_of(schema):
    """Element types that the latest version's first input (or result) may have, those of numbers first."""
    formal = list(schema.inputs) or list(schema.outputs)
    found = set()
    for text in formal[0].types if formal else ():
        inner = text.replace("seq(", "").replace("optional(", "").replace("tensor(", "").rstrip(")")
        if inner in SHORT:
            found.add(SHORT[inner])
    return " ".join(t for t in SHORT.values() if t in found)


def main():
    try:
        from onnx import defs
    except ImportError:
        sys.exit("onnx_standard.py: needs the package onnx (pip install onnx)")
    rows = {}
    for schema in defs.get_all_schemas_with_history():
        name = schema.name if schema.domain in ("", "ai.onnx") else f"{schema.domain}.{schema.name}"
        row = rows.setdefault(name, {"versions": set(), "attributes": set(), "latest": schema})
        row["versions"].add(schema.since_version)
        row["attributes"].update(schema.attributes)
        if schema.since_version >= row["latest"].since_version:
            row["latest"] = schema
    print("// What the ONNX standard says of each operator: STANDARD(name, versions that changed it, attributes of all")
    print("// versions, element types of its first input in the last one). Facts of onnx.defs of the ONNX project")
    print(f"// (Apache-2.0), opset {defs.onnx_opset_version()}; printed by tests/tools/onnx_standard.py.")
    for name in sorted(rows):
        row = rows[name]
        versions = " ".join(str(v) for v in sorted(row["versions"]))
        attributes = " ".join(sorted(row["attributes"]))
        print(f'STANDARD("{name}", "{versions}", "{attributes}", "{types_of(row["latest"])}")')


if __name__ == "__main__":
    main()
