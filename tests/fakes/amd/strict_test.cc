// Mistakes that the interpreter has to find: in kernels that LLVM compiled as they stand, and in
// correct kernels from which an instruction was taken.
#include <gmock/gmock.h>

#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

using testing::HasSubstr;

constexpr char kThreadIndex[] =
    "  %group = call i32 @llvm.amdgcn.workgroup.id.x()\n"
    "  %local = call i32 @llvm.amdgcn.workitem.id.x()\n"
    "  %base = mul i32 %group, 128\n"
    "  %i32 = add i32 %base, %local\n"
    "  %i = zext i32 %i32 to i64\n";
constexpr char kShared[] = "@shared = external addrspace(3) global [0 x i8], align 16\n";

class AmdStrictTest : public testing::TestWithParam<std::string> {
 protected:
  // Runs 2 groups of 128 threads; the output has 1024 bytes.
  Fault Run(const std::string& body, const std::string& more = "", uint32_t local_bytes = 512,
            uint64_t budget = 1 << 20) {
    std::vector<Bytes> buffers = {Bytes(1024)};
    const TestRun run = RunIr(
        KernelIr("test", "ptr addrspace(1) %out", kThreadIndex + body, 128) + more, GetParam(),
        {.groups = 2, .threads = 128, .local_bytes = local_bytes, .budget = budget}, &buffers);
    EXPECT_EQ(run.error, "");
    return run.fault;
  }
  bool Old() const { return GetParam().starts_with("gfx9"); }
};

INSTANTIATE_TEST_SUITE_P(Targets, AmdStrictTest, testing::ValuesIn(Processors()),
                         [](const auto& info) { return info.param; });

TEST_P(AmdStrictTest, RaceBetweenWavesInLocalMemory) {
  // Each thread reads what the thread 64 further has written, without a barrier.
  const std::string body =
      "  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
      "  store i32 %local, ptr addrspace(3) %mine\n"
      "  fence syncscope(\"workgroup\") seq_cst\n"
      "  %o = xor i32 %local, 64\n"
      "  %theirs = getelementptr i32, ptr addrspace(3) @shared, i32 %o\n"
      "  %x = load i32, ptr addrspace(3) %theirs\n"
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %x, ptr addrspace(1) %pr\n"
      "  ret void";
  const Fault fault = Run(body, kShared);
  // The first wave reads what has not been written, or the second what the first writes.
  EXPECT_TRUE(fault.code == FaultCode::kRace || fault.code == FaultCode::kIllegalInstruction);
  const std::string with_values =
      "  %first = icmp ult i32 %local, 64\n"
      "  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 0\n"
      "  br i1 %first, label %write, label %end\n"
      "write:\n"
      "  store i32 7, ptr addrspace(3) %mine\n"
      "  br label %end\n"
      "end:\n"
      "  store i32 7, ptr addrspace(3) %mine\n"
      "  ret void";
  const Fault twice = Run(with_values, kShared);
  EXPECT_EQ(twice.code, FaultCode::kRace);
  EXPECT_THAT(twice.message, HasSubstr("which was written by wave 0"));
}

TEST_P(AmdStrictTest, RaceOfWorkgroups) {
  const Fault fault =
      Run("  %pr = getelementptr i32, ptr addrspace(1) %out, i32 %local\n"
          "  store i32 %local, ptr addrspace(1) %pr\n  ret void");
  EXPECT_EQ(fault.code, FaultCode::kRace);
  EXPECT_THAT(fault.message, HasSubstr("was written by another workgroup"));
}

TEST_P(AmdStrictTest, LanesThatStoreDifferentValuesAtOnePlace) {
  const Fault fault =
      Run("  %place = lshr i32 %i32, 1\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i32 %place\n"
          "  store i32 %local, ptr addrspace(1) %pr\n  ret void");
  EXPECT_EQ(fault.code, FaultCode::kRace);
  EXPECT_THAT(fault.message, HasSubstr("two lanes store different values"));
}

TEST_P(AmdStrictTest, BarrierWithoutAFence) {
  // The store may become visible after the barrier. For gfx11 and later LLVM itself waits before
  // barriers.
  if (!Old()) return;
  const Fault fault =
      Run("  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
          "  store i32 %local, ptr addrspace(3) %mine\n"
          "  call void @llvm.amdgcn.s.barrier()\n"
          "  %o = xor i32 %local, 64\n"
          "  %theirs = getelementptr i32, ptr addrspace(3) @shared, i32 %o\n"
          "  %x = load i32, ptr addrspace(3) %theirs\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
          "  store i32 %x, ptr addrspace(1) %pr\n"
          "  ret void",
          kShared);
  EXPECT_EQ(fault.code, FaultCode::kRace);
  EXPECT_THAT(fault.message, HasSubstr("under way at the barrier"));
}

TEST_P(AmdStrictTest, BarrierThatOneWaveDoesNotReach) {
  const Fault fault =
      Run("  %first = icmp ult i32 %local, 64\n"
          "  br i1 %first, label %wait, label %end\n"
          "wait:\n  call void @llvm.amdgcn.s.barrier()\n  br label %end\nend:\n  ret void");
  EXPECT_EQ(fault.code, FaultCode::kLaunchFailed);
  EXPECT_THAT(fault.message, HasSubstr("has ended while others wait at a barrier"));
}

TEST_P(AmdStrictTest, OutsideOfMemory) {
  const Fault global =
      Run("  %far = add i64 %i, 1\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %far\n"
          "  store i32 %local, ptr addrspace(1) %pr\n  ret void");
  EXPECT_EQ(global.code, FaultCode::kIllegalAddress);
  EXPECT_THAT(global.message, HasSubstr("outside of every allocation"));
  EXPECT_THAT(global.message, HasSubstr("workgroup 1,0,0"));
  const Fault local =
      Run("  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
          "  store i32 %local, ptr addrspace(3) %mine\n  ret void",
          kShared, 508);
  EXPECT_EQ(local.code, FaultCode::kIllegalAddress);
  EXPECT_THAT(local.message, HasSubstr("lane " + std::string(Old() ? "63" : "31")));
}

TEST_P(AmdStrictTest, Misaligned) {
  const Fault atomic =
      Run("  %p1 = getelementptr i8, ptr addrspace(1) %out, i64 2\n"
          "  %old = atomicrmw add ptr addrspace(1) %p1, i32 1 syncscope(\"agent\") monotonic\n"
          "  ret void");
  EXPECT_EQ(atomic.code, FaultCode::kMisaligned);
  const Fault local =
      Run("  %p1 = getelementptr i8, ptr addrspace(3) @shared, i32 2\n"
          "  %mine = getelementptr i32, ptr addrspace(3) %p1, i32 %local\n"
          "  store i32 %local, ptr addrspace(3) %mine\n  ret void",
          kShared, 1024);
  EXPECT_EQ(local.code, FaultCode::kMisaligned);
}

// LLVM joins accesses of bytes that lie next to each other.
TEST_P(AmdStrictTest, GlobalMemoryNeedsNoAlignment) {
  const Fault fault =
      Run("  %i3 = mul i64 %i, 3\n"
          "  %p = getelementptr i8, ptr addrspace(1) %out, i64 %i3\n"
          "  store <2 x i8> <i8 1, i8 2>, ptr addrspace(1) %p, align 1\n  ret void");
  EXPECT_EQ(fault.message, "");
}

TEST_P(AmdStrictTest, RegisterThatNothingHasWritten) {
  const std::string add = Old() ? "v_add_u32" : "v_add_nc_u32";
  const Fault fault = Run("  %x = call i32 asm sideeffect \"" + add +
                          " $0, v9, v9\", \"=v,~{v9}\"()\n"
                          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
                          "  store i32 %x, ptr addrspace(1) %pr\n  ret void");
  EXPECT_EQ(fault.code, FaultCode::kIllegalInstruction);
  EXPECT_THAT(fault.message, HasSubstr("reads v9, which has no defined value"));
  // A copy is no use; storing the copy is.
  const Fault copied =
      Run("  %x = call i32 asm sideeffect \"v_mov_b32 $0, v9\", \"=v,~{v9}\"()\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
          "  store i32 %x, ptr addrspace(1) %pr\n  ret void");
  EXPECT_THAT(copied.message, HasSubstr("which has no defined value"));
  const Fault scalar =
      Run("  %x = call i32 asm sideeffect \"s_add_u32 $0, s30, 1\", \"=s,~{s30},~{scc}\"()\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
          "  store i32 %x, ptr addrspace(1) %pr\n  ret void");
  EXPECT_THAT(scalar.message, HasSubstr("reads s30, which has no defined value"));
}

// LLVM adds 32 bits by an instruction for 64 whose upper word nothing has written.
TEST_P(AmdStrictTest, UpperWordThatNothingHasWritten) {
  const bool wide = Old();
  const std::string mad = GetParam() == "gfx1201" ? "v_mad_co_u64_u32" : "v_mad_u64_u32";
  const auto run = [&](const std::string& result) {
    return Run("  %x = call i64 asm sideeffect \"v_mov_b32 v8, 1\\0A" + mad + " $0, " +
               (wide ? "vcc" : "vcc_lo") +
               ", 3, 4, v[8:9]\", \"=v,~{v8},~{v9},~{vcc}\"()\n"
               "  %upper = lshr i64 %x, 32\n"
               "  %r = trunc i64 %" +
               result +
               " to i32\n"
               "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
               "  store i32 %r, ptr addrspace(1) %pr\n  ret void");
  };
  EXPECT_EQ(run("x").message, "");
  EXPECT_THAT(run("upper").message, HasSubstr("which has no defined value"));
}

// An address may be negative where the offset of the instruction makes up for it, and no further.
TEST_P(AmdStrictTest, OffsetsOfNegativeAddressesInLocalMemory) {
  for (const int offset : {256, 128}) {
    const std::string store = Old() ? "ds_write_b32" : "ds_store_b32";
    const Fault fault =
        Run("  %four = mul i32 %local, 4\n"
            "  %before = sub i32 %four, 256\n"
            "  call void asm sideeffect \"" +
            store + " $0, $1 offset:" + std::to_string(offset) +
            "\", \"v,v\"(i32 %before, i32 %local)\n  ret void");
    EXPECT_EQ(fault.message.empty(), offset == 256) << fault.message;
  }
}

TEST_P(AmdStrictTest, LocalMemoryThatNothingHasWritten) {
  const Fault fault =
      Run("  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
          "  %x = load i32, ptr addrspace(3) %mine\n"
          "  %y = add i32 %x, 1\n"
          "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
          "  store i32 %y, ptr addrspace(1) %pr\n  ret void",
          kShared);
  EXPECT_EQ(fault.code, FaultCode::kIllegalInstruction);
  EXPECT_THAT(fault.message, HasSubstr("which has no defined value"));
}

TEST_P(AmdStrictTest, LoopWithoutEnd) {
  const Fault fault =
      Run("  br label %loop\nloop:\n"
          "  %x = load volatile i32, ptr addrspace(1) %out\n"
          "  %c = icmp eq i32 %x, 77\n  br i1 %c, label %end, label %loop\nend:\n  ret void",
          "", 0, 10000);
  EXPECT_EQ(fault.code, FaultCode::kTimeout);
}

TEST_P(AmdStrictTest, InstructionThatIsNotKnown) {
  std::vector<Bytes> buffers = {Bytes(1024)};
  const std::string body =
      "  %f = call float @llvm.amdgcn.cubeid(float 1.0, float 2.0, float %x)\n"
      "  store float %f, ptr addrspace(1) %out\n  ret void";
  const TestRun run = RunIr(KernelIr("test", "ptr addrspace(1) %out, float %x", body, 128) +
                                "declare float @llvm.amdgcn.cubeid(float, float, float)\n",
                            GetParam(), {}, &buffers, {0});
  EXPECT_THAT(run.error, HasSubstr("v_cubeid_f32"));
  EXPECT_THAT(run.error, HasSubstr("is not supported"));
}

// Words of waits (SOPP encodings of LLVM's SOPInstructions.td: s_waitcnt on gfx9 and gfx11, the
// counters of gfx12), of which each has to matter.
bool IsWait(uint32_t word, const std::string& processor) {
  const uint32_t top = word >> 16;
  if (processor.starts_with("gfx9")) return top == 0xbf8c;
  if (processor == "gfx1100") return top == 0xbf89;
  return top == 0xbfc0 || top == 0xbfc6 || top == 0xbfc7;  // loadcnt, dscnt, kmcnt
}

TEST_P(AmdStrictTest, EveryWaitIsNeeded) {
  const std::string ir =
      KernelIr(
          "test", "ptr addrspace(1) %out, ptr addrspace(1) readonly noalias %in",
          std::string(kThreadIndex) +
              "  %pa = getelementptr i32, ptr addrspace(1) %in, i64 %i\n"
              "  %x = load i32, ptr addrspace(1) %pa\n"
              "  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
              "  store i32 %x, ptr addrspace(3) %mine\n"
              "  fence syncscope(\"workgroup\") release\n  call void @llvm.amdgcn.s.barrier()\n"
              "  fence syncscope(\"workgroup\") acquire\n"
              "  %o = xor i32 %local, 64\n"
              "  %theirs = getelementptr i32, ptr addrspace(3) @shared, i32 %o\n"
              "  %y = load i32, ptr addrspace(3) %theirs\n"
              "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
              "  store i32 %y, ptr addrspace(1) %pr\n  ret void",
          128) +
      kShared;
  std::string error;
  const Bytes elf = CompileIr(ir, GetParam(), &error);
  ASSERT_EQ(error, "");
  const auto run = [&](const Bytes& object) {
    std::vector<Bytes> buffers = {Bytes(512), Bytes(512, 3)};
    return RunObject(object, GetParam(), {.groups = 1, .threads = 128, .local_bytes = 512},
                     &buffers);
  };
  const TestRun whole = run(elf);
  ASSERT_EQ(whole.error + whole.fault.message, "");
  int waits = 0;
  for (size_t at = 0; at + 4 <= elf.size(); at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, &elf[at], 4);
    if (!IsWait(word, GetParam())) continue;
    ++waits;
    Bytes broken = elf;
    const uint32_t nop = 0xbf800000;
    std::memcpy(&broken[at], &nop, 4);
    const TestRun result = run(broken);
    EXPECT_EQ(result.error, "");
    EXPECT_NE(result.fault.message, "") << "without the wait at byte " << at;
  }
  EXPECT_GE(waits, 4);
}

}  // namespace
}  // namespace fakeamd
