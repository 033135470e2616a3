// Lists of moves as text, and what a kernel refuses.
#include "engine/lowering/moves/move.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/ir/text.h"
#include "engine/lowering/choose/move_space.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/test_product.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(Moves, AreReadAsTheyArePrinted) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 500; ++i) {
    MoveList list;
    for (uint64_t n = rng() % 12; n > 0; --n) {
      const MoveRow& row = AllMoves()[rng() % AllMoves().size()];
      Move move{.kind = row.kind};
      if (row.range) move.range = static_cast<int64_t>(rng() % 100);
      if (row.amount) move.amount = static_cast<int64_t>(1 + rng() % 5000);
      if (row.axis) move.axis = static_cast<int>(rng() % kMaxThreadAxes);
      if (row.inner) move.inner = static_cast<int64_t>(rng() % 100);
      if (row.ring) move.ring = static_cast<int64_t>(1 + rng() % 5);
      list.push_back(move);
    }
    const auto parsed = ParseMoves(Print(list));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, list) << Print(list);
  }
}

TEST(Moves, MalformedOnesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"TURN r1 2", "\"TURN r1 2\": there is no such move"},
      {"UPCAST 1 2", "a range such as r2 follows"},
      {"UPCAST r1", "an amount of at least 1"},
      {"UPCAST r1 0", "an amount of at least 1"},
      {"UPCAST r1 -3", "an amount of at least 1"},
      {"UPCAST r1 99999999999999999999", "an amount of at least 1"},
      {"UPCAST r1 2 3", "more than the move has"},
      {"LOCAL r1 2", "an axis such as"},
      {"LOCAL r1 2 axis 3", "of 0 to 2"},
      {"SEPARATE r1", "more than the move has"},
      {"STAGE r1 8 ring", "a number of at least 2 may follow"},
      {"STAGE r1 8 ring 1", "a number of at least 2 may follow"},
      {"JOIN r1", "a second range such as r2"},
      {"JOIN r1 2", "a second range such as r2"},
      {"THREAD r0,, OUTER r0", "a move is missing"},
      {"THREAD r0,", "a move is missing"},
  };
  for (const auto& [text, why] : cases) {
    const auto parsed = ParseMoves(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr(why)) << text;
  }
  EXPECT_FALSE(ParseMoves(std::string(kMaxMoveText + 1, ' ')).ok());
  std::string many = "THREAD r0";
  for (size_t i = 0; i < kMaxMoves; ++i) many += ",OUTER r0";
  EXPECT_FALSE(ParseMoves(many).ok());
}

TEST(Moves, WhatAKernelCannotHaveIsRefusedWithAReason) {
  const std::pair<const char*, const char*> cpu[] = {
      {"UPCAST r9 2", "the kernel has no such range"},
      {"UPCAST r2 3", "does not divide the reduced size 32"},
      {"UNROLL r0 2", "only the range of a reduction is unrolled"},
      {"VECTORIZE r1 12", "a power of two of at most 64"},
      {"VECTORIZE r0 4, VECTORIZE r1 4", "has lanes already"},
      {"VECTORIZE r1 4, UPCAST r1 2", "lanes are the last split"},
      {"THREAD r2", "not all stores are in the loop"},
      {"OUTER r0, THREAD r1", "THREAD stands before"},
      {"THREAD r0, UPCAST r1 2", "ranges are split before"},
      {"THREAD r0, THREAD r1, THREAD r0", "workers share the range already"},
      {"THREAD r0, BLOCK r2 8, THREAD r1", "THREAD stands before"},
      {"UPCAST r1 48, THREAD r0, THREAD r1", "one iteration is left"},
      {"UPCAST r0 48, THREAD r0", "one iteration is left"},
      {"BLOCK r2 32", "one block is left"},
      {"BLOCK r2 8, BLOCK r0 2", "BLOCK of a loop stands before"},
      {"BLOCK r2 8, BLOCK r2 2", "a reduction is in blocks already"},
      {"PEEL r0 4", "only the innermost of the loops"},
      {"PEEL r2 32", "is not between 1 and the size"},
      {"PEEL r2 16", "SEPARATE stands after the last PEEL"},
      {"PEEL r2 16, UPCAST r0 2", "SEPARATE stands after the last PEEL"},
      {"SEPARATE", "nothing was peeled"},
      {"UPCAST r0 2, PEEL r2 16, SEPARATE", "PEEL, SEPARATE and JOIN stand before all other moves"},
      {"UPCAST r0 48, UPCAST r1 48", "more than 1024 replicas"},
      {"LOCAL r0 4 axis 0", "a move for workgroups"},
      {"JOIN r0 r1", "a move for workgroups"},
  };
  const std::pair<const char*, const char*> gpu[] = {
      {"THREAD r0", "a move for workers"},
      {"PEEL r2 16", "reductions are gated"},
      {"LOCAL r0 1024 axis 0, LOCAL r1 4 axis 1", "threads in a workgroup, at most 1024"},
      {"LOCAL r0 4 axis 0, LOCAL r1 4 axis 0", "is shared on that axis already"},
      {"LOCAL r0 4 axis 0, LOCAL r2 8 axis 0", "the axis has 4 threads"},
      {"JOIN r0 r0", "is not joined to itself"},
      {"JOIN r0 r9", "the kernel has no such range"},
      {"JOIN r0 r2", "both are reduced, or all stores depend on both"},
      {"GROUP r0, JOIN r0 r1", "JOIN stand before all other moves"},
      {"GROUP r2", "some store does not depend on the range"},
      {"TENSORCORE r0 16", "there is no instruction for the type"},
      {"UNROLL r2 8, STAGE r2 8 ring 17", "a ring has at most 16 tiles"},
      {"UNROLL r2 8, STAGE r2 16", "STAGE needs the amount of the tile"},
      {"UNROLL r2 8, STAGE r2 8", "are workgroups"},
      {"LOCAL r2 8 axis 0, STAGE r2 8, GROUP r0, GROUP r1", "do not share a staged reduction"},
  };
  const std::pair<const char*, const char*> deterministic[] = {
      {"UPCAST r2 2", "has one accumulator"},      {"VECTORIZE r2 16", "are all of its terms"},
      {"VECTORIZE r2 32", "are all of its terms"},  // and are rounded, as products
      {"BLOCK r2 8", "stays one sequence"},        {"PEEL r2 16, SEPARATE", "stays one sequence"},
  };
  const FrozenGraph kernel = TestProduct(48, 48, 32);
  const auto refuses = [&](const Target& target, const char* text, const char* why) {
    Budget budget;
    const auto program = Lower(kernel, target, "k", &budget, nullptr, {.moves = text});
    EXPECT_TRUE(absl::IsFailedPrecondition(program.status())) << text << program.status();
    EXPECT_THAT(program.status().message(), HasSubstr(why)) << text;
  };
  const Target device = *NvidiaTarget(8, 0, 4, 163840);
  for (const auto& [text, why] : cpu) refuses(TestProcessor(), text, why);
  for (const auto& [text, why] : gpu) refuses(device, text, why);
  Target fixed = TestProcessor();
  fixed.deterministic = true;
  for (const auto& [text, why] : deterministic) refuses(fixed, text, why);
  Budget budget;
  const PassOptions tile{.moves = "UPCAST r0 4, UNROLL r2 4, VECTORIZE r1 16, THREAD r0"};
  EXPECT_TRUE(Lower(kernel, fixed, "k", &budget, nullptr, tile).ok());
}

// The last of two tiles of 4 begins earlier, so two workers would store an element that each of
// them reads again: the proof would refuse the program.
TEST(Moves, WorkersShareNoTilesThatAreReadAgain) {
  constexpr char kKernel[] = R"(
%0 = param f32 [7] slot=0
%1 = const i64 7
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = param f32 [7] slot=2
%5 = index f32 %4 %2
%6 = load f32 %5
%7 = store %3 %6
%8 = after f32 [7] %0 %7
%9 = index f32 %8 %2
%10 = load f32 %9
%11 = param f32 [7] slot=1
%12 = index f32 %11 %2
%13 = store %12 %10
%14 = end %7 %2
%15 = end %13 %2
%16 = sink %14 %15
)";
  Graph graph;
  const auto sink = Parse(kKernel, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  for (const char* moves : {"UPCAST r0 4, THREAD r0", "THREAD r0, BLOCK r0 4"}) {
    Budget budget;
    const auto program =
        Lower(Freeze(*sink), TestProcessor(), "k", &budget, nullptr, {.moves = moves});
    EXPECT_TRUE(absl::IsFailedPrecondition(program.status())) << program.status();
    EXPECT_THAT(program.status().message(), HasSubstr("that a worker reads again")) << moves;
  }
}

// Which places of a loop there are follows from another one: workers that share all that there may
// be would store beyond its end.
TEST(Moves, WorkersShareNoLoopsWhoseEndsAreComputed) {
  constexpr char kKernel[] = R"(
%0 = param f32 [64] slot=0
%1 = const i64 8
%2 = range i64 %1 id=0 type=loop
%3 = const i64 1
%4 = add i64 %2 %3
%5 = range i64 %4 id=1 type=loop
%6 = mul i64 %2 %1
%7 = add i64 %6 %5
%8 = index f32 %0 %7
%9 = param f32 [64] slot=1
%10 = index f32 %9 %7
%11 = load f32 %10
%12 = store %8 %11
%13 = end %12 %2 %5
%14 = sink %13
)";
  Graph graph;
  const auto sink = Parse(kKernel, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  for (const char* moves : {"THREAD r1", "THREAD r0, THREAD r1", "THREAD r0, OUTER r1"}) {
    Budget budget;
    const auto program =
        Lower(Freeze(*sink), TestProcessor(), "k", &budget, nullptr, {.moves = moves});
    EXPECT_TRUE(absl::IsFailedPrecondition(program.status())) << program.status();
    EXPECT_THAT(program.status().message(), HasSubstr("where the loop ends is computed")) << moves;
  }
}

TEST(Moves, TheHeuristicsListMakesTheSameProgram) {
  for (const Target& target :
       {TestProcessor(), *NvidiaTarget(8, 0, 4, 163840), OpenClProcessor(2, 64)}) {
    for (const auto& [m, n, k] : {std::tuple(48, 48, 32), std::tuple(7, 131, 77)}) {
      const FrozenGraph kernel = TestProduct(m, n, k);
      Budget budget;
      const auto chosen = Lower(kernel, target, "k", &budget);
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_FALSE(chosen->moves.empty());
      const auto given = Lower(kernel, target, "k", &budget, nullptr, {.moves = chosen->moves});
      ASSERT_TRUE(given.ok()) << given.status();
      EXPECT_EQ(given->moves, chosen->moves);
      EXPECT_EQ(Print(*given), Print(*chosen));
    }
  }
}

}  // namespace
}  // namespace telegrad
