// The operators here against what the standard has: docs/onnx.md is made of both (BLESS=1 writes
// it), and every attribute of an operator that is imported is one that some operator's function
// reads or says it may ignore.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

struct Standard {
  std::string_view name, versions, attributes, types;
};
constexpr Standard kStandard[] = {
#define STANDARD(name, versions, attributes, types) {name, versions, attributes, types},
#include "engine/frontend/onnx/standard.def"
#undef STANDARD
};

// What others have, in the same order.
struct Peers {
  std::string_view name;
  bool runtime, tinygrad;
};
constexpr Peers kPeers[] = {
#define PEER(name, runtime, tinygrad) {name, runtime, tinygrad},
#include "engine/frontend/onnx/peers.def"
#undef PEER
};
static_assert(std::size(kPeers) == std::size(kStandard));

constexpr char kFolder[] = "engine/frontend/onnx/";
constexpr char kDocument[] = "docs/onnx.md";

std::string Text(const std::string& path) {
  const auto file = ReadFile(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.value_or("");
}

bool IsImported(std::string_view name) {
  return std::ranges::find(AllOperators(), name, &Operator::name) != AllOperators().end();
}

bool TakesRunSizes(std::string_view name) {
  const auto row = std::ranges::find(AllOperators(), name, &Operator::name);
  return row != AllOperators().end() && row->run_sizes;
}

std::string Document() {
  std::string out = R"(# ONNX operators

This page lists the ONNX operators that Telegrad imports. It is generated from `engine/frontend/onnx/operators.cc` and
`engine/frontend/onnx/standard.def` (`BLESS=1 frontend_onnx_test` writes it), and a test compares it.

Opsets )";
  StrAppend(&out, kMinOpset, " to ", kMaxOpset,
            R"( are supported; an operator has the semantics of the version that the model's
opset selects. A model with unsupported nodes is refused before anything runs, with a list of all of them;
`telegrad check model.onnx` prints the list.

Shapes that depend on values (NonZero, Unique, Compress, NonMaxSuppression, TopK and Slice with numbers that are inputs, an
If whose branches differ in size) are found by each run: a result has storage for its largest size, and a part of the
graph computes how much of it is used. Operators that accept such a result are marked with an S; the unused rest is cut off
when the result is read. In other cases (the shape of Reshape, the condition and the number of rounds of a Loop, an operator
without an S) the shape or branch is computed when the model is imported, from constants and from the values of inputs that
the caller gives, as `telegrad run` does. For other values of those inputs the model is imported again. The column of
element types has those that the standard lists for the first input; an unsupported combination is refused with an error.

RNN, LSTM and GRU become up to 4,096 steps one after the other, Scan and Loop up to 65,536 rounds. Steps
that differ only in the rows that they read are the same kernels, which are compiled once, so that the time to load grows
slowly with the steps. Where the run decides how many steps or sequences there are, a recurrence computes as many as there
may be. Sums of products of 8-bit integers are exact. They use instructions for products of bytes on
processors that have them, or f32 where that is exact ([schedule.md](schedule.md#sums-of-products-of-bytes)). Products of
what DequantizeLinear gives use these instructions, too: the scales are multiplied with the sum, except with `--deterministic`.
Quotients by a scale that is an initializer are computed by products, with the same bits; QLinearConv, QLinearMatMul and QLinearAdd scale in
f32. A bias of integers is dequantized at import, and zero points that are zeros are not subtracted. A convolution leaves out
products of padding where most are, as of large dilations: an infinite weight gives no NaN there.

Where other implementations of the standard differ from each other, `tests/onnx/differences.md` states what Telegrad does and
why. Maps are not supported: CastMap and DictVectorizer are refused, and the result of ZipMap is the tensor of the scores, in
the order of the labels. ImageDecoder, like the string operators, runs on the host while the model is imported. It decodes
BMP, PNM and TIFF, and JPEG, PNG, WebP and JPEG 2000 if the program was built with their libraries. Bytes that are not an
image give an empty one, as the standard requires; an image of more than 2^26 pixels is refused. Gradient differentiates at
the values that the names in its attributes have in the graph; other inputs are refused.

The columns state whether an operator accepts results whose size the run decides (S), and whether the CPU provider of ONNX
Runtime 1.32 (R) and tinygrad 0.14 (T) have it.

| Operator | Versions | Sizes | Also in | Element types |
|---|---|---|---|---|
)");
  int imported = 0, runtime = 0, tinygrad = 0;
  std::string missing, own;
  for (size_t i = 0; i < std::size(kStandard); ++i) {
    const Standard& row = kStandard[i];
    const Peers& peers = kPeers[i];
    EXPECT_EQ(row.name, peers.name) << "run tests/tools/onnx_peers.py";
    runtime += peers.runtime;
    tinygrad += peers.tinygrad;
    if (!IsImported(row.name)) {
      StrAppend(&missing, missing.empty() ? "" : ", ", "`", row.name, "`");
      continue;
    }
    ++imported;
    const std::string_view also[] = {"-", "T", "R", "R T"};
    StrAppend(&out, "| `", row.name, "` | ", row.versions, " | ",
              TakesRunSizes(row.name) ? "S" : "-", " | ",
              also[2 * (peers.runtime ? 1 : 0) + (peers.tinygrad ? 1 : 0)], " | ", row.types,
              " |\n");
  }
  for (const Operator& row : AllOperators()) {
    if (std::ranges::find(kStandard, row.name, &Standard::name) != std::end(kStandard)) continue;
    StrAppend(&own, own.empty() ? "" : ", ", "`", row.name, "`");
  }
  StrAppend(&out, "\n", imported, " of the standard's ", std::size(kStandard),
            " operators; ONNX Runtime has ", runtime, " and tinygrad ", tinygrad,
            ". Not supported: ", missing, ".\n");
  if (!own.empty()) StrAppend(&out, "\nBeyond the standard: ", own, ".\n");
  return out;
}

TEST(StandardTable, TheDocumentIsUpToDate) {
  const std::string want = Document();
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(kDocument, want).ok());
  }
  EXPECT_EQ(Text(kDocument), want) << "run with BLESS=1";
}

TEST(StandardTable, EveryAttributeIsReadSomewhere) {
  std::string sources;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".cc") && !path.ends_with("_test.cc")) sources += Text(path);
  }
  for (const Standard& row : kStandard) {
    // ai.onnx.ml's functions compose names of attributes ("keys_" and a type); what they do not
    // read is refused when a node has it.
    if (!IsImported(row.name) || row.name.starts_with("ai.onnx.ml.")) continue;
    const std::vector<std::string> attributes = absl::StrSplit(
        absl::string_view(row.attributes.data(), row.attributes.size()), ' ', absl::SkipEmpty());
    for (const std::string& attribute : attributes) {
      EXPECT_NE(sources.find(StrCat("\"", attribute, "\"")), std::string::npos)
          << row.name << " has the attribute " << attribute << ", which nothing reads";
    }
  }
}

TEST(StandardTable, DocumentedOperatorsAreFoundByDomain) {
  EXPECT_NE(FindOperator("", "Add"), nullptr);
  EXPECT_EQ(FindOperator("ai.onnx", "Add"), FindOperator("", "Add"));
  EXPECT_EQ(FindOperator("my.domain", "Add"), nullptr);
}

}  // namespace
}  // namespace telegrad::onnx
