// The tables: what must be unique is unique, and the lookups invert each other.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/ir/op.h"
#include "engine/types/arithmetic.h"
#include "engine/types/dtype.h"

namespace telegrad {
namespace {

TEST(OpTable, NamesAndWireNumbersAreUnique) {
  std::set<std::string> names;
  std::set<int> wires;
  ASSERT_EQ(AllOps().size(), static_cast<size_t>(kNumOps));
  for (size_t i = 0; i < AllOps().size(); ++i) {
    const OpInfo& row = AllOps()[i];
    const std::string name(row.name);
    EXPECT_EQ(static_cast<size_t>(row.op), i);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(wires.insert(row.wire).second) << name << " " << row.wire;
    EXPECT_GT(row.wire, 0) << name;
    EXPECT_EQ(OpFromName(row.name), row.op);
    EXPECT_EQ(OpFromWire(row.wire), row.op);
  }
  EXPECT_EQ(OpFromName("no such op"), std::nullopt);
  EXPECT_EQ(OpFromWire(0), std::nullopt);
  EXPECT_EQ(OpFromWire(-1), std::nullopt);
}

TEST(OpTable, RowsMakeSense) {
  for (const OpInfo& row : AllOps()) {
    const std::string name(row.name);
    EXPECT_TRUE(row.max_src < 0 || row.max_src >= row.min_src) << name;
    EXPECT_NE(row.levels, 0) << name;
    EXPECT_FALSE(row.doc.empty()) << name;
    if (Is(row.op, kCommutes)) {
      EXPECT_EQ(row.max_src, 2) << name;
    }
    if (Is(row.op, kAssociates)) {
      EXPECT_TRUE(Is(row.op, kCommutes)) << name;
    }
    EXPECT_EQ(Is(row.op, kEffect) || Is(row.op, kTupleValue), row.type_rule == TypeRule::kVoid)
        << name;
    EXPECT_EQ(Is(row.op, kAlu), row.shape_rule == ShapeRule::kElementwise ||
                                    row.shape_rule == ShapeRule::kBitcastShape)
        << name;
  }
}

// So that a device has a place for what each of its instructions does in a second.
TEST(MmaTable, EachInstructionHasAKindOfArithmetic) {
  for (const MmaInfo& info : AllMmas()) {
    EXPECT_EQ(info.a, info.b) << info.name;
    EXPECT_TRUE(MatrixArithmetic(info.a).has_value()) << info.name;
  }
}

TEST(DTypeTable, NamesAndNumbersAreUnique) {
  std::set<std::string> texts, numpys, safetensors;
  std::set<int> wires, onnx;
  ASSERT_EQ(AllDTypes()[0].dtype, DType::kVoid);
  for (size_t i = 0; i < AllDTypes().size(); ++i) {
    const DTypeInfo& row = AllDTypes()[i];
    const std::string text(row.text);
    EXPECT_EQ(static_cast<size_t>(row.dtype), i);
    EXPECT_TRUE(texts.insert(text).second) << text;
    EXPECT_TRUE(wires.insert(row.wire).second) << text;
    EXPECT_TRUE(row.numpy.empty() || numpys.insert(std::string(row.numpy)).second) << text;
    EXPECT_TRUE(onnx.insert(row.onnx).second) << text;
    EXPECT_TRUE(row.safetensors.empty() || safetensors.insert(std::string(row.safetensors)).second)
        << text;
    EXPECT_EQ(row.kind == DTypeKind::kFloat, row.specials != FloatSpecials::kNotFloat) << text;
    if (i == 0) continue;
    EXPECT_EQ(row.bits % 8 != 0, IsPacked(row.dtype)) << text;
    EXPECT_TRUE(!IsPacked(row.dtype) || 8 % row.bits == 0) << text;
    if (IsFloat(row.dtype)) {
      const int sign = row.specials == FloatSpecials::kPowersOfTwo ? 0 : 1;
      EXPECT_EQ(row.bits, sign + row.exponent_bits + row.mantissa_bits) << text;
    }
    EXPECT_EQ(DTypeFromText(row.text), row.dtype);
    EXPECT_EQ(DTypeFromWire(row.wire), row.dtype);
    if (!row.numpy.empty()) {
      EXPECT_EQ(DTypeFromNumpy(row.numpy), row.dtype);
    }
    EXPECT_EQ(DTypeFromOnnx(row.onnx), row.dtype);
    if (!row.safetensors.empty()) {
      EXPECT_EQ(DTypeFromSafetensors(row.safetensors), row.dtype);
    }
  }
  // The void row is nobody's answer.
  EXPECT_EQ(DTypeFromText("void"), std::nullopt);
  EXPECT_EQ(DTypeFromWire(0), std::nullopt);
  EXPECT_EQ(DTypeFromNumpy(""), std::nullopt);
  EXPECT_EQ(DTypeFromOnnx(0), std::nullopt);
}

}  // namespace
}  // namespace telegrad
