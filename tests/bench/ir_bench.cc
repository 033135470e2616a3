// The IR's own speed, on one thread and without a daemon: nodes per second of processor time (what
// else runs on the machine counts only through the caches) of making, interning,
// writing and reading a graph of the usual mix: elementwise ops, movement ops with arguments,
// reductions and constants. Prints a Markdown table, the best and the median of the repeats.
//
// Usage: ir_bench [NODES [REPEATS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/wire/graph_codec.h"
#include "google/protobuf/arena.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad {
namespace {

// Adds at least `nodes` nodes, in which everything after the parameters depends on `salt`.
UOp Build(Graph& g, int64_t nodes, double salt) {
  constexpr DType kF32 = DType::kFloat32, kI32 = DType::kInt32;
  const Shape square{64, 64}, cube{16, 4, 64}, part{4, 32, 4, 32}, whole{16, 64, 16, 64};
  const Shape turn{1, 0}, rows{1}, sum_of_columns{static_cast<int64_t>(ReduceKind::kAdd), 1};
  const UOp weight = g.Param(0, kF32, square);
  UOp x = g.Param(1, kF32, square);
  for (int64_t i = 0; static_cast<int64_t>(g.size()) + 24 < nodes; ++i) {
    const UOp c = g.ConstFloat(kF32, salt + static_cast<double>(i));
    UOp y = g.Make(Op::kAdd, {g.Make(Op::kMul, {x, weight}), c});
    y = g.Make(Op::kMax, {g.Make(Op::kNeg, {y}), c});
    y = g.Make(Op::kReshape, {g.Make(Op::kReshape, {y}, cube)}, square);
    y = g.Make(Op::kPad, {g.Make(Op::kShrink, {y}, part)}, whole);
    y = g.Make(Op::kFlip, {g.Make(Op::kPermute, {y}, turn)}, rows);
    const UOp less = g.Make(Op::kCmpLt, {y, x});
    y = g.Make(Op::kWhere, {less, y, g.Make(Op::kSqrt, {x})});
    y = g.Make(Op::kCast, kF32, {g.Make(Op::kCast, kI32, {y})});
    const UOp sum = g.Make(Op::kReduce, {y}, sum_of_columns);
    y = g.Make(Op::kSub, {y, g.Make(Op::kExpand, {sum}, square)});
    x = g.Make(Op::kFDiv, {y, weight});
  }
  const UOp store = g.Make(Op::kStore, {g.Param(2, kF32, square), x});
  return g.Make(Op::kSink, {store});
}

struct Times {
  double best = 0, median = 0;
};

Times Measure(int repeats, const std::function<void()>& call) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t begin = std::clock();
    call();
    seconds.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2]};
}

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "ir_bench: %s\n", what);
  std::exit(1);
}

int Main(int64_t nodes, int repeats) {
  Graph g;
  const UOp root = Build(g, nodes, 0);
  if (!g.status().ok()) Fail(g.status().ToString().c_str());
  const auto count = static_cast<double>(g.size());
  std::printf("%u nodes, %.1f MB in memory\n\n", g.size(), static_cast<double>(g.bytes()) / 1e6);
  std::printf("| what | nodes/s, best | median | goal |\n|---|---|---|---|\n");
  const auto row = [&](const char* what, const char* goal, const std::function<void()>& call) {
    const Times times = Measure(repeats, call);
    std::printf("| %s | %.2f M | %.2f M | %s |\n", what, count / times.best / 1e6,
                count / times.median / 1e6, goal);
    std::fflush(stdout);
  };

  row("make, every node new", "5 M", [&] {
    Graph fresh;
    if (Build(fresh, nodes, 0).id() != root.id()) Fail("another graph");
  });
  const Graph* const before = &g;
  const uint32_t size = g.size();
  row("make, every node there already", "5 M", [&] {
    // The same nodes in the same order.
    std::vector<UOp> src;
    for (uint32_t id = 0; id < size; ++id) {
      src.clear();
      for (uint32_t s : before->src(id)) src.push_back(g.at(s));
      if (g.Make(before->op(id), before->dtype(id), src, before->arg(id)).id() != id) {
        Fail("another node");
      }
    }
  });
  row("copy (CopyLive)", "-", [&] {
    Graph copy;
    if (!CopyLive(root, &copy).valid()) Fail("no copy");
  });
  row("content hash", "-", [&] { (void)ContentHash(root); });

  std::string bytes;
  row("serialize (graph to bytes)", "1 M", [&] {
    google::protobuf::Arena arena;
    auto* message = google::protobuf::Arena::CreateMessage<v1::Graph>(&arena);
    ToProto(root, message);
    bytes = message->SerializeAsString();
  });
  row("parse (bytes to verified graph)", "1 M", [&] {
    google::protobuf::Arena arena;
    auto* message = google::protobuf::Arena::CreateMessage<v1::Graph>(&arena);
    Budget budget;
    if (!message->ParseFromString(bytes)) Fail("no message");
    if (!FromProto(*message, &budget).ok()) Fail("not admitted");
  });
  std::string text;
  row("print as text", "-", [&] { text = Print(root); });
  row("parse text", "-", [&] {
    Graph fresh;
    if (!Parse(text, &fresh).ok()) Fail("text does not parse");
  });
  std::printf("\n%.1f bytes a node on the wire, %.1f as text\n",
              static_cast<double>(bytes.size()) / count, static_cast<double>(text.size()) / count);
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int64_t nodes = argc > 1 ? std::atoll(argv[1]) : 500'000;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 9;
  if (argc > 3 || nodes < 100 || nodes > 1'000'000 || repeats < 1) {
    std::fprintf(stderr, "Usage: ir_bench [NODES [REPEATS]]   NODES from 100 to 1000000\n");
    return 2;
  }
  return telegrad::Main(nodes, repeats);
}
