// Rings of tiles in local memory, made by hand in all sizes: threads copy a later tile beside what
// they do, wait for all but some of the copies, and read the tile of the iteration. The proof of
// independence accepts a ring where the interpreter, which knows nothing of proofs, finds that
// barriers and waits order all accesses and that every copy is waited for, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/independence_proof.h"
#include "engine/reference/program_eval.h"

namespace telegrad {
namespace {

constexpr int64_t kThreads = 4, kTiles = 7;

struct Ring {
  int64_t places, ahead;  // how many tiles earlier than it is read a tile is copied
  int64_t running;        // copies that may run behind a wait; -1: it is a store, and there is none
  bool barrier;
  bool own;         // each thread reads what it has copied itself
  bool last_first;  // the wait comes behind the barrier
};

class Maker {
 public:
  Program Make(const Ring& ring) {
    const UOp t = g_->Range(0, AxisType::kLocal, g_->Index(kThreads));
    Place(t);
    const UOp local =
        Place(g_->Make(Op::kBuffer, DType::kFloat32, {},
                       {static_cast<int64_t>(AddressSpace::kLocal), 0, ring.places * kThreads}));
    const UOp from = Place(g_->Param(0, DType::kFloat32, Shape{kTiles * kThreads}));
    const UOp to = Place(g_->Param(1, DType::kFloat32, Shape{kTiles * kThreads}));
    const UOp one = Place(g_->Const(DType::kFloat32, 0));
    for (int64_t i = 0; i < ring.places; ++i) {
      Place(g_->Make(Op::kStore, {At(local, Add(t, g_->Index(i * kThreads))), one}));
    }
    Barrier(g_->at(program_.order.back()), true);
    const UOp r = g_->Range(1, AxisType::kReduce, g_->Index(kTiles));
    Place(r);
    const UOp next = Add(r, g_->Index(ring.ahead));
    const UOp exists = g_->Make(Op::kCmpLt, {next, g_->Index(kTiles)});
    const UOp source = At(from, Add(Tile(next), t), exists);
    const UOp target = At(local, Add(Tile(Mod(next, ring.places)), t), exists);
    UOp filled;
    if (ring.running < 0) {
      filled = Place(g_->Make(Op::kStore, {target, g_->Make(Op::kLoad, {source})}));
    } else {
      filled = Place(g_->Make(Op::kCopyAsync, DType::kVoid, {target, source}, {1, 1, 1, 1}));
    }
    if (ring.last_first) Barrier(filled, ring.barrier);
    if (ring.running >= 0) {
      filled = Place(g_->Make(Op::kWait, DType::kVoid, {filled}, {ring.running}));
    }
    if (!ring.last_first) Barrier(filled, ring.barrier);
    const UOp other = ring.own ? t : Mod(Add(t, g_->Index(1)), kThreads);
    const UOp read = At(local, Add(Tile(Mod(r, ring.places)), other));
    Place(g_->Make(Op::kStore, {At(to, Add(Tile(r), t)), g_->Make(Op::kLoad, {read})}));
    Place(g_->Make(Op::kEnd, {r}));
    Place(g_->Make(Op::kEnd, {t}));
    program_.name = "ring";
    program_.graph = g_;
    const Program::Argument argument{.dtype = DType::kFloat32, .elements = kTiles * kThreads};
    program_.arguments = {argument, argument};
    program_.arguments[0].read = program_.arguments[1].written = true;
    return program_;
  }

 private:
  UOp Add(UOp x, UOp y) { return g_->Make(Op::kAdd, {x, y}); }
  UOp Mod(UOp x, int64_t y) { return g_->Make(Op::kFloorMod, {x, g_->Index(y)}); }
  UOp Tile(UOp number) { return g_->Make(Op::kMul, {number, g_->Index(kThreads)}); }
  UOp At(UOp memory, UOp index, UOp gate = {}) {
    return gate.valid() ? g_->Make(Op::kIndex, {memory, index, gate})
                        : g_->Make(Op::kIndex, {memory, index});
  }
  void Barrier(UOp behind, bool of_all) {
    const Scope scope = of_all ? Scope::kWorkgroup : Scope::kThread;
    Place(g_->Make(Op::kBarrier, DType::kVoid, {behind}, {static_cast<int64_t>(scope)}));
  }
  UOp Place(UOp u) {
    for (const uint32_t id : PostOrder(u)) {
      if (std::ranges::find(program_.order, id) == program_.order.end()) {
        program_.order.push_back(id);
      }
    }
    return u;
  }

  std::shared_ptr<Graph> g_ = std::make_shared<Graph>();
  Program program_;
};

TEST(RingProof, AcceptsWhatTheInterpreterDoes) {
  int rings = 0, accepted = 0;
  for (int64_t places = 1; places <= 5; ++places) {
    for (int64_t ahead = 0; ahead <= 4; ++ahead) {
      for (int64_t running = -1; running <= 4; ++running) {
        for (int flags = 0; flags < 8; ++flags) {
          const Ring ring{places,           ahead,           running, (flags & 1) != 0,
                          (flags & 2) != 0, (flags & 4) != 0};
          const Program program = Maker().Make(ring);
          const absl::Status legal = Verify(program);
          ASSERT_TRUE(legal.ok()) << legal << "\n" << Print(program);
          Budget budget;
          const auto report = ProveIndependence(program, &budget, /*local=*/true);
          ASSERT_TRUE(report.ok()) << report.status();
          std::vector<uint8_t> memory[2];
          for (auto& m : memory) m.assign(kTiles * kThreads * 4, 0);
          const std::span<uint8_t> spans[] = {memory[0], memory[1]};
          const absl::Status status = reference::Run(program, spans, 0, 1, {});
          const bool proved = report->unproved.empty() && report->unproved_local.empty();
          // Without a barrier in the loop, iterations are not told apart: a thread that reads what
          // it has copied itself may be refused.
          const bool exact = ring.barrier || !ring.own;
          EXPECT_TRUE(exact ? proved == status.ok() : !proved || status.ok()) << status << "\n"
                                                                              << Print(program);
          ++rings;
          accepted += proved ? 1 : 0;
        }
      }
    }
  }
  std::cout << accepted << " of " << rings << " rings are accepted\n";
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace telegrad
