// The verifiers of the three levels, on graphs and programs in their text form: what is
// accepted, and the error of each violated rule.
#include "engine/ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

std::string Message(std::string_view text, Level level) {
  Graph g;
  const absl::StatusOr<UOp> root = Parse(text, &g);
  EXPECT_TRUE(root.ok()) << root.status();
  if (!root.ok()) return "not parsed";
  const absl::Status status = Verify(*root, level);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}
std::string Tensor(std::string_view text) { return Message(text, kTensorLevel); }
std::string Kernel(std::string_view text) { return Message(text, kKernelLevel); }

TEST(VerifyTensor, StoresToViewsAndVersions) {
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 [2, 3] slot=0
    %1 = const f32 1
    %2 = permute f32 [3, 2] %0 axes=[1, 0]
    %3 = flip f32 [3, 2] %2 axes=[0]
    %4 = shrink f32 [1, 2] %3 pairs=[0, 1, 0, 2]
    %5 = reshape f32 [2] %4
    %6 = store %5 %1
    %7 = after f32 [2, 3] %0 %6
    %8 = reshape f32 [6] %7
    %9 = store %8 %1
    %10 = sink %9
  )"),
            "");
}

TEST(VerifyTensor, TheRootIsASinkOfStores) {
  EXPECT_EQ(Tensor("%0 = const f32 1"), "node 0 (const): is the root, expected sink");
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 slot=0
    %1 = const f32 1
    %2 = store %0 %1
    %3 = sink %2
    %4 = sink %3
  )"),
            "node 3 (sink): expected only as the root");
  EXPECT_EQ(Message("%0 = const i64 1\n%1 = range i64 %0 id=0 type=loop\n%2 = end %1\n%3 = sink %2",
                    kTensorLevel),
            "node 1 (range): is not an op of the tensor level");
}

TEST(VerifyTensor, OnlyViewsOfParamsAreStoredTo) {
  for (std::string_view target :
       {"expand f32 [1, 3] %0", "pad f32 [1, 3] %0 pairs=[0, 1, 0, 3]", "neg f32 [1, 3] %0",
        "contiguous f32 [1, 3] %0", "detach f32 [1, 3] %0"}) {
    EXPECT_THAT(Tensor(StrCat("%0 = param f32 [1, 3] slot=0\n%1 = ", target,
                              "\n%2 = reshape f32 [3] %1\n%3 = const f32 1\n%4 = store %2 %3\n"
                              "%5 = sink %4")),
                HasSubstr("node 4 (store): source 0 is reshape, expected a view"))
        << std::string(target);
  }
}

TEST(VerifyTensor, AfterNamesStoresToItsParam) {
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 slot=0
    %1 = param f32 slot=1
    %2 = const f32 1
    %3 = store %1 %2
    %4 = after f32 %0 %3
    %5 = store %0 %4
    %6 = sink %5
  )"),
            "node 4 (after): source 1 stores to slot 1, expected slot 0");
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 slot=0
    %1 = const f32 1
    %2 = store %0 %1
    %3 = after f32 %1 %2
    %4 = store %0 %3
    %5 = sink %4
  )"),
            "node 3 (after): source 0 is const, expected param");
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 slot=0
    %1 = const f32 1
    %2 = store %0 %1
    %3 = sink %2
    %4 = after f32 %0 %3
    %5 = store %0 %4
    %6 = sink %5
  )"),
            "node 3 (sink): expected only as the root");
}

TEST(VerifyTensor, OneSlotIsOneBuffer) {
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 [2] slot=0
    %1 = param f32 [2, 1] slot=0
    %2 = reshape f32 [2] %1
    %3 = store %0 %2
    %4 = sink %3
  )"),
            "node 1 (param): slot 0 is f32 [2, 1], expected f32 [2] as elsewhere");
}

TEST(VerifyTensor, StoresToOneSlotAreOrdered) {
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 [2] slot=0
    %1 = const f32 1
    %2 = const f32 2
    %3 = store %0 %1
    %4 = store %0 %2
    %5 = sink %3 %4
  )"),
            "node 4 (store): stores to slot 0, as node 2 does, in no defined order; expected an "
            "after between them");
  // Ordered by way of the value, through another slot's store.
  EXPECT_EQ(Tensor(R"(
    %0 = param f32 [2] slot=0
    %1 = const f32 1
    %2 = store %0 %1
    %3 = after f32 [2] %0 %2
    %4 = param f32 [2] slot=1
    %5 = store %4 %3
    %6 = after f32 [2] %4 %5
    %7 = store %0 %6
    %8 = sink %2 %7
  )"),
            "");
  // Two after the same one are not ordered among themselves.
  EXPECT_THAT(Tensor(R"(
    %0 = param f32 [2] slot=0
    %1 = const f32 1
    %2 = store %0 %1
    %3 = after f32 [2] %0 %2
    %4 = const f32 2
    %5 = store %3 %1
    %6 = store %3 %4
    %7 = sink %5 %6
  )"),
              HasSubstr("no defined order"));
}

// Many stores, each of which would need a long search: cut off, not a hang.
TEST(VerifyTensor, TheOrderSearchIsBounded) {
  Graph g;
  const Shape shape{2};
  // Every slot's two stores are ordered only by way of one long common chain.
  constexpr int kSlots = 4000, kChain = 40'000;
  std::vector<UOp> first, second;
  for (int i = 0; i < kSlots; ++i) {
    first.push_back(
        g.Make(Op::kStore, {g.Param(i, DType::kInt32, shape), g.Const(DType::kInt32, i)}));
  }
  std::vector<UOp> versions;
  UOp chain = g.Const(DType::kInt32, 0);
  for (int i = 0; i < kSlots; ++i) {
    chain =
        g.Make(Op::kAdd, {chain, g.Make(Op::kAfter, {g.Param(i, DType::kInt32, shape), first[i]})});
  }
  for (int i = 0; i < kChain; ++i) chain = g.Make(Op::kNeg, {chain});
  for (int i = 0; i < kSlots; ++i) {
    second.push_back(g.Make(Op::kStore, {g.Param(i, DType::kInt32, shape), chain}));
  }
  const UOp root = g.Make(Op::kSink, DType::kVoid, second);
  ASSERT_TRUE(root.valid()) << g.status();
  EXPECT_EQ(Verify(root, kTensorLevel).code(), absl::StatusCode::kResourceExhausted);
}

constexpr std::string_view kGoodKernel = R"(
  %0 = param f32 [4] slot=1
  %1 = const i64 4
  %2 = range i64 %1 id=0 type=loop
  %3 = index f32 %0 %2
  %4 = param f32 [16] slot=0
  %5 = mul i64 %2 %1
  %6 = range i64 %1 id=1 type=reduce
  %7 = add i64 %5 %6
  %8 = index f32 %4 %7
  %9 = load f32 %8
  %10 = reduce f32 %9 %6 kind=add axes=[]
  %11 = store %3 %10
  %12 = end %11 %2
  %13 = sink %12
)";

// The text with one line replaced.
std::string With(std::string_view text, std::string_view label, std::string_view line) {
  std::string out(text);
  const size_t at = out.find(StrCat(label, " = "));
  EXPECT_NE(at, std::string::npos) << std::string(label);
  out.replace(at, out.find('\n', at) - at, line);
  return out;
}

TEST(VerifyKernel, GoodAndBad) {
  EXPECT_EQ(Kernel(kGoodKernel), "");
  EXPECT_EQ(Kernel(With(kGoodKernel, "%13", "%13 = sink %11")),
            "node 2 (range): is still open at the sink, expected an end or a reduce to close it");
  EXPECT_THAT(Kernel(With(kGoodKernel, "%10", "%10 = neg f32 %9")), HasSubstr("still open"));
  EXPECT_EQ(Kernel(With(kGoodKernel, "%6", "%6 = range i64 %1 id=0 type=reduce")),
            "node 6 (range): id 0 is used twice, expected unique range ids");
  EXPECT_EQ(Kernel(With(kGoodKernel, "%6", "%6 = range i64 %1 id=1 type=loop")),
            "node 10 (reduce): reduces over a range of type loop, expected reduce, unroll, upcast, "
            "vector, local or warp");
  EXPECT_THAT(Kernel(With(kGoodKernel, "%9", "%9 = add f32 %8 %8")),
              HasSubstr("(add): source 0 is an address, expected a load of it"));
  EXPECT_THAT(Kernel(With(kGoodKernel, "%4", "%4 = param f32 [4, 4] slot=0")),
              HasSubstr("expected one dimension"));
  EXPECT_THAT(Kernel(With(kGoodKernel, "%11", "%11 = store %0 %10")),
              HasSubstr("(store): source 0 is param, expected index"));
}

constexpr std::string_view kGoodProgram = R"(
program p iterations=4 flops=0 bytes=0 arguments=[f32 16 read, f32 4 write]
%0 = const i64 4
%1 = const f32 0
%2 = const i64 0
%3 = param f32 [16] slot=0
%4 = param f32 [4] slot=1
%5 = buffer f32 [1] space=register slot=0
%6 = range i64 %0 id=0 type=thread
%7 = index f32 %5 %2
%8 = store %7 %1
%9 = range i64 %0 id=1 type=reduce
%10 = mul i64 %6 %0
%11 = add i64 %10 %9
%12 = index f32 %3 %11
%13 = load f32 %12
%14 = after f32 [1] %5 %8 %9
%15 = index f32 %14 %2
%16 = load f32 %15
%17 = add f32 %16 %13
%18 = store %7 %17
%19 = end %9
%20 = after f32 [1] %5 %19
%21 = index f32 %20 %2
%22 = load f32 %21
%23 = index f32 %4 %6
%24 = store %23 %22
%25 = end %6
)";

std::string ProgramMessage(std::string_view text) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return "not parsed";
  return std::string(Verify(*program).message());
}

TEST(VerifyProgram, GoodAndBad) {
  const auto with = [](std::string_view label, std::string_view line) {
    return ProgramMessage(With(kGoodProgram, label, line));
  };
  EXPECT_EQ(ProgramMessage(kGoodProgram), "");
  EXPECT_EQ(with("%25", ""), "node 6 (range): is not closed by an end");
  EXPECT_THAT(with("%19", "%19 = end %6"),
              HasSubstr("(end): closes node 6, expected the innermost open range"));
  EXPECT_EQ(with("%22", "%22 = neg f32 %16"),
            "node 22 (neg): source 0 (node 16) belongs to a loop that has ended");
  EXPECT_EQ(
      with("%9", "%9 = range i64 %0 id=1 type=unroll"),
      "node 9 (range): is of type unroll, expected loop, thread, reduce, group, local or warp");
  EXPECT_EQ(with("%9", "%9 = range i64 %0 id=1 type=thread"),
            "node 9 (range): is a thread range, expected the first range");
  EXPECT_EQ(with("%6", "%6 = range i64 %2 id=0 type=thread"),
            "node 6 (range): runs to 0, expected the program's 4 iterations");
  EXPECT_EQ(with("%6", "%6 = range i64 %0 id=0 type=loop"),
            "the program has 4 iterations and no thread range, expected 1");
  EXPECT_EQ(with("%3", "%3 = param f32 [15] slot=0"),
            "node 3 (param): slot 0 is f32 [15], expected f32 [16] as the argument");
  EXPECT_EQ(with("%3", "%3 = param f32 [16] slot=2"),
            "node 3 (param): slot 2 is not one of the 2 arguments");
  EXPECT_EQ(with("%24", "%24 = store %12 %22"),
            "node 24 (store): source 0 (node 12) belongs to a loop that has ended");
  EXPECT_EQ(with("%12", "%12 = index f32 %4 %11"),
            "node 13 (load): reads argument 1, which does not say so");
  EXPECT_EQ(with("%23", "%23 = index f32 %3 %6"),
            "node 24 (store): writes argument 0, which does not say so");
  EXPECT_EQ(with("%17", "%17 = detach f32 %16"),
            "node 17 (detach): is not an op of the program level");
  EXPECT_EQ(with("%5", "%5 = buffer f32 [1] space=global slot=0"),
            "node 5 (buffer): is in global memory, expected local or register");
  EXPECT_THAT(with("%17", "%17 = add f32 %15 %13"), HasSubstr("is an address"));
  EXPECT_THAT(with("%8", "%8 = store %7 %1\n%30 = range i64 %0 id=5 type=loop\n%31 = end %30"), "");
  EXPECT_THAT(with("%25", "%25 = end %6\n%30 = range i64 %0 id=5 type=loop\n%31 = end %30"),
              HasSubstr("outside of the thread range"));
  EXPECT_THAT(with("%25", "%25 = end %6\n%30 = index f32 %4 %2\n%31 = store %30 %1"),
              HasSubstr("writes outside of the thread range"));
  std::string text(kGoodProgram);
  text.replace(text.find("program p"), 9, "program 1p");
  EXPECT_THAT(ProgramMessage(text), HasSubstr("expected a C identifier"));
}

TEST(VerifyProgram, OrdersThatTextCannotSay) {
  absl::StatusOr<Program> program = ParseProgram(kGoodProgram);
  ASSERT_TRUE(program.ok());
  const auto message = [&](auto edit) {
    Program changed = *program;
    edit(changed);
    return std::string(Verify(changed).message());
  };
  EXPECT_THAT(message([](Program& p) { std::swap(p.order[16], p.order[17]); }),
              HasSubstr("node 16 (add): source 0 (load) does not appear before it"));
  EXPECT_THAT(message([](Program& p) { p.order.push_back(p.order[0]); }),
              HasSubstr("appears twice"));
  EXPECT_THAT(message([](Program& p) { p.order.push_back(10'000); }), HasSubstr("node 10000"));
  EXPECT_THAT(message([](Program& p) { p.graph = nullptr; }), HasSubstr("no graph"));
}

// --- functions, symbolic sizes, packed types ---

constexpr std::string_view kFunction = R"(
%0 = param f32 [4] slot=0
%1 = arg f32 [4] slot=0
%2 = neg f32 [4] %1
%3 = tuple %2
%4 = call %3 %0
%5 = gettuple f32 [4] %4 n=0
%6 = param f32 [4] slot=1
%7 = store %6 %5
%8 = sink %7
)";

TEST(VerifyTensor, BodiesNameOnlyTheirArguments) {
  const auto with = [](std::string_view label, std::string_view line) {
    return Tensor(With(kFunction, label, line));
  };
  EXPECT_EQ(Tensor(kFunction), "");
  EXPECT_THAT(with("%2", "%2 = add f32 [4] %1 %0"), HasSubstr("(param): is in the body of node"));
  EXPECT_THAT(with("%1", "%1 = arg f32 [4] slot=1"),
              HasSubstr("is argument 1 of node 5, which has 1"));
  EXPECT_THAT(with("%0", "%9 = param f32 [4] slot=0\n%0 = copy f32 [4] %9 devices=[1]"),
              HasSubstr("on device 0, expected as argument 0 of node 6: f32 [4] on [1]"));
  EXPECT_THAT(with("%7", "%7 = store %6 %2"), HasSubstr("(arg): is outside of a body"));
  // A loop's argument 0 is its iteration.
  EXPECT_EQ(with("%4", "%9 = const i64 3\n%4 = loop %3 %9 %0"),
            "node 1 (arg): is f32 [4], expected the iteration of node 6, a scalar i64");
}

TEST(VerifyTensor, SizesAreKnownBeforeTheRun) {
  const auto message = [](std::string_view size) {
    return Tensor(StrCat(R"(
      %0 = param f32 [8] slot=0
      %1 = param i64 slot=1
      %9 = )",
                         size, R"(
      %2 = shrink f32 [8] %0 %9 pairs=[0, -2]
      %3 = reduce f32 [1] %2 kind=add axes=[0]
      %4 = param f32 [1] slot=2
      %5 = store %4 %3
      %6 = sink %5)"));
  };
  EXPECT_EQ(message("var i64 id=0 min=0 max=8 multiple=1"), "");
  EXPECT_THAT(message("var i64 %1 id=0 min=0 max=8 multiple=1"),
              HasSubstr("(shrink): the symbolic size (source 1) depends on more than constants"));
}

TEST(VerifyTensor, PackedBuffersAreWrittenWhole) {
  const auto message = [](std::string_view target) {
    return Tensor(StrCat("%0 = param u4 [8] slot=0\n%1 = param u4 [8] slot=1\n%2 = ", target,
                         "\n%3 = flip u4 [8] %1 axes=[0]\n%4 = store %2 %3\n%5 = sink %4"));
  };
  EXPECT_EQ(message("reshape u4 [8] %0"), "");
  EXPECT_THAT(message("flip u4 [8] %0 axes=[0]"), HasSubstr("writes a part of a packed u4 buffer"));
}

// --- programs for many threads ---

constexpr std::string_view kManyThreads = R"(
program copy iterations=2 flops=0 bytes=512 warp=32 arguments=[f32 128 read, f32 128 write]
%0 = const i64 2
%1 = const i64 32
%2 = range i64 %0 id=0 type=group
%3 = range i64 %0 id=1 type=local
%4 = range i64 %1 id=2 type=warp
%5 = param f32 [128] slot=0
%6 = param f32 [128] slot=1
%7 = mbarrier i64 [1] slot=0 arrivals=1
%8 = buffer f32 [64] space=local slot=1
%9 = const i64 0
%10 = index i64 %7 %9
%11 = role first=0 count=1
%12 = arrive %10 n=0
%13 = end %11
%14 = wait_phase %10 %9
%15 = index f32 %5 %4
%16 = load f32 %15
%17 = index f32 %6 %4
%18 = store %17 %16
%19 = barrier scope=workgroup
%20 = end %4
%21 = end %3
%22 = end %2
)";

TEST(VerifyProgram, ManyThreads) {
  const auto with = [](std::string_view label, std::string_view line) {
    return ProgramMessage(With(kManyThreads, label, line));
  };
  EXPECT_EQ(ProgramMessage(kManyThreads), "");
  EXPECT_THAT(with("%3", "%3 = range i64 %0 id=1 type=loop"),
              HasSubstr("expected it before any loop"));
  EXPECT_THAT(with("%2", "%2 = range i64 %0 id=0 type=warp"),
              HasSubstr("expected the warp's size 32"));
  EXPECT_THAT(with("%4", "%4 = range i64 %1 id=2 type=group"), HasSubstr("inside of local"));
  EXPECT_THAT(with("%11", "%11 = role first=1 count=2"),
              HasSubstr("names warps up to 3, but the workgroup has 2"));
  EXPECT_THAT(with("%12", "%30 = index f32 %8 %9\n%12 = arrive %30 n=0"),
              HasSubstr("points into buffer, expected mbarrier"));
  // All of it is inside of the parallel ranges.
  EXPECT_THAT(with("%3", "%30 = barrier scope=warp\n%3 = range i64 %0 id=1 type=local"),
              HasSubstr("comes after an effect (node 3)"));
  EXPECT_THAT(with("%21", "%30 = add i64 %3 %3\n%21 = end %3"),
              HasSubstr("(add): comes after the end of a parallel range"));
  EXPECT_THAT(with("%12", "%30 = buffer f32 [4] space=local slot=9\n%12 = arrive %10 n=0"),
              HasSubstr("belongs to the workgroup, expected it outside of loops and roles"));
  EXPECT_EQ(with("%12", "%30 = buffer f32 [4] space=register slot=9\n%12 = arrive %10 n=0"), "");
  // Sources tell one barrier, and one role, from another.
  EXPECT_THAT(with("%20", "%30 = barrier scope=workgroup\n%20 = end %4"),
              HasSubstr("appears twice in the order"));
  EXPECT_EQ(with("%20", "%30 = barrier %18 scope=workgroup\n%20 = end %4"), "");
  EXPECT_EQ(with("%14", "%30 = role %12 first=0 count=1\n%31 = end %30\n%14 = wait_phase %10 %9"),
            "");
}

TEST(VerifyProgram, AsynchronousOperations) {
  const auto with = [](std::string_view lines) {
    return ProgramMessage(
        With(kManyThreads, "%19", StrCat("%30 = index f32 %8 %9\n%31 = index f32 %5 %9\n", lines)));
  };
  EXPECT_EQ(with("%19 = copy_async %30 %31 rows=2 columns=4 to_stride=4 from_stride=0"), "");
  EXPECT_THAT(with("%19 = copy_async %30 %31 rows=2 columns=4 to_stride=3 from_stride=0"),
              HasSubstr("has rows of 4 elements 3 apart, which overlap where they are written"));
  EXPECT_THAT(with("%19 = copy_async %31 %30 rows=1 columns=4 to_stride=4 from_stride=4"),
              HasSubstr("writes argument 0, which does not say so"));
  EXPECT_THAT(with("%32 = buffer f32 [4] space=register slot=9\n%33 = index f32 %32 %9\n"
                   "%19 = copy_async %33 %31 rows=1 columns=4 to_stride=4 from_stride=4"),
              HasSubstr("source 0 points into registers, expected global or local memory"));
  EXPECT_THAT(with("%32 = copy_async %30 %31 %10 rows=1 columns=4 to_stride=4 from_stride=4\n"
                   "%19 = wait %32 n=0"),
              HasSubstr("whose bytes a phased barrier counts, expected a wait_phase"));
}

TEST(VerifyProgram, MatricesAreLoadedFromLocalMemoryByWholeWarps) {
  const auto with = [](int lanes, std::string_view space) {
    return ProgramMessage(StrCat(R"(
      program matrices iterations=1 flops=0 bytes=0 warp=)",
                                 lanes, R"( arguments=[]
      %0 = const i64 )",
                                 lanes, R"(
      %1 = range i64 %0 id=0 type=warp
      %2 = buffer f16 [64] space=)",
                                 space, R"( slot=0
      %3 = const i64 0
      %4 = index f16 %2 %3
      %5 = load_matrix f16 [2] %4 count=1 transposed=0
      %6 = end %1)"));
  };
  EXPECT_EQ(with(32, "local"), "");
  EXPECT_THAT(with(64, "local"), HasSubstr("is run by warps of 32 threads"));
  EXPECT_THAT(with(32, "register"), HasSubstr("does not point into local memory"));
}

TEST(VerifyProgram, MatrixInstructionsHaveTheThreadsThatTheyAreMadeFor) {
  const auto with = [](int warps, std::string_view role) {
    return ProgramMessage(StrCat(R"(
      program mma iterations=1 flops=0 bytes=0 warp=32 arguments=[]
      %0 = const i64 )",
                                 warps, R"(
      %1 = range i64 %0 id=0 type=local
      %2 = const i64 32
      %3 = range i64 %2 id=1 type=warp
      %4 = buffer f16 [4096] space=local slot=0
      %5 = buffer f32 [32] space=register slot=1
      %6 = const i64 0
      %7 = iota i64 [32]
      %8 = index f16 %4 %6
      %9 = index f32 [32] %5 %7
      %10 = role )",
                                 role, R"(
      %11 = mma_async %8 %8 %9 kind=sm90_m64n64k16_f16 a_stride=16 b_stride=64
      %12 = end %10
      %13 = end %3
      %14 = end %1)"));
  };
  EXPECT_EQ(with(4, "first=0 count=4"), "");
  EXPECT_EQ(with(8, "first=4 count=4"), "");
  EXPECT_EQ(with(5, "first=0 count=4"), "");
  EXPECT_THAT(with(3, "first=0 count=3"), HasSubstr("expected the role to be made of such"));
  EXPECT_THAT(with(8, "first=2 count=4"),
              HasSubstr("is run by 4 warps together, expected the role to be made of such"));
}

}  // namespace
}  // namespace telegrad
