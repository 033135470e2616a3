// The proof of independence must accept what is independent and nothing else. Random stores are
// decided twice: by the proof, and by evaluating every index; a proof of two threads that store to
// the same element is the one failure that must never happen.
#include "engine/lowering/independence_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <random>

namespace telegrad {
namespace {

class IndependenceProofTest : public ::testing::Test {
 protected:
  UOp Range(int64_t id, AxisType type, int64_t size) {
    return g_->Range(id, type, g_->Index(size));
  }
  UOp Thread(int64_t size) { return Range(0, AxisType::kThread, size); }
  UOp Loop(int64_t id, int64_t size) { return Range(id, AxisType::kLoop, size); }
  UOp Do(Op op, UOp x, UOp y) { return g_->Make(op, {x, y}); }
  UOp Do(Op op, UOp x, int64_t y) { return Do(op, x, g_->Index(y)); }
  UOp Add(UOp x, UOp y) { return Do(Op::kAdd, x, y); }
  UOp Mul(UOp x, int64_t c) { return Do(Op::kMul, x, c); }
  UOp Index(UOp index, UOp gate = {}, int64_t slot = 0, DType dtype = DType::kFloat32) {
    const UOp buffer = g_->Param(slot, dtype, Shape{1 << 20});
    return gate.valid() ? g_->Make(Op::kIndex, {buffer, index, gate})
                        : g_->Make(Op::kIndex, {buffer, index});
  }
  UOp Store(UOp address) { return g_->Make(Op::kStore, {address, g_->Const(address.dtype(), 1)}); }
  UOp Store(UOp index, UOp gate) { return Store(Index(index, gate)); }

  IndependenceReport Prove(std::initializer_list<UOp> effects, bool local = false) {
    return Prove(std::vector<UOp>(effects), local);
  }
  IndependenceReport Prove(const std::vector<UOp>& effects, bool local = false) {
    Program program;
    program.name = "kernel";
    program.graph = g_;
    for (const UOp effect : effects) {
      for (const uint32_t id : PostOrder(effect)) {
        if (std::ranges::find(program.order, id) == program.order.end())
          program.order.push_back(id);
      }
    }
    Budget budget;
    const auto report = ProveIndependence(program, &budget, local);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : IndependenceReport();
  }
  bool Proved(std::initializer_list<UOp> effects) {
    const IndependenceReport report = Prove(effects);
    return report.unproved.empty() && report.repeated == 0;
  }

  std::shared_ptr<Graph> g_ = std::make_shared<Graph>();
};

TEST_F(IndependenceProofTest, MixedRadix) {
  const UOp t = Thread(8), j = Loop(1, 4);
  EXPECT_TRUE(Proved({Store(Add(Mul(t, 4), j), {})}));
  EXPECT_FALSE(Proved({Store(Add(Mul(t, 3), j), {})}));
  EXPECT_TRUE(Proved({Store(Add(Mul(j, 8), t), {})}));
  EXPECT_FALSE(Proved({Store(Add(Mul(j, 7), t), {})}));
  EXPECT_FALSE(Proved({Store(Add(j, Mul(t, 0)), {})}));
}

TEST_F(IndependenceProofTest, CopiesOfAStore) {
  const UOp t = Thread(8);
  EXPECT_TRUE(Proved({Store(Mul(t, 2), {}), Store(Add(Mul(t, 2), g_->Index(1)), {})}));
  EXPECT_FALSE(Proved({Store(Mul(t, 2), {}), Store(Add(Mul(t, 2), g_->Index(2)), {})}));
}

TEST_F(IndependenceProofTest, DigitsOfARange) {
  const UOp t = Thread(24);
  const UOp low = Do(Op::kFloorMod, t, 4), high = Do(Op::kFloorDiv, t, 4);
  const UOp middle = Do(Op::kFloorMod, high, 3), top = Do(Op::kFloorDiv, t, 12);
  EXPECT_TRUE(Proved({Store(Add(Mul(low, 100), high), {})}));
  EXPECT_TRUE(Proved({Store(Add(Add(Mul(middle, 100), low), Mul(top, 10)), {})}));
  EXPECT_FALSE(Proved({Store(Add(Mul(middle, 100), low), {})}));
  EXPECT_FALSE(Proved({Store(Add(Mul(low, 5), high), {})}));
}

// Warps share rows of six chunks, of 8 elements each, with a gap of 8 behind them: 32 chunks are
// five rows and two chunks. There are too many of them to look at each.
TEST_F(IndependenceProofTest, ChunksOfRowsWithGaps) {
  const UOp group = Range(0, AxisType::kGroup, 1024), warp = Range(1, AxisType::kLocal, 4),
            lane = Range(2, AxisType::kLocal, 32);
  const auto at = [&](int64_t chunks, int64_t of_warp, int64_t from) {
    const UOp x = Add(Add(Mul(warp, chunks), lane), g_->Index(from));
    const UOp in_row = Add(Mul(Do(Op::kFloorDiv, x, 6), 56), Mul(Do(Op::kFloorMod, x, 6), 8));
    return Add(Add(Mul(group, 3584), Mul(warp, of_warp)), in_row);
  };
  EXPECT_TRUE(Proved({Store(at(2, 280, 0), {})}));
  EXPECT_FALSE(Proved({Store(at(1, 280, 0), {})}));  // the last of a warp is the next one's first
  EXPECT_FALSE(Proved({Store(at(2, 224, 0), {})}));
  // The next 128 chunks are 21 rows and two chunks.
  const UOp rows = g_->Index(1176);
  EXPECT_TRUE(Proved({Store(at(2, 280, 0), {}), Store(Add(at(2, 280, 2), rows), {})}));
  EXPECT_FALSE(Proved({Store(at(2, 280, 0), {}), Store(Add(at(2, 280, 1), rows), {})}));
}

TEST_F(IndependenceProofTest, GatesBoundTerms) {
  const UOp t = Thread(3), j = Loop(1, 8), row = Loop(2, 5);
  const UOp column = Add(Mul(t, 8), j), index = Add(Mul(row, 20), column);
  EXPECT_FALSE(Proved({Store(index, {})}));
  EXPECT_TRUE(Proved({Store(index, Do(Op::kCmpLt, column, 20))}));
  EXPECT_FALSE(Proved({Store(index, Do(Op::kCmpLt, column, 21))}));
}

TEST_F(IndependenceProofTest, OneThreadStores) {
  const UOp t = Range(0, AxisType::kLocal, 8), group = Range(1, AxisType::kGroup, 4);
  EXPECT_TRUE(Proved({Store(group, Do(Op::kCmpEq, t, 0))}));
  EXPECT_TRUE(Proved({Store(group, Do(Op::kCmpLt, t, 1))}));
  EXPECT_FALSE(Proved({Store(group, Do(Op::kCmpLt, t, 2))}));
}

TEST_F(IndependenceProofTest, LoadsOfWhatIsStored) {
  const UOp t = Thread(8);
  const auto copy = [&](UOp from, int64_t slot) {
    const UOp value = g_->Make(Op::kLoad, {Index(from, {}, slot)});
    return g_->Make(Op::kStore, {Index(t), value});
  };
  EXPECT_TRUE(Proved({copy(t, 0)}));
  EXPECT_FALSE(Proved({copy(Add(t, g_->Index(1)), 0)}));
  EXPECT_TRUE(Proved({copy(Add(t, g_->Index(1)), 1)}));
  EXPECT_TRUE(Proved({copy(Add(t, g_->Index(8)), 0)}));
}

TEST_F(IndependenceProofTest, ElementsThatShareAByte) {
  const UOp t = Thread(8);
  EXPECT_TRUE(Proved({Store(Index(t, {}, 0, DType::kInt8))}));
  EXPECT_FALSE(Proved({Store(Index(t, {}, 0, DType::kInt4))}));
  EXPECT_TRUE(Proved({Store(Index(Mul(t, 2), {}, 0, DType::kInt4))}));
}

// A number that is loaded may be anything, but is the same in all iterations.
TEST_F(IndependenceProofTest, LoadedNumbers) {
  const UOp t = Thread(8);
  const auto load = [&](UOp at, int64_t slot) {
    return g_->Make(Op::kLoad, {Index(at, {}, slot, DType::kInt64)});
  };
  EXPECT_TRUE(Proved({Store(Add(Mul(load(g_->Index(0), 1), 8), t), {})}));
  EXPECT_FALSE(Proved({Store(Add(Mul(load(t, 1), 8), t), {})}));
}

TEST_F(IndependenceProofTest, TheLastTileBeginsEarlier) {
  const UOp t = Thread(3);
  const auto store = [&](int64_t tile, int64_t lanes) {
    const UOp begin = Mul(Do(Op::kMax, Mul(t, -tile), tile - 20), -1);
    return Store(Add(begin, g_->Make(Op::kIota, DType::kInt64, {}, {lanes})), {});
  };
  const IndependenceReport report = Prove({store(8, 8)});
  EXPECT_TRUE(report.unproved.empty());
  EXPECT_EQ(report.repeated, 1);
  EXPECT_FALSE(Prove({store(8, 16)}).unproved.empty());  // all tiles overlap
}

// Of elements that are stored twice, the values are the same where they are one expression of the
// position: not where they depend on the thread, or on the place in its tile.
TEST_F(IndependenceProofTest, RepeatedValuesAreOnesOfThePosition) {
  const UOp t = Thread(3), lanes = g_->Make(Op::kIota, DType::kInt64, {}, {8});
  const UOp begin = Mul(Do(Op::kMax, Mul(t, -8), 8 - 20), -1);
  const UOp at = Add(begin, lanes);
  const auto load = [&](UOp index) { return g_->Make(Op::kLoad, {Index(index, {}, 1)}); };
  const auto declared = [&](UOp value) {
    const IndependenceReport report = Prove({g_->Make(Op::kStore, {Index(at), value})});
    EXPECT_TRUE(report.unproved.empty());
    EXPECT_EQ(report.repeated, 1);
    return report.declared == 1;
  };
  const auto f32 = [&](UOp x) { return g_->Make(Op::kCast, DType::kFloat32, {x}); };
  EXPECT_FALSE(declared(load(at)));
  EXPECT_FALSE(declared(load(Add(Mul(at, 3), g_->Index(5)))));
  EXPECT_FALSE(declared(f32(Do(Op::kFloorMod, at, 7))));
  EXPECT_FALSE(declared(g_->Make(Op::kAdd, {load(at), f32(Do(Op::kCmpLt, at, 19))})));
  EXPECT_TRUE(declared(f32(Add(t, Mul(lanes, 0)))));
  EXPECT_TRUE(declared(f32(lanes)));
  EXPECT_TRUE(declared(load(Add(Mul(t, 8), lanes))));  // a tile that does not begin earlier
  EXPECT_TRUE(declared(load(Add(begin, Mul(lanes, 2)))));
  EXPECT_TRUE(declared(load(Add(at, t))));
  EXPECT_TRUE(declared(g_->Make(Op::kAdd, {load(at), f32(Do(Op::kCmpLt, lanes, 3))})));
}

// Sums in registers, of rows that are replicated: out[row] = sum of x[row * 16 + r], where the
// second row of a tile may read that of another place, or not begin at 0.
TEST_F(IndependenceProofTest, RepeatedSumsAreOnesOfThePosition) {
  const auto declared = [&](int64_t row_of_second, int64_t init_of_second, bool reset) {
    g_ = std::make_shared<Graph>();
    const UOp t = Thread(3);
    const UOp begin = Mul(Do(Op::kMax, Mul(t, -2), 2 - 5), -1);
    std::vector<UOp> effects;
    const UOp sums = g_->Make(Op::kBuffer, DType::kFloat32, {},
                              {static_cast<int64_t>(AddressSpace::kRegister), 0, 2});
    const auto sum = [&](int64_t i) { return g_->Make(Op::kIndex, {sums, g_->Index(i)}); };
    for (int64_t i = 0; i < (reset ? 2 : 1); ++i) {
      const UOp init = g_->ConstFloat(DType::kFloat32, i == 0 ? 0 : init_of_second);
      effects.push_back(g_->Make(Op::kStore, {sum(i), init}));
    }
    const UOp r = Range(1, AxisType::kReduce, 16);
    const UOp inside = g_->Make(Op::kAfter, {sums, effects.back(), r});
    for (int64_t i = 0; i < 2; ++i) {
      const UOp row = Add(begin, g_->Index(i == 0 ? 0 : row_of_second));
      const UOp x = g_->Make(Op::kLoad, {Index(Add(Mul(row, 16), r), {}, 1)});
      const UOp at = g_->Make(Op::kIndex, {inside, g_->Index(i)});
      const UOp before = g_->Make(Op::kLoad, {at});
      effects.push_back(g_->Make(Op::kStore, {at, g_->Make(Op::kAdd, {before, x})}));
    }
    effects.push_back(g_->Make(Op::kEnd, {r}));
    for (int64_t i = 0; i < 2; ++i) {
      const UOp after = g_->Make(Op::kAfter, {sums, effects.back()});
      const UOp value = g_->Make(Op::kLoad, {g_->Make(Op::kIndex, {after, g_->Index(i)})});
      effects.push_back(g_->Make(Op::kStore, {Index(Add(begin, g_->Index(i))), value}));
    }
    const IndependenceReport report = Prove(effects);
    EXPECT_TRUE(report.unproved.empty());
    EXPECT_GT(report.repeated, 0);
    return report.declared > 0;
  };
  EXPECT_FALSE(declared(1, 0, true));
  EXPECT_TRUE(declared(2, 0, true));
  EXPECT_TRUE(declared(1, 3, true));
  EXPECT_TRUE(declared(1, 0, false));
}

// Values of random indices of begin, lane, thread and copy, against what they are for each thread.
TEST_F(IndependenceProofTest, RandomRepeatedValues) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int shown = 0, equal = 0;
  for (int n = 0; n < 6000; ++n) {
    g_ = std::make_shared<Graph>();
    const int64_t size = 2 + below(5), copies = 1 + below(3), tile = size * copies;
    const int64_t threads = 2 + below(3), total = tile * threads - 1 - below(tile - 1);
    const UOp t = Thread(threads), lane = g_->Make(Op::kIota, DType::kInt64, {}, {size});
    const UOp begin = Mul(Do(Op::kMax, Mul(t, -tile), tile - total), -1);
    std::vector<UOp> effects;
    std::map<int64_t, int64_t> values;
    bool same = true;
    const int64_t of_begin = below(3), of_thread = below(8) == 0 ? 1 : 0;
    for (int64_t c = 0; c < copies; ++c) {
      const int64_t of_lane = below(8) == 0 ? below(3) : of_begin;
      const int64_t constant = of_begin * size * c + (below(8) == 0 ? 1 : 0);
      const UOp index = Add(Add(Add(Mul(begin, of_begin), Mul(lane, of_lane)), Mul(t, of_thread)),
                            g_->Index(constant));
      const UOp at = Add(Add(begin, lane), g_->Index(size * c));
      const UOp value = g_->Make(Op::kLoad, {Index(index, {}, 1)});
      effects.push_back(g_->Make(Op::kStore, {Index(at), value}));
      for (int64_t x = 0; x < threads * size; ++x) {
        const int64_t thread = x / size, l = x % size, b = std::min(thread * tile, total - tile);
        const int64_t v = of_begin * b + of_lane * l + of_thread * thread + constant;
        same &= values.try_emplace(b + l + size * c, v).first->second == v;
      }
    }
    const IndependenceReport report = Prove(effects);
    if (!report.unproved.empty()) continue;
    ASSERT_GT(report.repeated, 0) << "case " << n;
    ASSERT_TRUE(same || report.declared > 0) << "case " << n;
    shown += report.declared == 0 ? 1 : 0;
    equal += same ? 1 : 0;
  }
  std::cout << shown << " shown of " << equal << " with equal values, seed " << seed << "\n";
  EXPECT_GT(shown, equal / 2);
}

// Elements are repeated where threads have tiles that overlap, not where they are places of one.
TEST_F(IndependenceProofTest, ThreadsAreNoPlacesOfATile) {
  const auto store = [&](AxisType tiles, AxisType places) {
    const UOp begin = Mul(Do(Op::kMax, Mul(Range(0, tiles, 2), -4), -3), -1);
    return Store(Add(begin, Range(1, places, 4)), {});
  };
  EXPECT_EQ(Prove({store(AxisType::kThread, AxisType::kLoop)}).repeated, 1);
  EXPECT_FALSE(Prove({store(AxisType::kLoop, AxisType::kThread)}).unproved.empty());
  EXPECT_FALSE(Prove({store(AxisType::kThread, AxisType::kThread)}).unproved.empty());
}

// Blocks of rows, and tiles of these, that one loop of threads counts.
TEST_F(IndependenceProofTest, ThreadsShareBlocksThatBeginEarlier) {
  const auto store = [&](UOp block, UOp tile) {
    const UOp begin = Mul(Do(Op::kMax, Mul(block, -96), -160), -1);
    const UOp row = Add(Add(begin, Mul(tile, 3)), Loop(2, 3));
    return Store(Add(Mul(row, 256), Loop(3, 256)), {});
  };
  const UOp t = Thread(96);
  const UOp high = Do(Op::kFloorDiv, t, 32), low = Do(Op::kFloorMod, t, 32);
  EXPECT_EQ(Prove({store(high, low)}).repeated, 1);
  EXPECT_TRUE(Prove({store(high, low)}).unproved.empty());
  EXPECT_FALSE(Prove({store(Loop(1, 3), low)}).unproved.empty());
}

// Tiles of a range that was a part of tiles itself: rows of an attention's tile of queries.
TEST_F(IndependenceProofTest, TilesWithinTilesBeginEarlier) {
  const UOp t = Thread(9), j = Loop(1, 5);
  const auto store = [&](int64_t size, int64_t rows) {
    const UOp begin = Do(Op::kMax, Mul(t, -64), 64 - size);
    const UOp within = Do(Op::kMax, Mul(j, -14), 14 - 64);
    const UOp row = Add(Add(Mul(begin, -1), Mul(within, -1)), Loop(2, rows));
    return Store(Add(Mul(row, 64), Loop(3, 64)), {});
  };
  const IndependenceReport report = Prove({store(520, 14)});
  EXPECT_TRUE(report.unproved.empty());
  EXPECT_EQ(report.repeated, 1);
  EXPECT_FALSE(Prove({store(520, 15)}).unproved.empty());  // the rows of two tiles
  EXPECT_FALSE(Prove({store(500, 14)}).unproved.empty());  // two tiles begin at one place
}

// An iteration of the shared loop has several tiles, as many as there are.
TEST_F(IndependenceProofTest, SeveralTilesInAnIteration) {
  const UOp t = Thread(19);
  const auto store = [&](int64_t tiles, int64_t begin) {
    const UOp left = Do(Op::kMax, Add(Mul(t, -4), g_->Index(tiles)), 0);
    const UOp r = g_->Range(1, AxisType::kLoop, Mul(Do(Op::kMax, Mul(left, -1), -4), -1));
    const UOp first = Mul(Do(Op::kMax, Add(Mul(t, -56), Mul(r, -14)), -begin), -1);
    return Store(Add(first, g_->Make(Op::kIota, DType::kInt64, {}, {14})), {});
  };
  const IndependenceReport report = Prove({store(74, 1010)});
  EXPECT_TRUE(report.unproved.empty());
  EXPECT_EQ(report.repeated, 1);
  EXPECT_FALSE(Prove({store(73, 994)}).unproved.empty());  // the last two tiles are one
  EXPECT_TRUE(Proved({store(76, 1010)}));                  // so are these, of one thread
}

// A launch counts in i64, an index may be an i32.
TEST_F(IndependenceProofTest, NarrowIndices) {
  const auto store = [&](UOp t) {
    const auto i32 = [&](int64_t x) { return g_->Const(DType::kInt32, x); };
    const UOp tile = g_->Make(Op::kMul, {g_->Make(Op::kCast, DType::kInt32, {t}), i32(-8)});
    const UOp begin = g_->Make(Op::kMul, {g_->Make(Op::kMax, {tile, i32(-12)}), i32(-1)});
    const UOp lanes = g_->Make(Op::kIota, DType::kInt32, {}, {8});
    return Store(g_->Make(Op::kAdd, {begin, lanes}), {});
  };
  EXPECT_EQ(Prove({store(Thread(3))}).repeated, 1);
  EXPECT_FALSE(Prove({store(Thread(int64_t{1} << 40))}).unproved.empty());  // the cast wraps
}

TEST_F(IndependenceProofTest, BarriersOrderThreads) {
  const UOp t = Range(0, AxisType::kLocal, 8);
  const UOp local = g_->Make(Op::kBuffer, DType::kFloat32, {},
                             {static_cast<int64_t>(AddressSpace::kLocal), 0, 16});
  const UOp write = Store(g_->Make(Op::kIndex, {local, t}));
  const auto read = [&](Scope scope) {
    const UOp barrier =
        g_->Make(Op::kBarrier, DType::kVoid, {write}, {static_cast<int64_t>(scope)});
    const UOp after = g_->Make(Op::kAfter, {local, barrier});
    const UOp neighbour = Do(Op::kFloorMod, Add(t, g_->Index(1)), 8);
    const UOp value = g_->Make(Op::kLoad, {g_->Make(Op::kIndex, {after, neighbour})});
    return g_->Make(Op::kStore, {Index(t), value});
  };
  EXPECT_TRUE(Prove({read(Scope::kWorkgroup)}, true).unproved_local.empty());
  EXPECT_FALSE(Prove({read(Scope::kWarp)}, true).unproved_local.empty());
}

// Sums of digits of ranges with random coefficients: what is proved has no element of two threads.
TEST_F(IndependenceProofTest, RandomStores) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int proved = 0, independent = 0;
  for (int n = 0; n < 40'000; ++n) {
    g_ = std::make_shared<Graph>();
    const int64_t threads = 2 + below(11), loops = 1 + below(5), by = 2 + below(4);
    const UOp t = Thread(threads), j = Loop(1, loops);
    const int64_t size = 1 + below(30), coefficients[] = {below(9) - 1, below(9) - 1, below(9) - 1};
    const int kind = static_cast<int>(below(4));
    const UOp parts[] = {kind == 1 ? Do(Op::kFloorMod, t, by) : t,
                         kind == 0 ? j : Do(Op::kFloorDiv, Add(t, kind == 3 ? j : Mul(j, 0)), by),
                         j};
    const int64_t step = 1 + below(6);
    const UOp begin = Do(Op::kMax, Mul(t, -step), -below(40));
    const bool clamped = below(6) == 0;
    const auto value = [&](int64_t x, int64_t y) {
      const int64_t first = kind == 1 ? x % by : x;
      const int64_t second = kind == 0 ? y : (x + (kind == 3 ? y : 0)) / by;
      const int64_t third =
          clamped ? std::max(-step * x, begin.src(1).is_const() ? begin.src(1).const_word()
                                                                : begin.src(0).const_word())
                  : y;
      return std::array{
          coefficients[0] * first + coefficients[1] * second + coefficients[2] * third,
          first + third};
    };
    const UOp third = clamped ? begin : parts[2];
    const UOp index = Add(Add(Mul(parts[0], coefficients[0]), Mul(parts[1], coefficients[1])),
                          Mul(third, coefficients[2]));
    const bool gated = below(2) == 0;
    const UOp gate = gated ? Do(Op::kCmpLt, Add(parts[0], third), size) : UOp();
    std::map<int64_t, int64_t> owner;
    bool apart = true;
    for (int64_t x = 0; x < threads; ++x) {
      for (int64_t y = 0; y < loops; ++y) {
        const auto [at, compared] = value(x, y);
        if (gated && compared >= size) continue;
        apart &= owner.try_emplace(at, x).first->second == x;
      }
    }
    const bool accepted = Proved({Store(index, gate)});
    ASSERT_TRUE(apart || !accepted) << "case " << n;
    proved += accepted ? 1 : 0;
    independent += apart ? 1 : 0;
  }
  std::cout << proved << " proved of " << independent << " independent ones, seed " << seed << "\n";
  EXPECT_GT(proved, independent / 3);
}

// Loops that end at a number of the run: whole tiles, several in an iteration of the shared loop,
// and a tail that one of the threads has, with all of the numbers changed a little. What is proved
// has no element of two threads, whatever the number is.
TEST_F(IndependenceProofTest, RandomLoopsThatTheRunEnds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const auto changed = [&](int64_t x) { return below(6) == 0 ? x + below(3) - 1 : x; };
  int proved = 0, independent = 0;
  for (int i = 0; i < 4000; ++i) {
    g_ = std::make_shared<Graph>();
    const int64_t most = 5 + below(60), tile = 2 + below(5), together = 1 + below(4);
    const int64_t step = changed(tile * together), room = changed(together);
    const int64_t begin = changed(0), share = changed(together), lanes = changed(tile);
    const int kind = static_cast<int>(below(4));
    const bool gated = below(8) != 0;
    if (lanes < 1 || share < 1) continue;
    // The program.
    const UOp given = g_->Make(Op::kLoad, {Index(g_->Index(0), {}, 1, DType::kInt64)});
    const UOp n = Mul(Do(Op::kMax, Mul(Do(Op::kMax, given, 0), -1), -most), -1);
    const UOp whole = Do(Op::kFloorDiv, n, tile);
    const UOp all = Do(Op::kFloorDiv, Add(n, g_->Index(tile - 1)), tile);
    const UOp t = g_->Range(0, AxisType::kThread,
                            Do(Op::kFloorDiv, Add(all, g_->Index(together - 1)), together));
    const UOp left = Add(whole, Mul(t, -together)), tail = Add(all, Mul(whole, -1));
    const UOp r =
        g_->Range(1, AxisType::kLoop, Mul(Do(Op::kMax, Mul(Do(Op::kMax, left, 0), -1), -room), -1));
    const UOp last = kind == 0   ? Do(Op::kCmpLt, left, together)
                     : kind == 1 ? g_->True()
                                 : g_->Make(Op::kCmpEq, {t, Do(Op::kFloorDiv, whole, share)});
    const UOp s = g_->Range(2, AxisType::kLoop, g_->Make(Op::kWhere, {last, tail, g_->Index(0)}));
    const UOp lane = g_->Make(Op::kIota, DType::kInt64, {}, {lanes});
    const UOp in_tail = Add(Add(Mul(whole, tile), Mul(s, tile)), Add(lane, g_->Index(begin)));
    const bool accepted = Proved({Store(Add(Add(Mul(t, step), Mul(r, tile)), lane), {}),
                                  Store(in_tail, gated ? Do(Op::kCmpLt, in_tail, n) : UOp())});
    // Its elements.
    bool apart = true;
    for (int64_t x = 0; x <= most; ++x) {
      std::map<int64_t, int64_t> owner;
      const int64_t w = x / tile, c = (x + tile - 1) / tile;
      const auto touch = [&](int64_t at, int64_t thread) {
        apart &= owner.try_emplace(at, thread).first->second == thread;
      };
      for (int64_t y = 0; y < (c + together - 1) / together; ++y) {
        const int64_t end = std::min(std::max<int64_t>(w - together * y, 0), room);
        for (int64_t z = 0; z < end * lanes; ++z) {
          touch(step * y + tile * (z / lanes) + z % lanes, y);
        }
        const bool has = kind == 0 ? w - together * y < together : kind == 1 || y == w / share;
        for (int64_t z = 0; z < (has ? (c - w) * lanes : 0); ++z) {
          const int64_t at = tile * w + tile * (z / lanes) + z % lanes + begin;
          if (!gated || at < x) touch(at, y);
        }
      }
    }
    ASSERT_TRUE(apart || !accepted) << "case " << i;
    proved += accepted ? 1 : 0;
    independent += apart ? 1 : 0;
  }
  std::cout << proved << " proved of " << independent << " independent ones, seed " << seed << "\n";
  EXPECT_GT(proved, independent / 4);
}

}  // namespace
}  // namespace telegrad
