// What lanes of a warp do together: divergence, tables of branches, shuffles, votes, matrices,
// vectors in memory, local memory. Fragments are laid out here as the PTX ISA's formulas say.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

std::vector<uint32_t> RunLanes(const std::string& body, uint32_t threads = 32,
                               const std::string& declarations = "", uint64_t shared = 0) {
  // The body leaves its result in %r0.
  std::vector<std::vector<uint8_t>> buffers = {std::vector<uint8_t>(4 * threads)};
  const std::string text = Module(1,
                                  ".reg .b32 %r<32>; .reg .b64 %x<16>; .reg .pred %p<8>; .reg .b16 "
                                  "%h<8>; .reg .f32 %f<16>; mov.u32 %r31, %tid.x;\n" +
                                      body +
                                      "\nld.param.u64 %x15, [p0]; mul.wide.u32 %x14, %r31, 4; "
                                      "add.s64 %x15, %x15, %x14; st.global.u32 [%x15], %r0; ret;",
                                  declarations);
  const RunResult run =
      RunPtx(text, {.block = {threads, 1, 1}, .dynamic_shared = shared}, &buffers);
  EXPECT_EQ(run.error + run.fault.message, "");
  return ValuesOf<uint32_t>(buffers[0]);
}

TEST(DivergenceTest, LanesPartAndMeet) {
  // Collatz steps: each lane its own number of turns, with branches inside; then all shuffle.
  const auto out = RunLanes(R"(
    add.s32 %r1, %r31, 1; mov.u32 %r2, 0;
$loop:
    setp.eq.s32 %p0, %r1, 1; @%p0 bra $done;
    and.b32 %r3, %r1, 1; setp.eq.s32 %p1, %r3, 0; @%p1 bra $even;
    mad.lo.s32 %r1, %r1, 3, 1; bra.uni $next;
$even: shr.u32 %r1, %r1, 1;
$next: add.s32 %r2, %r2, 1; bra.uni $loop;
$done: shfl.sync.idx.b32 %r0, %r2, 26, 31, -1; add.s32 %r0, %r0, %r2;)");
  const auto steps = [](uint32_t n) {
    uint32_t count = 0;
    for (; n != 1; ++count) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    return count;
  };
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], steps(i + 1) + steps(27));
}

TEST(DivergenceTest, TablesOfBranches) {
  const auto out = RunLanes(R"(
    rem.u32 %r1, %r31, 3;
$table: .branchtargets $a, $b, $c;
    brx.idx %r1, $table;
$a: mov.u32 %r0, 10; bra $end;
$b: mov.u32 %r0, 20; bra $end;
$c: mov.u32 %r0, 30;
$end:)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 10 * (i % 3 + 1));
}

TEST(DivergenceTest, LanesThatEndedAreNotWaitedFor) {
  const auto out = RunLanes(
      "mov.u32 %r0, 0; setp.gt.u32 %p0, %r31, 40; @%p0 exit; bar.sync 0; "
      "mov.u32 %r0, 7;",
      64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i > 40 ? 0u : 7u);
}

// PTX ISA, "shfl.sync", as its pseudo-code.
TEST(ShuffleTest, Modes) {
  for (const std::string mode : {"up", "down", "bfly", "idx"}) {
    for (const uint32_t b : {0u, 1u, 5u, 16u, 31u}) {
      for (const uint32_t c : {31u, 0u, 0x181fu, 0x1c03u, 15u}) {
        const auto out =
            RunLanes("mul.lo.u32 %r1, %r31, 100; shfl.sync." + mode + ".b32 %r2|%p0, %r1, " +
                     std::to_string(b) + ", " + std::to_string(c) +
                     ", 0xffffffff; selp.u32 %r3, 1, 0, %p0; add.s32 %r0, %r2, %r3;");
        for (uint32_t lane = 0; lane < 32; ++lane) {
          const uint32_t mask = c >> 8 & 31;
          const uint32_t limit = (lane & mask) | (c & 31 & ~mask);
          int from = 0;
          bool inside = false;
          if (mode == "up") {
            from = static_cast<int>(lane) - static_cast<int>(b);
            inside = from >= static_cast<int>(limit);
          } else {
            from = static_cast<int>(mode == "down"   ? lane + b
                                    : mode == "bfly" ? lane ^ b
                                                     : (lane & mask) | (b & ~mask));
            inside = from <= static_cast<int>(limit);
          }
          if (!inside) from = static_cast<int>(lane);
          EXPECT_EQ(out[lane], static_cast<uint32_t>(from) * 100 + (inside ? 1 : 0))
              << mode << " " << b << " " << c << " lane " << lane;
        }
      }
    }
  }
}

TEST(VoteTest, CountsTheMembers) {
  const auto ballots = RunLanes("setp.lt.u32 %p0, %r31, 5; vote.sync.ballot.b32 %r0, %p0, -1;");
  EXPECT_EQ(ballots, std::vector<uint32_t>(32, 31));
  const auto any = RunLanes(
      "setp.eq.u32 %p0, %r31, 5; vote.sync.any.pred %p1, %p0, -1; vote.sync.all.pred %p2, !%p0, "
      "-1; "
      "selp.u32 %r0, 1, 0, %p1; selp.u32 %r1, 2, 0, %p2; add.s32 %r0, %r0, %r1;");
  EXPECT_EQ(any, std::vector<uint32_t>(32, 1));
  const auto sums = RunLanes("redux.sync.add.u32 %r0, %r31, -1;");
  EXPECT_EQ(sums, std::vector<uint32_t>(32, 496));
  const auto active = RunLanes(
      "mov.u32 %r0, 0; setp.ge.u32 %p0, %r31, 8; @%p0 bra $end; activemask.b32 %r0; $end:");
  EXPECT_EQ(active[0], 255u);
}

TEST(MemoryTest, VectorsAndLocalMemory) {
  const auto out = RunLanes(R"(
    .local .align 16 .b8 depot[32];
    mov.u64 %x0, depot; cvta.local.u64 %x1, %x0;
    add.s32 %r1, %r31, 1; add.s32 %r2, %r31, 2; add.s32 %r3, %r31, 3;
    st.local.v4.u32 [%x0+16], {%r31, %r1, %r2, %r3};
    ld.v2.u32 {%r4, %r5}, [%x1+24];
    mad.lo.s32 %r0, %r4, 100, %r5;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 100 * (i + 2) + i + 3);
}

// LLVM packs registers that it never wrote and looks only at the others.
TEST(MemoryTest, UnwrittenRegistersStayInTheirWidth) {
  const auto out = RunLanes(
      "cvt.u16.u32 %h1, %r31; mov.b32 %r1, {%h2, %h1}; and.b32 %r2, %r1, %r3; "
      "cvt.u64.u32 %x1, %r3; shr.u64 %x2, %x1, 32; cvt.u32.u64 %r4, %x2; shr.u32 %r5, %r1, 16; "
      "add.s32 %r0, %r4, %r5;");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i);
}

TEST(MemoryTest, SmallLoadsExtend) {
  const auto out = RunLanes(R"(
    mov.u64 %x0, smem; cvt.u64.u32 %x1, %r31; add.s64 %x2, %x0, %x1;
    add.s32 %r1, %r31, 112; st.shared.u8 [%x2], %r1;
    ld.shared.s8 %r2, [%x2]; ld.shared.u8 %h1, [%x2]; cvt.u32.u16 %r3, %h1;
    mad.lo.s32 %r0, %r2, 1000, %r3;)",
                            32, ".extern .shared .align 16 .b8 smem[];", 64);
  for (uint32_t i = 0; i < 32; ++i) {
    const auto value = static_cast<uint8_t>(i + 112);
    EXPECT_EQ(static_cast<int32_t>(out[i]), static_cast<int8_t>(value) * 1000 + value);
  }
}

TEST(MemoryTest, ConstantsOfTheModuleAndGenericSharedAddresses) {
  const auto out = RunLanes(R"(
    mov.u64 %x0, smem; cvta.shared.u64 %x1, %x0; mul.wide.u32 %x2, %r31, 8; add.s64 %x1, %x1, %x2;
    mov.b64 %x3, {%r31, 7}; st.u64 [%x1], %x3;
    cvta.to.shared.u64 %x4, %x1; ld.shared.u32 %r1, [%x4+4];
    mov.b64 {%r2, %r3}, %x3; add.s32 %r0, %r1, %r2;)",
                            32, ".extern .shared .align 16 .b8 smem[];", 256);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 7 + i);
}

// c += a * b of 16 x 8 x 16, each lane's registers given and read one after another.
TEST(MatrixTest, FragmentsLieAsTheIsaSays) {
  std::mt19937_64 random(12);
  for (const bool brain : {false, true}) {
    const auto encode = [&](int v) -> uint32_t {  // small integers are exact in both
      if (brain) return std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16;
      if (v == 0) return 0;
      const uint32_t sign = v < 0 ? 0x8000 : 0;
      const auto size = static_cast<uint32_t>(std::abs(v));
      const int top = 31 - std::countl_zero(size);
      return sign | static_cast<uint32_t>(top + 15) << 10 | (size << (10 - top) & 1023);
    };
    int a[16][16];
    int b[16][8];
    int c[16][8];
    for (auto& row : a)
      for (int& v : row) v = static_cast<int>(random() % 17) - 8;
    for (auto& row : b)
      for (int& v : row) v = static_cast<int>(random() % 17) - 8;
    for (auto& row : c)
      for (int& v : row) v = static_cast<int>(random() % 2001) - 1000;
    std::vector<uint32_t> in(32 * 10);  // a 4, b 2, c 4 registers of each lane
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2;
      const int in_group = lane % 4;
      uint32_t* r = &in[static_cast<size_t>(lane) * 10];
      for (int i = 0; i < 8; ++i) {
        const int row = (i < 2 || (4 <= i && i < 6)) ? group : group + 8;
        const int column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
        r[i / 2] |= encode(a[row][column]) << (16 * (i % 2));
      }
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
        r[4 + i / 2] |= encode(b[row][group]) << (16 * (i % 2));
      }
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? group : group + 8;
        r[6 + i] = std::bit_cast<uint32_t>(static_cast<float>(c[row][in_group * 2 + (i & 1)]));
      }
    }
    std::string body =
        ".reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %x<8>; mov.u32 %r15, %tid.x; "
        "ld.param.u64 %x0, [p0]; ld.param.u64 %x1, [p1]; mul.wide.u32 %x2, %r15, 40; "
        "add.s64 %x0, %x0, %x2; mul.wide.u32 %x2, %r15, 16; add.s64 %x1, %x1, %x2;\n";
    for (int i = 0; i < 6; ++i) {
      body += "ld.global.b32 %r" + std::to_string(i) + ", [%x0+" + std::to_string(4 * i) + "];\n";
    }
    for (int i = 0; i < 4; ++i) {
      body +=
          "ld.global.f32 %f" + std::to_string(i) + ", [%x0+" + std::to_string(24 + 4 * i) + "];\n";
    }
    const std::string type = brain ? "bf16" : "f16";
    body += "mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
            ".f32 {%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};\n"
            "st.global.v4.f32 [%x1], {%f4,%f5,%f6,%f7}; ret;";
    std::vector<std::vector<uint8_t>> buffers = {BytesOf(in), std::vector<uint8_t>(32 * 16)};
    const RunResult run = RunPtx(Module(2, body), {.block = {32, 1, 1}}, &buffers);
    ASSERT_EQ(run.error + run.fault.message, "");
    const auto out = ValuesOf<float>(buffers[1]);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
        const int column = lane % 4 * 2 + (i & 1);
        int expected = c[row][column];
        for (int k = 0; k < 16; ++k) expected += a[row][k] * b[k][column];
        EXPECT_EQ(out[static_cast<size_t>(lane * 4 + i)], static_cast<float>(expected));
      }
    }
    // A warp that is not whole cannot.
    const RunResult part = RunPtx(Module(2, body), {.block = {16, 1, 1}}, &buffers);
    EXPECT_EQ(part.fault.code, FaultCode::kLaunchFailed);
  }
}

// Element (r, c) of matrix m holds 1000 m + 10 r + c.
TEST(MatrixTest, LoadsGiveEachLaneItsElements) {
  for (const int count : {1, 2, 4}) {
    for (const bool transposed : {false, true}) {
      std::string body = R"(
        mov.u64 %x0, smem; mul.wide.u32 %x1, %r31, 16; add.s64 %x2, %x0, %x1;
        shr.u32 %r1, %r31, 3; and.b32 %r2, %r31, 7; mul.lo.u32 %r3, %r1, 1000;
        mad.lo.u32 %r3, %r2, 10, %r3;
)";
      for (int c = 0; c < 8; ++c) {
        body += "add.s32 %r4, %r3, " + std::to_string(c) + "; st.shared.u16 [%x2+" +
                std::to_string(2 * c) + "], %r4;\n";
      }
      const std::string registers = count == 1   ? "{%r10}"
                                    : count == 2 ? "{%r10,%r11}"
                                                 : "{%r10,%r11,%r12,%r13}";
      body += "bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
              (transposed ? ".trans" : "") + ".shared.b16 " + registers + ", [%x2];\n";
      for (int m = 0; m < count; ++m) {
        const auto out = RunLanes(body + "mov.b32 %r0, %r1" + std::to_string(m) + ";", 32,
                                  ".extern .shared .align 16 .b8 smem[];", 512);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          for (uint32_t h = 0; h < 2; ++h) {
            const uint32_t row = transposed ? 2 * (lane % 4) + h : lane / 4;
            const uint32_t column = transposed ? lane / 4 : 2 * (lane % 4) + h;
            EXPECT_EQ(out[lane] >> (16 * h) & 0xffff,
                      1000 * static_cast<uint32_t>(m) + 10 * row + column);
          }
        }
      }
    }
  }
}

TEST(AtomicTest, Operations) {
  const auto out = RunLanes(R"(
    mov.u64 %x0, smem; setp.eq.u32 %p0, %r31, 0;
    @%p0 st.shared.u32 [%x0], 5; @%p0 st.shared.f32 [%x0+4], 0f3f800000;
    bar.warp.sync -1;
    atom.shared.add.u32 %r1, [%x0], 2; red.shared.add.f32 [%x0+4], 0f3f000000;
    bar.warp.sync -1;
    atom.shared.cas.b32 %r2, [%x0], 69, 70;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%x0]; ld.shared.f32 %f1, [%x0+4]; cvt.rzi.u32.f32 %r4, %f1;
    mad.lo.s32 %r0, %r3, 100, %r4;)",
                            32, ".extern .shared .align 16 .b8 smem[];", 64);
  EXPECT_EQ(out, std::vector<uint32_t>(32, 70 * 100 + 17));
}

}  // namespace
}  // namespace fakecuda
