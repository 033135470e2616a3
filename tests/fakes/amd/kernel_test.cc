// Kernels with loops, branches, local memory, barriers, atomics, exchanges between lanes and a
// stack, compiled by LLVM for every target, against the host.
#include <numeric>

#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

std::vector<uint32_t> RandomWords(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = random();
  return words;
}

constexpr char kThread[] =
    "  %group = call i32 @llvm.amdgcn.workgroup.id.x()\n"
    "  %local = call i32 @llvm.amdgcn.workitem.id.x()\n"
    "  %base = mul i32 %group, 128\n"
    "  %i32 = add i32 %base, %local\n"
    "  %i = zext i32 %i32 to i64\n";
constexpr char kFence[] =
    "  fence syncscope(\"workgroup\") release\n"
    "  call void @llvm.amdgcn.s.barrier()\n"
    "  fence syncscope(\"workgroup\") acquire\n";

class AmdKernelTest : public testing::TestWithParam<std::string> {
 protected:
  // Runs 4 groups of 128 threads on an output of `out_bytes` and these inputs.
  void RunKernel(const std::string& body, size_t out_bytes, const std::vector<Bytes>& inputs,
                 const std::string& more = "", uint32_t local_bytes = 0) {
    std::string parameters = "ptr addrspace(1) noalias %out";
    for (size_t k = 0; k < inputs.size(); ++k) {
      parameters += ", ptr addrspace(1) noalias %in" + std::string(1, static_cast<char>('a' + k));
    }
    buffers_ = {Bytes(out_bytes)};
    buffers_.insert(buffers_.end(), inputs.begin(), inputs.end());
    run_ = RunIr(KernelIr("test", parameters, kThread + body, 128) + more, GetParam(),
                 {.groups = 4, .threads = 128, .local_bytes = local_bytes}, &buffers_);
    ASSERT_EQ(run_.error, "");
    ASSERT_EQ(run_.fault.message, "");
  }
  template <class T>
  std::vector<T> Output(size_t buffer = 0) const {
    return FromBytes<T>(buffers_[buffer]);
  }

  std::vector<Bytes> buffers_;
  TestRun run_;
};

INSTANTIATE_TEST_SUITE_P(Targets, AmdKernelTest, testing::ValuesIn(Processors()),
                         [](const auto& info) { return info.param; });

TEST_P(AmdKernelTest, SumOfAWorkgroupInLocalMemory) {
  const std::string body = std::string(
                               "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
                               "  %x = load i32, ptr addrspace(1) %pa\n"
                               "  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local\n"
                               "  store i32 %x, ptr addrspace(3) %mine\n") +
                           kFence +
                           "  br label %loop\n"
                           "loop:\n"
                           "  %half = phi i32 [ 64, %0 ], [ %next, %joined ]\n"
                           "  %active = icmp ult i32 %local, %half\n"
                           "  br i1 %active, label %sum, label %joined\n"
                           "sum:\n"
                           "  %other = add i32 %local, %half\n"
                           "  %theirs = getelementptr i32, ptr addrspace(3) @shared, i32 %other\n"
                           "  %a = load i32, ptr addrspace(3) %mine\n"
                           "  %b = load i32, ptr addrspace(3) %theirs\n"
                           "  %s = add i32 %a, %b\n"
                           "  store i32 %s, ptr addrspace(3) %mine\n"
                           "  br label %joined\n"
                           "joined:\n" +
                           kFence +
                           "  %next = lshr i32 %half, 1\n"
                           "  %done = icmp eq i32 %next, 0\n"
                           "  br i1 %done, label %last, label %loop\n"
                           "last:\n"
                           "  %first = icmp eq i32 %local, 0\n"
                           "  br i1 %first, label %write, label %end\n"
                           "write:\n"
                           "  %total = load i32, ptr addrspace(3) @shared\n"
                           "  %pr = getelementptr i32, ptr addrspace(1) %out, i32 %group\n"
                           "  store i32 %total, ptr addrspace(1) %pr\n"
                           "  br label %end\n"
                           "end:\n"
                           "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 1);
  RunKernel(body, 16, {ToBytes(in)}, "@shared = external addrspace(3) global [0 x i8], align 16\n",
            512);
  for (size_t g = 0; g < 4; ++g) {
    EXPECT_EQ(Output<uint32_t>()[g],
              std::accumulate(in.begin() + 128 * static_cast<int>(g),
                              in.begin() + 128 * static_cast<int>(g + 1), 0u));
  }
}

TEST_P(AmdKernelTest, LoopsOfDifferentLengthsInOneWave) {
  // The number of Collatz steps of each thread's number.
  const std::string body =
      "  br label %loop\n"
      "loop:\n"
      "  %n = phi i32 [ %start, %entry ], [ %new, %step ]\n"
      "  %count = phi i32 [ 0, %entry ], [ %more, %step ]\n"
      "  %one = icmp ule i32 %n, 1\n"
      "  br i1 %one, label %done, label %body\n"
      "body:\n"
      "  %bit = and i32 %n, 1\n"
      "  %even = icmp eq i32 %bit, 0\n"
      "  br i1 %even, label %halve, label %triple\n"
      "halve:\n"
      "  %h = lshr i32 %n, 1\n"
      "  br label %step\n"
      "triple:\n"
      "  %t3 = mul i32 %n, 3\n"
      "  %t = add i32 %t3, 1\n"
      "  br label %step\n"
      "step:\n"
      "  %new = phi i32 [ %h, %halve ], [ %t, %triple ]\n"
      "  %more = add i32 %count, 1\n"
      "  br label %loop\n"
      "done:\n"
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %count, ptr addrspace(1) %pr\n"
      "  ret void";
  RunKernel("  %start = add i32 %i32, 1\n  br label %entry\nentry:\n" + body, 2048, {});
  for (uint32_t t = 0; t < 512; ++t) {
    uint32_t steps = 0;
    for (uint32_t n = t + 1; n > 1; n = n % 2 == 0 ? n / 2 : 3 * n + 1) ++steps;
    EXPECT_EQ(Output<uint32_t>()[t], steps) << t;
  }
}

TEST_P(AmdKernelTest, AtomicsOfAllThreads) {
  const std::string body =
      "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
      "  %x = load i32, ptr addrspace(1) %pa\n"
      "  %p1 = getelementptr i32, ptr addrspace(1) %out, i64 1\n"
      "  %p2 = getelementptr i32, ptr addrspace(1) %out, i64 2\n"
      "  %p3 = getelementptr i32, ptr addrspace(1) %out, i64 3\n"
      "  %p4 = getelementptr i32, ptr addrspace(1) %out, i64 4\n"
      "  %slot = and i32 %x, 15\n"
      "  %o0 = atomicrmw add ptr addrspace(1) %out, i32 %x syncscope(\"agent\") monotonic\n"
      "  %o1 = atomicrmw umax ptr addrspace(1) %p1, i32 %x syncscope(\"agent\") monotonic\n"
      "  %o2 = atomicrmw min ptr addrspace(1) %p2, i32 %x syncscope(\"agent\") monotonic\n"
      "  %o3 = atomicrmw xor ptr addrspace(1) %p3, i32 %x syncscope(\"agent\") monotonic\n"
      "  %x64 = zext i32 %x to i64\n"
      "  %o4 = atomicrmw add ptr addrspace(1) %p4, i64 %x64 syncscope(\"agent\") monotonic\n"
      "  %pc = getelementptr i32, ptr addrspace(1) %inb, i32 %slot\n"
      "  %o5 = atomicrmw add ptr addrspace(1) %pc, i32 1 syncscope(\"agent\") monotonic\n"
      "  %pt = getelementptr i32, ptr addrspace(1) %inc, i64 %i\n"
      "  store i32 %o5, ptr addrspace(1) %pt\n"
      "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 2);
  RunKernel(body, 24, {ToBytes(in), Bytes(64), Bytes(2048)});
  uint32_t sum = 0, largest = 0, parity = 0;
  int32_t least = 0;
  uint64_t wide = 0;
  std::vector<uint32_t> histogram(16);
  for (const uint32_t x : in) {
    sum += x;
    largest = std::max(largest, x);
    least = std::min(least, static_cast<int32_t>(x));
    parity ^= x;
    wide += x;
    ++histogram[x & 15];
  }
  const std::vector<uint32_t> out = Output<uint32_t>();
  EXPECT_EQ(out[0], sum);
  EXPECT_EQ(out[1], largest);
  EXPECT_EQ(static_cast<int32_t>(out[2]), least);
  EXPECT_EQ(out[3], parity);
  EXPECT_EQ(out[4] | uint64_t{out[5]} << 32, wide);
  EXPECT_EQ(Output<uint32_t>(2), histogram);
  // The old values of each slot are 0, 1, 2 and so on, each once.
  std::vector<std::vector<uint32_t>> tickets(16);
  for (size_t t = 0; t < 512; ++t) tickets[in[t] & 15].push_back(Output<uint32_t>(3)[t]);
  for (auto& slot : tickets) {
    std::sort(slot.begin(), slot.end());
    for (uint32_t k = 0; k < slot.size(); ++k) EXPECT_EQ(slot[k], k);
  }
}

TEST_P(AmdKernelTest, CompareAndSwapInALoop) {
  // A sum of floats, by comparing and swapping.
  const std::string body =
      "  %first = load i32, ptr addrspace(1) %out\n"
      "  br label %loop\n"
      "loop:\n"
      "  %old = phi i32 [ 0, %0 ], [ %seen, %loop ]\n"
      "  %f = bitcast i32 %old to float\n"
      "  %g = fadd float %f, 1.0\n"
      "  %new = bitcast float %g to i32\n"
      "  %pair = cmpxchg ptr addrspace(1) %out, i32 %old, i32 %new syncscope(\"agent\") monotonic "
      "monotonic\n"
      "  %seen = extractvalue { i32, i1 } %pair, 0\n"
      "  %ok = extractvalue { i32, i1 } %pair, 1\n"
      "  br i1 %ok, label %end, label %loop\n"
      "end:\n"
      "  ret void";
  std::string without_load = body;
  without_load.erase(0, without_load.find('\n') + 1);
  RunKernel(without_load, 4, {});
  EXPECT_EQ(Output<float>()[0], 512.0f);
}

TEST_P(AmdKernelTest, ExchangesBetweenLanes) {
  // A sum over 32 lanes by ds_bpermute, and one by readlane of lane 5.
  std::string body =
      "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
      "  %x0 = load i32, ptr addrspace(1) %pa\n";
  for (int step = 0; step < 5; ++step) {
    const std::string s = std::to_string(step);
    const std::string mask = std::to_string(1 << step);
    body += "  %o" + s + " = xor i32 %local, " + mask + "\n  %q" + s + " = shl i32 %o" + s +
            ", 2\n  %y" + s + " = call i32 @llvm.amdgcn.ds.bpermute(i32 %q" + s + ", i32 %x" + s +
            ")\n  %x" + std::to_string(step + 1) + " = add i32 %x" + s + ", %y" + s + "\n";
  }
  body +=
      "  %five = call i32 @llvm.amdgcn.readlane.i32(i32 %x0, i32 5)\n"
      "  %r = xor i32 %x5, %five\n"
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %r, ptr addrspace(1) %pr\n"
      "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 3);
  RunKernel(body, 2048, {ToBytes(in)},
            "declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)\n"
            "declare i32 @llvm.amdgcn.readlane.i32(i32, i32)\n");
  const size_t wave = GetParam().starts_with("gfx9") ? 64 : 32;
  for (size_t t = 0; t < 512; ++t) {
    uint32_t sum = 0;
    for (size_t k = 0; k < 32; ++k) sum += in[t / 32 * 32 + k];
    EXPECT_EQ(Output<uint32_t>()[t], sum ^ in[t / wave * wave + 5]) << t;
  }
}

TEST_P(AmdKernelTest, MovesBetweenLanesInOperands) {
  // llvm.amdgcn.update.dpp: quad_perm 1 0 3 2, row_shr 1, row_ror 4, row_mirror, row_half_mirror.
  const int controls[] = {0xb1, 0x111, 0x124, 0x140, 0x141};
  std::string body =
      "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
      "  %x = load i32, ptr addrspace(1) %pa\n  %r0 = add i32 %x, 0\n";
  for (int k = 0; k < 5; ++k) {
    const std::string s = std::to_string(k);
    body += "  %m" + s + " = call i32 @llvm.amdgcn.update.dpp.i32(i32 7, i32 %x, i32 " +
            std::to_string(controls[k]) + ", i32 15, i32 15, i1 false)\n  %t" + s +
            " = mul i32 %r" + s + ", 31\n  %r" + std::to_string(k + 1) + " = add i32 %t" + s +
            ", %m" + s + "\n";
  }
  body +=
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %r5, ptr addrspace(1) %pr\n"
      "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 4);
  RunKernel(body, 2048, {ToBytes(in)},
            "declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n");
  for (size_t t = 0; t < 512; ++t) {
    const size_t row = t / 16 * 16;
    const size_t at = t % 16;
    const uint32_t moved[] = {in[t ^ 1], at >= 1 ? in[t - 1] : 7, in[row + (at + 12) % 16],
                              in[row + 15 - at], in[t / 8 * 8 + 7 - t % 8]};
    uint32_t expected = in[t];
    for (const uint32_t m : moved) expected = expected * 31 + m;
    EXPECT_EQ(Output<uint32_t>()[t], expected) << t;
  }
}

TEST_P(AmdKernelTest, StackWithIndicesThatAreNotKnown) {
  const std::string body =
      "  %stack = alloca [16 x i32], align 16, addrspace(5)\n"
      "  br label %fill\n"
      "fill:\n"
      "  %k = phi i32 [ 0, %0 ], [ %k1, %fill ]\n"
      "  %slot = getelementptr i32, ptr addrspace(5) %stack, i32 %k\n"
      "  %v = mul i32 %k, %i32\n"
      "  store volatile i32 %v, ptr addrspace(5) %slot\n"
      "  %k1 = add i32 %k, 1\n"
      "  %full = icmp eq i32 %k1, 16\n"
      "  br i1 %full, label %read, label %fill\n"
      "read:\n"
      "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
      "  %x = load i32, ptr addrspace(1) %pa\n"
      "  %at = and i32 %x, 15\n"
      "  %place = getelementptr i32, ptr addrspace(5) %stack, i32 %at\n"
      "  %r = load volatile i32, ptr addrspace(5) %place\n"
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %r, ptr addrspace(1) %pr\n"
      "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 5);
  RunKernel(body, 2048, {ToBytes(in)});
  for (uint32_t t = 0; t < 512; ++t) EXPECT_EQ(Output<uint32_t>()[t], (in[t] & 15) * t) << t;
}

TEST_P(AmdKernelTest, MemoryOfAllWidths) {
  // Bytes, halves, words and vectors of two to four, moved and turned around.
  const std::string body =
      "  %pa = getelementptr i8, ptr addrspace(1) %ina, i64 %i\n"
      "  %b = load i8, ptr addrspace(1) %pa\n"
      "  %bs = sext i8 %b to i16\n"
      "  %ph = getelementptr i16, ptr addrspace(1) %out, i64 %i\n"
      "  store i16 %bs, ptr addrspace(1) %ph\n"
      "  %pv = getelementptr <4 x i32>, ptr addrspace(1) %inb, i64 %i\n"
      "  %v = load <4 x i32>, ptr addrspace(1) %pv\n"
      "  %turned = shufflevector <4 x i32> %v, <4 x i32> poison, <4 x i32> <i32 3, i32 2, i32 1, "
      "i32 0>\n"
      "  %pw = getelementptr <4 x i32>, ptr addrspace(1) %inc, i64 %i\n"
      "  store <4 x i32> %turned, ptr addrspace(1) %pw\n"
      "  %pd = getelementptr <2 x i16>, ptr addrspace(1) %ind, i64 %i\n"
      "  %d = load <2 x i16>, ptr addrspace(1) %pd\n"
      "  %swapped = shufflevector <2 x i16> %d, <2 x i16> poison, <2 x i32> <i32 1, i32 0>\n"
      "  store <2 x i16> %swapped, ptr addrspace(1) %pd\n"
      "  %pe = getelementptr [3 x i32], ptr addrspace(1) %ine, i64 %i\n"
      "  %e = load <3 x i32>, ptr addrspace(1) %pe, align 4\n"
      "  %e2 = add <3 x i32> %e, <i32 1, i32 2, i32 3>\n"
      "  store <3 x i32> %e2, ptr addrspace(1) %pe, align 4\n"
      "  ret void";
  const Bytes bytes = ToBytes(RandomWords(128, 6));
  const std::vector<uint32_t> quads = RandomWords(2048, 7);
  const std::vector<uint32_t> pairs = RandomWords(512, 8);
  const std::vector<uint32_t> triples = RandomWords(1536, 9);
  RunKernel(body, 1024, {bytes, ToBytes(quads), Bytes(8192), ToBytes(pairs), ToBytes(triples)});
  for (size_t t = 0; t < 512; ++t) {
    EXPECT_EQ(Output<int16_t>()[t], static_cast<int8_t>(bytes[t])) << t;
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(Output<uint32_t>(3)[4 * t + k], quads[4 * t + 3 - k]);
    EXPECT_EQ(Output<uint32_t>(4)[t], pairs[t] >> 16 | pairs[t] << 16);
    for (uint32_t k = 0; k < 3; ++k)
      EXPECT_EQ(Output<uint32_t>(5)[3 * t + k], triples[3 * t + k] + k + 1);
  }
}

TEST_P(AmdKernelTest, PackedHalves) {
  const std::string body =
      "  %pa = getelementptr <2 x half>, ptr addrspace(1) %ina, i64 %i\n"
      "  %a = load <2 x half>, ptr addrspace(1) %pa\n"
      "  %pb = getelementptr <2 x half>, ptr addrspace(1) %inb, i64 %i\n"
      "  %b = load <2 x half>, ptr addrspace(1) %pb\n"
      "  %m = fmul <2 x half> %a, %b\n"
      "  %s = fadd <2 x half> %m, <half 1.0, half 1.0>\n"
      "  %r = call <2 x half> @llvm.fma.v2f16(<2 x half> %s, <2 x half> %a, <2 x half> %b)\n"
      "  %pr = getelementptr <2 x half>, ptr addrspace(1) %out, i64 %i\n"
      "  store <2 x half> %r, ptr addrspace(1) %pr\n"
      "  ret void";
  std::mt19937 random(10);
  std::vector<uint16_t> a, b;
  for (size_t i = 0; i < 1024; ++i) {
    a.push_back(ToHalf(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 64).bits);
    b.push_back(ToHalf(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 512).bits);
  }
  RunKernel(body, 2048, {ToBytes(a), ToBytes(b)},
            "declare <2 x half> @llvm.fma.v2f16(<2 x half>, <2 x half>, <2 x half>)\n");
  for (size_t i = 0; i < 1024; ++i) {
    const double x = ToFloat(Half{a[i]});
    const double y = ToFloat(Half{b[i]});
    // Doubles hold all of these exactly before they are rounded.
    const double m = ToFloat(ToHalf(x * y));
    const double s = ToFloat(ToHalf(m + 1));
    EXPECT_EQ(Output<uint16_t>()[i], ToHalf(s * x + y).bits) << i;
  }
}

TEST_P(AmdKernelTest, ConstantsThatTheObjectHolds) {
  const std::string body =
      "  %pa = getelementptr i32, ptr addrspace(1) %ina, i64 %i\n"
      "  %x = load i32, ptr addrspace(1) %pa\n"
      "  %at = and i32 %x, 7\n"
      "  %p = getelementptr i32, ptr addrspace(4) @table, i32 %at\n"
      "  %r = load i32, ptr addrspace(4) %p\n"
      "  %pr = getelementptr i32, ptr addrspace(1) %out, i64 %i\n"
      "  store i32 %r, ptr addrspace(1) %pr\n"
      "  ret void";
  const std::vector<uint32_t> in = RandomWords(512, 11);
  RunKernel(body, 2048, {ToBytes(in)},
            "@table = internal addrspace(4) constant [8 x i32] [i32 3, i32 1, i32 4, i32 1, i32 5, "
            "i32 9, i32 2, i32 6]\n");
  const uint32_t table[] = {3, 1, 4, 1, 5, 9, 2, 6};
  for (size_t t = 0; t < 512; ++t) EXPECT_EQ(Output<uint32_t>()[t], table[in[t] & 7]) << t;
}

}  // namespace
}  // namespace fakeamd
