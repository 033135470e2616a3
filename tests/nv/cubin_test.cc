// Reading cubins: what the fake assembler writes, what NVIDIA's does where there is one, and
// anything else, which must end in an error.
#include "devices/cubin/cubin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/compile/compiler.h"
#include "engine/compile/nvjitlink.h"
#include "tests/nv/nv_fixture.h"
#include "tests/nvptx/ptxas.h"

namespace telegrad::nv {
namespace {

using ::testing::HasSubstr;

constexpr char kAll[] = R"(.version 8.0
.target sm_90a
.address_size 64
.global .align 4 .b8 table[16] = {1,0,0,0,2,0,0,0,3,0,0,0,4,0,0,0};
.visible .entry all(.param .u64 a, .param .u64 b, .param .u64 begin)
.reqntid 64, 1, 1
{
  .local .align 4 .b8 kept[512];
  .shared .align 4 .b8 tile[256];
  .reg .b64 %rd<9>; .reg .b32 %r<9>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [begin];
  mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mul.wide.u32 %rd3, %r2, 4;
  mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3; ld.global.u32 %r3, [%rd4];
  mov.u32 %r4, tile; mul.lo.u32 %r6, %r1, 4; add.u32 %r4, %r4, %r6; st.shared.u32 [%r4], %r3;
  bar.sync 0;
  mov.u64 %rd5, kept; add.s64 %rd5, %rd5, %rd3; st.local.u32 [%rd5], %r3; ld.local.u32 %r5, [kept+4];
  ld.shared.u32 %r8, [%r4]; add.u32 %r5, %r5, %r8;
  mul.wide.u32 %rd6, %r1, 4; add.s64 %rd1, %rd1, %rd6; add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r5; ret;
}
)";

void ExpectAll(const std::string& elf) {
  const auto cubin = Cubin::Read(elf, "all");
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  const CubinKernel& kernel = cubin->kernel();
  EXPECT_EQ(kernel.parameters, std::vector<uint32_t>(3, 8));
  EXPECT_EQ(kernel.parameter_base, 0x210u);
  EXPECT_EQ(kernel.parameter_bytes, 24u);
  EXPECT_EQ(kernel.required_threads, 64u);
  EXPECT_EQ(kernel.stack_bytes, 512u);
  EXPECT_EQ(kernel.shared_bytes, 1024u + 256u);
  EXPECT_EQ(kernel.barriers, 1u);
  EXPECT_GE(kernel.registers, 8u);
  EXPECT_EQ(kernel.code % 128, 0u);
  // Bank 4 has the address of the table, wherever the image lies.
  ASSERT_EQ(kernel.constants4_bytes, 8u);
  for (const uint64_t address : {uint64_t{0x1000000}, uint64_t{0x1234567000}}) {
    const std::vector<std::byte> image = cubin->Place(address);
    uint64_t table;
    std::memcpy(&table, &image[kernel.constants4], 8);
    ASSERT_GE(table, address);
    ASSERT_LE(table - address + 16, image.size());
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t value;
      std::memcpy(&value, &image[table - address + 4 * i], 4);
      EXPECT_EQ(value, i + 1);
    }
  }
}

TEST(Cubin, OfTheFakeAssembler) {
  const auto image = CubinOf(kAll, "all");
  ASSERT_TRUE(image.ok()) << image.status();
  ExpectAll(image->binary);
}

// Each text as long as the other.
std::string WithSizes(std::string_view table, std::string_view tile) {
  std::string out = kAll;
  out.replace(out.find("table[16]"), 9, StrCat("table[", table, "]"));
  out.replace(out.find("tile[256]"), 9, StrCat("tile[", tile, "]"));
  return out;
}

// Variables are loaded, memory of workgroups is not.
TEST(Cubin, LoadedBytes) {
  const auto loaded = [](const std::string& ptx) {
    const auto image = CubinOf(ptx, "all");
    EXPECT_TRUE(image.ok()) << image.status();
    const auto bytes = Cubin::LoadedBytes(image->binary);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_LT(bytes.value_or(0), static_cast<int64_t>(image->binary.size()));
    return bytes.value_or(0);
  };
  const int64_t bytes = loaded(kAll);
  EXPECT_GT(bytes, static_cast<int64_t>(sizeof(kAll))) << "where the code would be is the text";
  EXPECT_EQ(loaded(WithSizes("96", "256")), bytes + 80);
  EXPECT_EQ(loaded(WithSizes("16", "999")), bytes);
  EXPECT_EQ(Cubin::LoadedBytes("no cubin").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Cubin, OfNvidiasAssembler) {
  const std::string ptxas = testing::FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: set TELEGRAD_PTXAS";
  const auto elf = AssemblePtx({ptxas, ""}, kAll, "sm_90a", "all");
  ASSERT_TRUE(elf.ok()) << elf.status();
  ExpectAll(*elf);
  // Of others the parameters are what CUDA's driver is asked to be given.
  std::string older = kAll;
  older.replace(older.find("sm_90a"), 6, "sm_80");
  const auto ampere = AssemblePtx({ptxas, ""}, older, "sm_80", "all");
  ASSERT_TRUE(ampere.ok()) << ampere.status();
  const auto read = Cubin::Read(*ampere, "all");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->IsFor(80));
  EXPECT_EQ(read->kernel().parameters, std::vector<uint32_t>(3, 8));
  EXPECT_EQ(*Cubin::ParametersOf(*ampere, "all"), std::vector<uint32_t>(3, 8));
  const auto found = FindPtxas(ptxas);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->version, ::testing::StartsWith("V1"));
}

TEST(Cubin, SaysWhatItIsNot) {
  EXPECT_FALSE(Cubin::IsCubin(kAll));
  EXPECT_THAT(std::string(Cubin::Read(kAll, "all").status().message()), HasSubstr("no ELF file"));
  std::string elf = CubinOf(kAll, "all")->binary;
  EXPECT_THAT(std::string(Cubin::Read(elf, "other").status().message()),
              HasSubstr("no entry point other"));
  EXPECT_TRUE(Cubin::Read(elf, "all")->IsFor(90));
  EXPECT_FALSE(Cubin::Read(elf, "all")->IsFor(80));
  elf[48] = 80;  // e_flags: sm_80
  elf[49] = 0;
  EXPECT_TRUE(Cubin::Read(elf, "all")->IsFor(80));
  EXPECT_FALSE(Cubin::Read(elf, "all")->IsFor(90));
}

// Cut off anywhere and with any bytes changed it is read or refused, and never read beyond its end:
// the sanitizers look on.
TEST(Cubin, DamagedOnesDoNoHarm) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::string elf = CubinOf(kAll, "all")->binary;
  for (size_t bytes = 0; bytes < elf.size(); bytes += 1 + bytes / 40) {
    EXPECT_FALSE(Cubin::Read(elf.substr(0, bytes), "all").ok()) << bytes;
  }
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = elf;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      // The headers are the last part; most of the rest is code.
      const size_t tail = std::min<size_t>(elf.size(), 2048);
      const size_t at =
          random() % 2 == 0 ? random() % elf.size() : elf.size() - 1 - random() % tail;
      damaged[at] = static_cast<char>(random());
    }
    Cubin::ParametersOf(damaged, "all").status().IgnoreError();
    const auto read = Cubin::Read(damaged, "all");
    if (!read.ok()) {
      ++refused;
      continue;
    }
    read->Place(uint64_t{1} << 36);
  }
  EXPECT_GT(refused, 300);
}

TEST(Ptxas, SaysWhatIsWrong) {
  EXPECT_EQ(FindPtxas("/no/such/ptxas").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindPtxas("no_such_ptxas_anywhere").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindPtxas("/bin/true").status().code(), absl::StatusCode::kFailedPrecondition);
  // A key of kernels has the path.
  const TemporaryDirectory folder;
  for (const char* const name : {"pt\"xas", "pt|xas", "pt\\xas", "pt\xC3\xA9xas"}) {
    const std::string path = (folder.path() / name).string();
    ASSERT_EQ(symlink(FAKE_PTXAS, path.c_str()), 0);
    EXPECT_EQ(FindPtxas(path).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_THAT(std::string(AssemblePtx({"/bin/true", ""}, "", "sm_90a", "k").status().message()),
              HasSubstr("out.cubin"));
  const auto bad = AssemblePtx({FAKE_PTXAS, ""}, "no PTX", "sm_90a", "kernel_7");
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("kernel kernel_7: ptxas ended"));
  EXPECT_EQ(AssemblePtx({"/no/such/ptxas", ""}, "", "sm_90a", "k").status().code(),
            absl::StatusCode::kUnavailable);
  Target target;
  target.features = FakeAssembler();
  EXPECT_EQ(AssemblerOf(target)->path, FAKE_PTXAS);
  EXPECT_FALSE(TakesPtx(target));
  target.features = CubinOrPtxFeatures(*FindPtxas(FAKE_PTXAS));
  ASSERT_TRUE(AssemblerOf(target).has_value());
  EXPECT_EQ(AssemblerOf(target)->path, FAKE_PTXAS);
  EXPECT_EQ(Describe(*AssemblerOf(target)), "ptxas V0.0.1");
  EXPECT_TRUE(TakesPtx(target));
  target.features = "+avx2";
  EXPECT_FALSE(AssemblerOf(target).has_value());
}

// The library makes, in this process, the cubin that the program makes.
TEST(NvJitLink, MakesTheCubinOfPtx) {
  const auto found = FindNvJitLink(StrCat("libnothing.so.1:", FAKE_NVJITLINK));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, FAKE_NVJITLINK);
  EXPECT_TRUE(found->is_library());
  EXPECT_EQ(Describe(*found), "nvJitLink 0.7");
  const auto cubin = AssemblePtx(*found, kAll, "sm_90a", "all");
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  EXPECT_EQ(*cubin, CubinOf(kAll, "all")->binary);
  Target target;
  target.features = CubinOrPtxFeatures(*found);
  ASSERT_TRUE(AssemblerOf(target).has_value());
  EXPECT_EQ(AssemblerOf(target)->path, found->path);
  EXPECT_EQ(AssemblerOf(target)->version, "nvJitLink-0.7");
}

TEST(NvJitLink, SaysWhatIsWrong) {
  const Assembler library{FAKE_NVJITLINK, "nvJitLink-0.7"};
  const absl::Status bad = AssemblePtx(library, "no PTX", "sm_90a", "kernel_7").status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(bad.message()),
              ::testing::AllOf(HasSubstr("kernel kernel_7: nvJitLinkComplete ended with error 4"),
                               HasSubstr("fatal : ")));
  void* const fake = dlopen(FAKE_NVJITLINK, RTLD_NOW);
  ASSERT_NE(fake, nullptr);
  EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(fake, "fakeNvJitLinkLive"))(), 0);
  EXPECT_EQ(AssemblePtx({"/no/such.so", "nvJitLink-1.0"}, "", "sm_90a", "k").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(FindNvJitLink("libnothing.so.1:libnothing.so.2").status().code(),
            absl::StatusCode::kNotFound);
  // Another library.
  const absl::Status other = FindNvJitLink("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("lacks nvJitLinkVersion"));
}

// NVIDIA's own, where TELEGRAD_NVJITLINK names it or the system has it.
TEST(NvJitLink, NvidiasMakesCubins) {
  const char* const named = std::getenv("TELEGRAD_NVJITLINK");
  const auto found = FindNvJitLink(named != nullptr ? named
                                                    : "libnvJitLink.so.12:libnvJitLink.so.13:"
                                                      "/usr/local/cuda/lib64/libnvJitLink.so");
  if (!found.ok()) GTEST_SKIP() << found.status().message();
  // Of it the driver is asked for the parameters alone: the sections of cubins of CUDA 13 are not
  // those that devices without the driver read.
  const auto elf = AssemblePtx(*found, kAll, "sm_90a", "all");
  ASSERT_TRUE(elf.ok()) << elf.status();
  EXPECT_EQ(*Cubin::ParametersOf(*elf, "all"), std::vector<uint32_t>(3, 8));
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    EXPECT_EQ(TryAssembler(*found, arch), absl::OkStatus()) << arch;
  }
}

}  // namespace
}  // namespace telegrad::nv
