// Copies of boxes by tensor maps: of every rank, over the sides of the tensor, swizzled; and the
// same kernel with one thing taken away or wrong, which is refused.
#include <gtest/gtest.h>

#include <random>

#include "tests/fakes/cuda/ptx/run_ptx.h"
#include "tests/fakes/cuda/ptx/tensor_map.h"

namespace fakecuda {
namespace {

constexpr uint32_t kBoxThreads = 64;

// k(in, out, map, c0 ... c4): copies the box at c to shared memory and from there, as it lies, to
// out, `bytes` of them.
std::string BoxKernel(uint32_t rank, uint32_t bytes) {
  std::string parameters = ".param .u64 p0, .param .u64 p1, .param .align 64 .b8 map[128]";
  std::string loads, coordinates;
  for (uint32_t i = 0; i < kMostDimensions; ++i) {
    const std::string n = std::to_string(i);
    parameters += ", .param .u32 c" + n;
    loads += "  ld.param.u32 %c" + n + ", [c" + n + "];\n";
    if (i < rank) coordinates += (i > 0 ? ", %c" : "%c") + n;
  }
  const std::string size = std::to_string(bytes);
  return ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(" + parameters + R"()
{
  .reg .b32 %r<8>; .reg .b32 %c<5>; .reg .b64 %x<8>; .reg .pred %p<4>;
  .shared .align 1024 .b8 tile[)" +
         size + R"(];
  .shared .align 8 .b64 here;
  ld.param.u64 %x1, [p1];
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, here;
)" + loads +
         R"(  setp.ne.s32 %p0, %r0, 0;
  @%p0 bra $started;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mov.b64 %x2, map;
  cvta.param.u64 %x2, %x2;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], )" +
         size + R"(;
  cp.async.bulk.tensor.)" +
         std::to_string(rank) +
         "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%x2, {" + coordinates +
         R"(}], [%r2];
$started:
  bar.sync 0;
$wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra $wait;
  mov.u32 %r3, %r0;
$next:
  setp.ge.u32 %p2, %r3, )" +
         size + R"(;
  @%p2 bra $end;
  add.u32 %r4, %r1, %r3;
  ld.shared.u8 %r5, [%r4];
  cvt.u64.u32 %x3, %r3;
  add.s64 %x4, %x1, %x3;
  st.global.u8 [%x4], %r5;
  add.u32 %r3, %r3, )" +
         std::to_string(kBoxThreads) + R"(;
  bra $next;
$end:
  ret;
}
)";
}

// k(tensor, in, map, c0 ... c4): copies `bytes` of `in` to shared memory, and from there, as a box,
// to c of the tensor.
std::string StoringKernel(uint32_t rank, uint32_t bytes) {
  const std::string size = std::to_string(bytes);
  std::string text = BoxKernel(rank, bytes);
  const size_t begin = text.find("  setp.ne.s32 %p0"), end = text.find("$end:");
  const size_t from = text.find("{%c0"), to = text.find('}', from) + 1;
  const std::string coordinates = text.substr(from, to - from);
  return text.replace(begin, end - begin,
                      R"(  mov.u32 %r3, %r0;
$next:
  setp.ge.u32 %p2, %r3, )" +
                          size + R"(;
  @%p2 bra $copied;
  cvt.u64.u32 %x3, %r3;
  add.s64 %x4, %x1, %x3;
  ld.global.u8 %r5, [%x4];
  add.u32 %r4, %r1, %r3;
  st.shared.u8 [%r4], %r5;
  add.u32 %r3, %r3, )" + std::to_string(kBoxThreads) +
                          R"(;
  bra $next;
$copied:
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.s32 %p0, %r0, 0;
  @%p0 bra $end;
  mov.b64 %x2, map;
  cvta.param.u64 %x2, %x2;
  cp.async.bulk.tensor.)" +
                          std::to_string(rank) + "d.global.shared::cta.tile.bulk_group [%x2, " +
                          coordinates + R"(], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)");
}

struct BoxCase {
  TensorMap map;
  std::array<int32_t, kMostDimensions> corner = {};
  uint64_t first = 64;  // byte of the buffer where the tensor begins
};

uint32_t BoxBytes(const TensorMap& map) {
  uint32_t bytes = map.element_bytes;
  for (uint32_t d = 0; d < map.rank; ++d) bytes *= map.Elements(d);
  return bytes;
}

// The bytes of the tensor, from its first element on.
uint64_t TensorBytes(const TensorMap& map) {
  uint64_t bytes = map.element_bytes;
  for (uint32_t d = 0; d < map.rank; ++d) bytes += (map.sizes[d] - 1) * map.strides[d];
  return bytes;
}

// Every element of the box by its coordinates.
std::vector<uint8_t> ExpectedBox(const BoxCase& c, const std::vector<uint8_t>& source) {
  std::vector<uint8_t> out;
  std::array<uint32_t, kMostDimensions> i = {};
  const uint32_t all = BoxBytes(c.map) / c.map.element_bytes;
  for (uint32_t n = 0; n < all; ++n) {
    uint64_t from = c.first;
    bool inside = true;
    for (uint32_t d = 0; d < c.map.rank; ++d) {
      const int64_t at = int64_t{c.corner[d]} + int64_t{i[d]} * c.map.steps[d];
      inside &= at >= 0 && at < static_cast<int64_t>(c.map.sizes[d]);
      from += static_cast<uint64_t>(at) * c.map.strides[d];
    }
    for (uint32_t b = 0; b < c.map.element_bytes; ++b) {
      const uint8_t nan = b + 1 == c.map.element_bytes ? 0x7f : 0xff;
      out.push_back(inside ? source[from + b] : c.map.fills_nan ? nan : 0);
    }
    for (uint32_t d = 0; d < c.map.rank && ++i[d] == c.map.Elements(d); ++d) i[d] = 0;
  }
  return out;
}

std::vector<uint8_t> NoisyBytes(uint64_t bytes) {
  std::mt19937 random(7);
  std::vector<uint8_t> out(bytes);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

RunResult RunBox(const std::string& text, const BoxCase& c,
                 std::vector<std::vector<uint8_t>>* buffers, bool broken = false) {
  TensorMap map = c.map;
  map.address = kBufferBase + c.first;
  TensorMapBytes bytes = EncodeTensorMap(map);
  if (broken) bytes[40] ^= 1;
  // Behind two addresses the map is at its alignment.
  std::vector<uint64_t> words(6 + 16 + 3);
  std::memcpy(&words[6], bytes.data(), bytes.size());
  std::memcpy(&words[22], c.corner.data(), sizeof(c.corner));
  return RunPtx(text, {.grid = {1, 1, 1}, .block = {kBoxThreads, 1, 1}}, buffers, words, 1'000'000);
}

void ExpectBox(const BoxCase& c) {
  const uint32_t bytes = BoxBytes(c.map);
  std::vector<std::vector<uint8_t>> buffers = {NoisyBytes(c.first + TensorBytes(c.map)),
                                               std::vector<uint8_t>(bytes)};
  const RunResult run = RunBox(BoxKernel(c.map.rank, bytes), c, &buffers);
  ASSERT_EQ(run.error + run.fault.message, "");
  EXPECT_EQ(buffers[1], ExpectedBox(c, buffers[0]));
}

void ExpectStored(const BoxCase& c) {
  const uint32_t bytes = BoxBytes(c.map);
  std::vector<uint8_t> tensor = NoisyBytes(c.first + TensorBytes(c.map));
  std::vector<uint8_t> box = NoisyBytes(bytes + 1);
  box.erase(box.begin());
  std::vector<std::vector<uint8_t>> buffers = {tensor, box};
  const RunResult run = RunBox(StoringKernel(c.map.rank, bytes), c, &buffers);
  ASSERT_EQ(run.error + run.fault.message, "");
  // Read back, by the definition of a box, what is inside is what was given.
  std::vector<uint8_t> back = ExpectedBox(c, buffers[0]);
  const std::vector<uint8_t> before = ExpectedBox(c, tensor);
  BoxCase marked = c;
  marked.map.fills_nan = true;
  const std::vector<uint8_t> outside = ExpectedBox(marked, std::vector<uint8_t>(tensor.size()));
  uint32_t inside = 0;
  for (uint32_t i = 0; i < bytes; ++i) {
    if (outside[i] != 0) continue;
    EXPECT_EQ(back[i], box[i]) << i;
    ++inside;
  }
  // And nothing else is changed.
  uint32_t changed = 0, differ = 0;
  for (size_t i = 0; i < tensor.size(); ++i) changed += buffers[0][i] != tensor[i] ? 1 : 0;
  for (uint32_t i = 0; i < bytes; ++i) differ += outside[i] == 0 && before[i] != box[i] ? 1 : 0;
  EXPECT_EQ(changed, differ) << inside;
}

// Of u16, with gaps behind each dimension; every second index of the second one, every third of the
// fourth.
TensorMap Gapped(uint32_t rank) {
  return {.rank = rank,
          .element_bytes = 2,
          .sizes = {21, 5, 3, 4, 2},
          .strides = {2, 48, 272, 832, 3344},
          .boxes = {16, 4, 2, 4, 2},
          .steps = {1, 2, 1, 3, 1}};
}

TEST(BulkCopyTest, BoxesOfEveryRank) {
  for (uint32_t rank = 1; rank <= kMostDimensions; ++rank) {
    SCOPED_TRACE(rank);
    ExpectBox({.map = Gapped(rank)});
    ExpectBox({.map = Gapped(rank), .corner = {3, 1, 1, 0, 0}});
    ExpectBox({.map = Gapped(rank), .corner = {9, 2, 2, 3, 1}});
    ExpectBox({.map = Gapped(rank), .corner = {-5, -1, -1, -2, -1}});
    ExpectBox({.map = Gapped(rank), .corner = {21, 0, 0, 0, 0}});
    ExpectBox({.map = Gapped(rank), .corner = {-16, 0, 0, 0, 0}});
    ExpectBox({.map = Gapped(rank), .corner = {INT32_MIN, INT32_MAX, 0, 0, 0}});
  }
}

TEST(BulkCopyTest, StoresBoxesOfEveryRank) {
  for (uint32_t rank = 1; rank <= kMostDimensions; ++rank) {
    SCOPED_TRACE(rank);
    ExpectStored({.map = Gapped(rank)});
    ExpectStored({.map = Gapped(rank), .corner = {3, 1, 1, 0, 0}});
    ExpectStored({.map = Gapped(rank), .corner = {9, 2, 2, 3, 1}});
    ExpectStored({.map = Gapped(rank), .corner = {-5, -1, -1, -2, -1}});
    ExpectStored({.map = Gapped(rank), .corner = {21, 0, 0, 0, 0}});
  }
}

// A swizzled box is read as it was written.
TEST(BulkCopyTest, StoresWhatIsSwizzled) {
  for (const uint32_t span : {32u, 64u, 128u}) {
    SCOPED_TRACE(span);
    const TensorMap map = {.rank = 2,
                           .element_bytes = 1,
                           .sizes = {span, 32},
                           .strides = {1, span},
                           .boxes = {span, 32},
                           .steps = {1, 1},
                           .span = span};
    std::vector<std::vector<uint8_t>> loaded = {NoisyBytes(64 + 32 * span),
                                                std::vector<uint8_t>(32 * span)};
    RunResult run = RunBox(BoxKernel(2, 32 * span), {.map = map}, &loaded);
    ASSERT_EQ(run.error + run.fault.message, "");
    std::vector<std::vector<uint8_t>> stored = {std::vector<uint8_t>(64 + 32 * span), loaded[1]};
    run = RunBox(StoringKernel(2, 32 * span), {.map = map}, &stored);
    ASSERT_EQ(run.error + run.fault.message, "");
    std::fill_n(loaded[0].begin(), 64, 0);
    EXPECT_EQ(stored[0], loaded[0]);
  }
}

TEST(BulkCopyTest, FillsWithNan) {
  for (const uint32_t bytes : {2u, 4u, 8u}) {
    ExpectBox({.map = {.rank = 2,
                       .element_bytes = bytes,
                       .sizes = {5, 3},
                       .strides = {bytes, 64},
                       .boxes = {8, 4},
                       .steps = {1, 1},
                       .fills_nan = true},
               .corner = {-1, 1}});
  }
}

// PTX ISA, "Swizzling Modes", has the places of chunks of 16 bytes as tables: of 128 bytes, row r
// has chunk c at c ^ r; of 64, two rows to a line, at c ^ (line mod 4); of 32, four rows to a line,
// at c ^ (line mod 2).
TEST(BulkCopyTest, SwizzlesChunks) {
  for (const uint32_t span : {32u, 64u, 128u}) {
    SCOPED_TRACE(span);
    const BoxCase c = {.map = {.rank = 2,
                               .element_bytes = 1,
                               .sizes = {span, 32},
                               .strides = {1, span},
                               .boxes = {span, 32},
                               .steps = {1, 1},
                               .span = span}};
    std::vector<std::vector<uint8_t>> buffers = {NoisyBytes(c.first + 32 * span),
                                                 std::vector<uint8_t>(32 * span)};
    const RunResult run = RunBox(BoxKernel(2, 32 * span), c, &buffers);
    ASSERT_EQ(run.error + run.fault.message, "");
    std::vector<uint8_t> expected(32 * span);
    for (uint32_t row = 0; row < 32; ++row) {
      const uint32_t line = row * span / 128;
      for (uint32_t chunk = 0; chunk < span / 16; ++chunk) {
        const uint32_t place = chunk ^ (line % (span / 16));
        std::memcpy(&expected[row * span + 16 * place],
                    &buffers[0][c.first + row * span + 16 * chunk], 16);
      }
    }
    EXPECT_EQ(buffers[1], expected);
  }
}

class BulkCopyFaults : public testing::Test {
 protected:
  Fault Run(const std::string& text) { return Run(text, case_); }
  Fault Run(const std::string& text, const BoxCase& c, bool broken = false) {
    std::vector<std::vector<uint8_t>> buffers = {NoisyBytes(case_.first + TensorBytes(case_.map)),
                                                 std::vector<uint8_t>(256)};
    const RunResult run = RunBox(text, c, &buffers, broken);
    EXPECT_EQ(run.error, "");
    return run.fault;
  }
  void ExpectFault(const Fault& fault, FaultCode code, const std::string& part = "") {
    EXPECT_EQ(fault.code, code) << fault.message;
    EXPECT_NE(fault.message.find(part), std::string::npos) << fault.message;
  }

  const BoxCase case_ = {.map = Gapped(3)};
  const std::string text_ = BoxKernel(3, BoxBytes(case_.map));
};

TEST_F(BulkCopyFaults, NoneInTheWholeKernel) { ExpectFault(Run(text_), FaultCode::kNone); }

TEST_F(BulkCopyFaults, AWaitIsMissing) {
  ExpectFault(Run(Without(text_, "@!%p1 bra $wait;")), FaultCode::kLaunchFailed, "race");
  const std::string untested = Without(Without(text_, "@!%p1 bra $wait;"),
                                       "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;");
  ExpectFault(Run(untested), FaultCode::kLaunchFailed, "in flight");
  // The thread that starts a copy has not waited for it.
  ExpectFault(Run(Without(untested, "bar.sync 0;", "@%p0 bra $end;")), FaultCode::kLaunchFailed,
              "in flight");
}

TEST_F(BulkCopyFaults, NobodyWaits) {
  ExpectFault(Run(Without(text_, "bar.sync 0;", "ret;")), FaultCode::kLaunchFailed,
              "in flight when the workgroup ended");
}

TEST_F(BulkCopyFaults, OtherBytesAreExpected) {
  const std::string expect = "_, [%r2], 128;";
  ExpectFault(Run(Without(text_, expect, "_, [%r2], 127;")), FaultCode::kLaunchTimeout);
  ExpectFault(Run(Without(text_, expect, "_, [%r2], 256;")), FaultCode::kLaunchTimeout);
  // Without any, the phase ends with the arrival.
  ExpectFault(
      Run(Without(text_, ".expect_tx.shared::cta.b64 " + expect, ".shared::cta.b64 _, [%r2];")),
      FaultCode::kLaunchFailed, "race");
  // The same expected before the arrival, by an instruction of its own.
  ExpectFault(Run(Without(text_, "mbarrier.arrive.expect_tx.shared::cta.b64 " + expect,
                          "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 128; "
                          "mbarrier.arrive.shared::cta.b64 _, [%r2];")),
              FaultCode::kNone);
}

TEST_F(BulkCopyFaults, TheBarrierIsNotFenced) {
  ExpectFault(Run(Without(text_, "fence.mbarrier_init.release.cluster;")), FaultCode::kLaunchFailed,
              "no fence");
  ExpectFault(
      Run(Without(text_, "fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;")),
      FaultCode::kNone);
}

TEST_F(BulkCopyFaults, TheBoxIsElsewhere) {
  ExpectFault(Run(Without(text_, "[%r1], [%x2", "[%r1+64], [%x2")), FaultCode::kMisalignedAddress,
              "128");
  ExpectFault(Run(Without(text_, "[%r1], [%x2", "[%r1+1024], [%x2")), FaultCode::kIllegalAddress);
  // Others have written there, before and after.
  const std::string store = "st.shared.u32 [%r1+4], %r0;";
  ExpectFault(Run(Without(text_, "setp.ne.s32 %p0, %r0, 0;", store + "setp.ne.s32 %p0, %r0, 0;")),
              FaultCode::kLaunchFailed, "race");
  ExpectFault(Run(Without(text_, "bar.sync 0;", store + " bar.sync 0;")), FaultCode::kLaunchFailed,
              "in flight");
  // Two copies to the same place.
  const size_t copy = text_.find("cp.async.bulk");
  std::string twice = text_;
  twice.insert(copy, text_.substr(copy, text_.find(';', copy) + 1 - copy) + "\n");
  ExpectFault(Run(twice), FaultCode::kLaunchFailed, "in flight");
}

TEST_F(BulkCopyFaults, TheMapIsNone) {
  ExpectFault(Run(text_, case_, /*broken=*/true), FaultCode::kIllegalInstruction, "did not encode");
  ExpectFault(Run(Without(text_, "cvta.param.u64 %x2, %x2;")), FaultCode::kIllegalAddress);
  ExpectFault(Run(Without(text_, "mov.b64 %x2, map;", "mov.b64 %x2, p1;")),
              FaultCode::kMisalignedAddress);
  ExpectFault(Run(BoxKernel(2, 128)), FaultCode::kIllegalInstruction, "rank 3, expected 2");
  BoxCase interleaved = case_;
  interleaved.map.interleave = 1;
  ExpectFault(Run(text_, interleaved), FaultCode::kIllegalInstruction, "interleaved");
  BoxCase narrow = case_;
  narrow.map.span = 64;
  ExpectFault(Run(text_, narrow), FaultCode::kIllegalInstruction, "as long as");
}

TEST_F(BulkCopyFaults, TheTensorIsLongerThanItsMemory) {
  BoxCase longer = case_;
  longer.map.sizes[2] = 4;
  ExpectFault(Run(text_, longer), FaultCode::kNone);
  longer.corner[2] = 2;
  ExpectFault(Run(text_, longer), FaultCode::kIllegalAddress);
}

// What is copied must not change before the copy is complete.
TEST_F(BulkCopyFaults, TheTensorIsWritten) {
  ExpectFault(Run(Without(text_, "bar.sync 0;",
                          "ld.param.u64 %x5, [p0]; st.global.u32 [%x5+64], %r0; bar.sync 0;")),
              FaultCode::kLaunchFailed, "race");
}

TEST_F(BulkCopyFaults, NoneWhereAStoreIsReadOrWaitedFor) {
  const std::string text = StoringKernel(3, BoxBytes(case_.map));
  ExpectFault(Run(text), FaultCode::kNone);
  ExpectFault(Run(Without(text, "wait_group 0;", "wait_group.read 0;")), FaultCode::kNone);
}

TEST_F(BulkCopyFaults, AStoreIsNotWaitedFor) {
  const std::string text = StoringKernel(3, BoxBytes(case_.map));
  const std::string wait = "cp.async.bulk.wait_group 0;";
  ExpectFault(Run(Without(text, wait)), FaultCode::kLaunchFailed, "in flight when the workgroup");
  ExpectFault(Run(Without(text, "cp.async.bulk.commit_group;")), FaultCode::kLaunchFailed,
              "in flight when the workgroup");
  ExpectFault(Run(Without(text, wait, "cp.async.bulk.wait_group 1;")), FaultCode::kLaunchFailed,
              "in flight when the workgroup");
  // Shared memory may be written again when it was read, and the tensor read when it was written.
  const std::string write = " st.shared.u32 [%r1], %r0;";
  const std::string read = " ld.param.u64 %x5, [p0]; ld.global.u32 %r5, [%x5+64];";
  ExpectFault(Run(Without(text, wait, write + wait)), FaultCode::kLaunchFailed, "race");
  ExpectFault(Run(Without(text, wait, read + wait)), FaultCode::kLaunchFailed, "race");
  const std::string waits = "cp.async.bulk.wait_group.read 0;";
  ExpectFault(Run(Without(text, wait, waits + write)), FaultCode::kNone);
  ExpectFault(Run(Without(text, wait, waits + read)), FaultCode::kLaunchFailed, "race");
  ExpectFault(Run(Without(text, wait, wait + write + read)), FaultCode::kNone);
}

TEST_F(BulkCopyFaults, WhatIsStoredIsNotFenced) {
  const std::string text = StoringKernel(3, BoxBytes(case_.map));
  const std::string fence = "fence.proxy.async.shared::cta;";
  ExpectFault(Run(Without(text, fence)), FaultCode::kLaunchFailed, "no fence");
  ExpectFault(Run(Without(text, "bar.sync 0;")), FaultCode::kLaunchFailed);
  // By the thread that copies: the others' writes stay where they are.
  ExpectFault(Run(Without(Without(text, fence), "@%p0 bra $end;", "@%p0 bra $end; " + fence)),
              FaultCode::kLaunchFailed, "no fence");
}

TEST(BulkCopyTest, ErrorsNameTheirLine) {
  const std::string text = BoxKernel(2, 128);
  const struct {
    const char* piece;
    const char* instead;
    const char* part;
  } rows[] = {
      {"tensor.2d", "tensor.3d", "as many coordinates as dimensions"},
      {"tensor.2d", "tensor.6d", "the number of dimensions is missing"},
      {".tile.", ".im2col.", "unknown modifier .im2col"},
      {"shared::cluster.global", "global.shared::cta", "only between global and shared memory"},
      {"[%x2, {%c0, %c1}]", "[%x2+64, {%c0, %c1}]", "a tensor map with an offset"},
      {"{%c0, %c1}", "{%c0, %x1}", "register %x1"}};
  for (const auto& row : rows) {
    std::vector<std::vector<uint8_t>> buffers(2);
    const RunResult run =
        RunBox(Without(text, row.piece, row.instead), {.map = Gapped(2)}, &buffers);
    EXPECT_NE(run.error.find(row.part), std::string::npos) << row.instead << ": " << run.error;
  }
}

}  // namespace
}  // namespace fakecuda
