// Graphs to messages and back: round trips, merging of equal nodes, errors by the client's
// index, and random damage.
#include "engine/wire/graph_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "engine/base/strings.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

// Every argument kind that travels, on values with edges.
constexpr std::string_view kText = R"(
%0 = param f32 [2, 3] slot=0
%1 = const f32 -0
%2 = add f32 [2, 3] %0 %1
%3 = const f32 nan
%4 = max f32 [2, 3] %2 %3
%5 = permute f32 [3, 2] %4 axes=[1, 0]
%6 = pad f32 [5, 2] %5 pairs=[1, 5, 0, 2]
%7 = shrink f32 [2, 2] %6 pairs=[0, 2, 0, 2]
%8 = flip f32 [2, 2] %7 axes=[0]
%9 = reduce f32 [1, 2] %8 kind=max axes=[0]
%10 = reshape f32 [2] %9
%11 = param u64 [2] slot=7
%12 = const u64 18446744073709551615
%13 = and u64 [2] %11 %12
%14 = gather f32 [2] %10 %13
%15 = param f32 [2] slot=1
%16 = store %15 %14
%17 = after f32 [2] %15 %16
%18 = iota i32 [2]
%19 = cast f32 [2] %18
%20 = mul f32 [2] %17 %19
%21 = store %17 %20
%22 = sink %16 %21
)";

// Functions, devices, variables and symbolic sizes.
constexpr std::string_view kWideText = R"(
%0 = param f16 [4, 8] slot=0
%1 = param f16 [4, 8] slot=1 device=3
%2 = mstack f16 [4, 8] %0 %1
%3 = allreduce f16 [4, 8] %2 kind=max
%4 = unshard f16 [4, 16] %3 axes=[1]
%5 = mselect f16 [4, 16] %4 n=0
%6 = var i64 id=2 min=-8 max=8 multiple=8
%7 = const i64 8
%8 = add i64 %6 %7
%9 = shrink f16 [4, 16] %5 %8 pairs=[0, 4, 0, -2]
%10 = arg f16 [1, 1] slot=1
%11 = arg i64 slot=0
%12 = cast f16 %11
%13 = add f16 [1, 1] %10 %12
%14 = tuple %13
%15 = reduce f16 [1, 1] %9 kind=add axes=[0, 1]
%16 = loop %14 %8 %15
%17 = gettuple f16 [1, 1] %16 n=0
%18 = copy f16 [1, 1] %17 devices=[3]
%19 = bitcast u8 [1, 2] %18
%21 = param u8 [4, 2] slot=2 device=3
%22 = const i64 3
%24 = reshape u8 [2] %19
%23 = scatter u8 [4, 2] %21 %22 %24 kind=max
%25 = store %21 %23
%26 = sink %25
)";

UOp ParseOrDie(std::string_view text, Graph* graph) {
  absl::StatusOr<UOp> root = Parse(text, graph);
  EXPECT_TRUE(root.ok()) << root.status();
  return root.value_or(UOp());
}

class GraphCodecText : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Texts, GraphCodecText, ::testing::Values(kText, kWideText));

TEST_P(GraphCodecText, RoundTrip) {
  Graph graph;
  const UOp root = ParseOrDie(GetParam(), &graph);
  ASSERT_TRUE(root.valid());
  v1::Graph proto;
  ToProto(root, &proto);
  v1::Graph reread;
  ASSERT_TRUE(reread.ParseFromString(proto.SerializeAsString()));
  Budget budget;
  const auto back = FromProto(reread, &budget);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Print(back->root()), Print(root));
  EXPECT_EQ(ContentHash(back->root()), ContentHash(root));
}

TEST(GraphCodec, DropsWhatTheRootDoesNotNeed) {
  Graph graph;
  const UOp root = ParseOrDie(kText, &graph);
  v1::Graph proto;
  ToProto(root, &proto);
  v1::Node* extra = proto.add_nodes();
  extra->set_op(Info(Op::kConst).wire);
  extra->set_dtype(Info(DType::kFloat32).wire);
  extra->set_real(1234);
  Budget budget;
  const auto back = FromProto(proto, &budget);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Print(back->root()), Print(root));
}

TEST(GraphCodec, EqualNodesAreOne) {
  Graph graph;
  const UOp root = ParseOrDie(kText, &graph);
  v1::Graph once, twice;
  ToProto(root, &once);
  // Every node sent a second time, after itself.
  twice.set_form(once.form());
  for (const v1::Node& node : once.nodes()) {
    v1::Node copy = node;
    for (int i = 0; i < copy.src_size(); ++i) copy.set_src(i, 2 * copy.src(i) + i % 2);
    *twice.add_nodes() = copy;
    *twice.add_nodes() = copy;
  }
  twice.set_root(2 * once.root() + 1);
  Budget budget;
  const auto back = FromProto(twice, &budget);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ContentHash(back->root()), ContentHash(root));
}

// The verifier's errors name the client's own node numbers.
TEST(GraphCodec, VerifierErrorsUseTheClientsIndex) {
  Graph graph;
  const UOp root = ParseOrDie(R"(
    %0 = param f32 [2] slot=0
    %1 = neg f32 [2] %0
    %2 = store %1 %0
    %3 = sink %2
  )",
                              &graph);
  v1::Graph proto, shifted;
  ToProto(root, &proto);
  shifted.set_form(proto.form());
  for (int i = 0; i < 10; ++i) {
    v1::Node* unused = shifted.add_nodes();
    unused->set_op(Info(Op::kConst).wire);
    unused->set_dtype(Info(DType::kInt32).wire);
    unused->add_arg(i);
  }
  for (v1::Node node : proto.nodes()) {
    for (int i = 0; i < node.src_size(); ++i) node.set_src(i, node.src(i) + 10);
    *shifted.add_nodes() = node;
  }
  shifted.set_root(proto.root() + 10);
  Budget budget;
  const absl::Status status = FromProto(shifted, &budget).status();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("node 12 (store)"));
}

// The graph of docs/wire.md is what it says.
TEST(GraphCodec, TheDocumentsExample) {
  std::ifstream file("docs/wire.md");
  ASSERT_TRUE(file.is_open()) << "run it from the root of the project";
  std::string line, text;
  while (std::getline(file, line)) {
    if (line.starts_with("       form:") || line.starts_with("       nodes")) text += line + "\n";
    if (line.starts_with("       root:")) text += line.substr(0, line.find('}'));
  }
  v1::Graph proto;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  Budget budget;
  const auto graph = FromProto(proto, &budget);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(graph->root()), R"(%0 = param f32 [4] slot=1
%1 = param f32 [4] slot=0
%2 = const f32 1
%3 = add f32 [4] %1 %2
%4 = store %0 %3
%5 = sink %4
)");
}

// Random damage to single fields: a graph or an error, and every admitted graph survives a round
// trip.
TEST(GraphCodec, RandomDamage) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(telegrad::StrCat("seed ", seed));
  std::mt19937 random(seed);
  Graph graph;
  const UOp root = ParseOrDie(kText, &graph);
  v1::Graph good;
  ToProto(root, &good);
  const std::string bytes = good.SerializeAsString();
  int admitted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = bytes;
    for (int n = 1 + random() % 3; n > 0; --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    v1::Graph proto;
    if (!proto.ParseFromString(damaged)) continue;
    Budget budget;
    const auto back = FromProto(proto, &budget);
    if (!back.ok()) {
      EXPECT_TRUE(back.status().code() == absl::StatusCode::kInvalidArgument ||
                  back.status().code() == absl::StatusCode::kResourceExhausted)
          << back.status();
      continue;
    }
    ++admitted;
    v1::Graph again;
    ToProto(back->root(), &again);
    Budget second;
    const auto twice = FromProto(again, &second);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_EQ(ContentHash(twice->root()), ContentHash(back->root()));
  }
  EXPECT_GT(admitted, 0);
}

// What takes many times its bytes once it is parsed is counted before.
TEST(GraphBytesTest, PartsAreCountedBeforeTheyAreMade) {
  std::string nodes;
  for (int i = 0; i < 2000; ++i) nodes += std::string("\x12\0", 2);  // a node of nothing
  Budget::Limits limits;
  limits.nodes = 1000;
  Budget budget(limits);
  const absl::Status many = GraphFromBytes(nodes, &budget).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kResourceExhausted) << many;
  EXPECT_THAT(std::string(many.message()), ::testing::HasSubstr("more than 1000 nodes"));
  std::string unknown;
  for (int i = 0; i < 2000; ++i) unknown += std::string("\x78\x01", 2);  // field 15
  Budget fresh;
  for (const std::string& bytes : {unknown, StrCat("\x12\xa0\x1f", unknown)}) {
    const absl::Status status = GraphFromBytes(bytes, &fresh).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("the last is field 15"));
  }
  limits = {};
  limits.bytes = 1000;
  Budget poor(limits);
  EXPECT_EQ(GraphFromBytes(std::string(200, '\0'), &poor).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace telegrad
