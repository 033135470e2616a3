// Compiling LLVM IR for the host, NVIDIA and AMD: the kind of output, its reproducibility,
// rounding of half precision, and errors as statuses.
#include "engine/compile/compiler.h"

#include <thread>
#include <vector>

#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::HasSubstr;

std::string Returning(const std::string& body) {
  return "define void @k(ptr %b, i64 %begin, i64 %end) {\n" + body + "\n}\n";
}

TEST(HostTarget, DescribesTheProcessor) {
  const Target target = HostTarget(3);
  EXPECT_EQ(target.arch, "x86-64");
  EXPECT_EQ(target.threads, 3);
  EXPECT_GE(HostTarget(0).threads, 1);
  EXPECT_THAT(target.features, HasSubstr("+sse2"));
  EXPECT_THAT(target.features, testing::Not(HasSubstr("avx10.1")));
  EXPECT_THAT(target.features, testing::Not(HasSubstr(",-")));
  const auto has = [&](const char* name) {
    return target.features.find(name) != std::string::npos;
  };
  EXPECT_EQ(target.vector_bytes == 64, has("+avx512f"));
  EXPECT_EQ(target.vector_bytes >= 32, has("+avx2"));
  EXPECT_EQ(target.converts.Has(DType::kFloat16), has("+f16c"));
  EXPECT_EQ(HostTarget(3).Key(), target.Key());
}

TEST(Compile, MakesARelocatableElfObjectTheSameEachTime) {
  const Target target = HostTarget(1);
  const auto image = Compile(Returning("ret void"), "k", target);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->name, "k");
  EXPECT_EQ(image->binary.substr(0, 4), "\177ELF");
  EXPECT_EQ(image->binary[16], 1);  // e_type: ET_REL
  EXPECT_EQ(Compile(Returning("ret void"), "k", target)->binary, image->binary);
}

// The sum of the vectors of a loop, which a kernel keeps in a buffer of registers.
TEST(Compile, KeepsBuffersOfRegistersInRegisters) {
  const std::string ir =
      "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n" +
      Returning(
          "entry:\n  %s = alloca [16 x float], align 64\n"
          "  call void @llvm.memset.p0.i64(ptr %s, i8 0, i64 64, i1 false)\n  br label %head\n"
          "head:\n  %i = phi i64 [ 0, %entry ], [ %next, %body ]\n"
          "  %more = icmp slt i64 %i, %end\n  br i1 %more, label %body, label %exit\n"
          "body:\n  %p = getelementptr <16 x float>, ptr %b, i64 %i\n"
          "  %x = load <16 x float>, ptr %p, align 4\n"
          "  %old = load <16 x float>, ptr %s, align 64\n"
          "  %new = fadd <16 x float> %old, %x\n"
          "  store <16 x float> %new, ptr %s, align 64\n"
          "  %next = add nuw nsw i64 %i, 1\n  br label %head\n"
          "exit:\n  %sum = load <16 x float>, ptr %s, align 64\n"
          "  store <16 x float> %sum, ptr %b, align 4\n  ret void");
  const auto assembly = CompileToAssembly(ir, "k", HostTarget(1));
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  EXPECT_THAT(*assembly, testing::Not(HasSubstr("rsp")));
}

// The same of two sums, between which a short loop chooses.
TEST(Compile, KeepsBuffersThatShortLoopsIndexInRegisters) {
  const std::string ir =
      "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n" +
      Returning(
          "entry:\n  %s = alloca [32 x float], align 64\n"
          "  call void @llvm.memset.p0.i64(ptr %s, i8 0, i64 128, i1 false)\n  br label %head\n"
          "head:\n  %i = phi i64 [ 0, %entry ], [ %next, %latch ]\n"
          "  %more = icmp slt i64 %i, %end\n  br i1 %more, label %inner, label %exit\n"
          "inner:\n  %j = phi i64 [ 0, %head ], [ %j.next, %inner ]\n"
          "  %twice = shl i64 %i, 1\n  %row = add i64 %twice, %j\n"
          "  %p = getelementptr <16 x float>, ptr %b, i64 %row\n"
          "  %x = load <16 x float>, ptr %p, align 4\n"
          "  %a = getelementptr <16 x float>, ptr %s, i64 %j\n"
          "  %old = load <16 x float>, ptr %a, align 64\n"
          "  %new = fadd <16 x float> %old, %x\n"
          "  store <16 x float> %new, ptr %a, align 64\n"
          "  %j.next = add nuw nsw i64 %j, 1\n  %again = icmp slt i64 %j.next, 2\n"
          "  br i1 %again, label %inner, label %latch\n"
          "latch:\n  %next = add nuw nsw i64 %i, 1\n  br label %head\n"
          "exit:\n  %sum = load <16 x float>, ptr %s, align 64\n"
          "  %second = getelementptr <16 x float>, ptr %s, i64 1\n"
          "  %other = load <16 x float>, ptr %second, align 64\n"
          "  %both = fadd <16 x float> %sum, %other\n"
          "  store <16 x float> %both, ptr %b, align 4\n  ret void");
  const auto assembly = CompileToAssembly(ir, "k", HostTarget(1));
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  EXPECT_THAT(*assembly, testing::Not(HasSubstr("rsp")));
}

TEST(Compile, VectorizesScalarLoops) {
  const std::string ir = Returning(
      "entry:\n  br label %loop\n"
      "loop:\n  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n"
      "  %p = getelementptr inbounds float, ptr %b, i64 %i\n  %x = load float, ptr %p, align 4\n"
      "  %y = fmul float %x, %x\n  store float %y, ptr %p, align 4\n"
      "  %next = add nuw nsw i64 %i, 1\n  %more = icmp slt i64 %next, %end\n"
      "  br i1 %more, label %loop, label %exit\nexit:\n  ret void");
  const auto assembly = CompileToAssembly(ir, "k", HostTarget(1));
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  EXPECT_THAT(*assembly, HasSubstr("mulps"));
}

// What a driver of CUDA 12.0 takes, which is version 8.0.
TEST(Compile, MakesPtxForNvidia) {
  const std::string ir =
      "define ptx_kernel void @k(ptr addrspace(1) %a, i64 %begin) #0 {\n"
      "  %p = getelementptr <4 x float>, ptr addrspace(1) %a, i64 %begin\n"
      "  %x = load <4 x float>, ptr addrspace(1) %p, align 16\n"
      "  %y = fmul <4 x float> %x, %x\n  %z = fadd <4 x float> %y, %x\n"
      "  store <4 x float> %z, ptr addrspace(1) %p, align 16\n  ret void\n}\n"
      "attributes #0 = { \"telegrad-group-threads\"=\"96\" \"telegrad-local-bytes\"=\"640\" "
      "\"telegrad-parameters\"=\"buffer,begin\" }\n";
  for (const auto& [major, arch, version] :
       {std::tuple(8, "sm_80", "7.1"), std::tuple(9, "sm_90a", "8.0")}) {
    const auto image = Compile(ir, "k", *NvidiaTarget(major, 0, 1, 1024));
    ASSERT_TRUE(image.ok()) << image.status();
    const ProgramSignature signature{
        .parameters = KernelParameters(1), .group = {96, 1, 1}, .local_bytes = 640};
    EXPECT_EQ(image->signature, signature);
    EXPECT_THAT(image->binary, HasSubstr(StrCat(".version ", version, "\n.target ", arch, "\n")));
    EXPECT_THAT(image->binary, HasSubstr(".visible .entry k("));
    EXPECT_THAT(image->binary, HasSubstr("ld.global.v4.f32"));
    // Rounded each, and nothing that the driver may contract.
    EXPECT_THAT(image->binary, HasSubstr("mul.rn.f32"));
    EXPECT_THAT(image->binary, HasSubstr("add.rn.f32"));
    EXPECT_THAT(image->binary, testing::Not(HasSubstr("fma")));
  }
}

std::string AmdKernel(const std::string& body) {
  return "define amdgpu_kernel void @k(ptr addrspace(1) %a, i64 %begin) #0 {\n" + body +
         "  ret void\n}\ndeclare void @elsewhere()\n"
         "attributes #0 = { \"telegrad-group-threads\"=\"96\" "
         "\"amdgpu-flat-work-group-size\"=\"96,96\" }\n";
}

TEST(Compile, MakesCodeObjectsForAmd) {
  const std::string ir = AmdKernel(
      "  %p = getelementptr <4 x float>, ptr addrspace(1) %a, i64 %begin\n"
      "  %x = load <4 x float>, ptr addrspace(1) %p, align 16\n"
      "  %y = fmul <4 x float> %x, %x\n  %z = fadd <4 x float> %y, %x\n"
      "  store <4 x float> %z, ptr addrspace(1) %p, align 16\n");
  for (const AmdProcessor& processor : AmdProcessors()) {
    const Target target = AmdTarget(processor, 8);
    const auto image = Compile(ir, "k", target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->signature.group.x, 96);
    const std::string& elf = image->binary;
    EXPECT_EQ(elf.substr(0, 4), "\177ELF");
    EXPECT_EQ(elf[7], 64);                                // of amdhsa
    EXPECT_EQ(elf[16], 3);                                // e_type: ET_DYN
    EXPECT_EQ(static_cast<unsigned char>(elf[18]), 224);  // e_machine: EM_AMDGPU
    EXPECT_THAT(elf, HasSubstr("k.kd"));
    EXPECT_THAT(elf, HasSubstr(StrCat("amdgcn-amd-amdhsa--", processor.name)));
    EXPECT_EQ(Compile(ir, "k", target)->binary, elf);
    const auto assembly = CompileToAssembly(ir, "k", target);
    ASSERT_TRUE(assembly.ok()) << assembly.status();
    EXPECT_THAT(*assembly, HasSubstr(StrCat("wavefront_size: ", processor.wave)));
    EXPECT_THAT(*assembly, testing::AnyOf(HasSubstr("_load_b128"), HasSubstr("_load_dwordx4")));
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("fma")));
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("mac_f32")));
  }
}

// A product of floats that is rounded to half, beside one that is not: see halves.cc.
TEST(Compile, RoundsProductsToHalfByThemselves) {
  const std::string ir = AmdKernel(
      "  %p = getelementptr float, ptr addrspace(1) %a, i64 %begin\n"
      "  %x = load float, ptr addrspace(1) %p, align 4\n  %y = fmul float %x, 3.0\n"
      "  %h = fptrunc float %y to half\n  %w = fpext half %h to float\n"
      "  %z = fadd float %w, %y\n  store float %z, ptr addrspace(1) %p, align 4\n");
  for (const AmdProcessor& processor : AmdProcessors()) {
    const auto assembly = CompileToAssembly(ir, "k", AmdTarget(processor, 8));
    ASSERT_TRUE(assembly.ok()) << assembly.status();
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("fma")));
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("_max_")));  // nothing remains of the operation
    EXPECT_THAT(*assembly, HasSubstr("_mul_f32"));
    EXPECT_THAT(*assembly, HasSubstr("_cvt_f16_f32"));
  }
}

// A quotient of halves that are widened for it: see halves.cc.
TEST(Compile, DividesHalvesAsFloats) {
  const std::string ir = AmdKernel(
      "  %p = getelementptr half, ptr addrspace(1) %a, i64 %begin\n"
      "  %x = load half, ptr addrspace(1) %p, align 2\n  %w = fpext half %x to float\n"
      "  %q = fdiv float 1.0, %w\n  %h = fptrunc float %q to half\n"
      "  store half %h, ptr addrspace(1) %p, align 2\n");
  for (const AmdProcessor& processor : AmdProcessors()) {
    const auto assembly = CompileToAssembly(ir, "k", AmdTarget(processor, 8));
    ASSERT_TRUE(assembly.ok()) << assembly.status();
    EXPECT_THAT(*assembly, HasSubstr("v_div_fixup_f32"));
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("v_rcp_f16")));
    EXPECT_THAT(*assembly, testing::Not(HasSubstr("_max_")));
  }
}

// What only the linker finds.
TEST(Compile, TheLinkersErrorsAreStatuses) {
  const Target target = AmdTarget(AmdProcessors()[0], 8);
  const auto image = Compile(AmdKernel("  call void @elsewhere()\n"), "k", target);
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInternal) << image.status();
  EXPECT_THAT(std::string(image.status().message()),
              testing::AllOf(HasSubstr("kernel k"), HasSubstr("undefined symbol: elsewhere")));
  EXPECT_TRUE(Compile(AmdKernel(""), "k", target).ok());
}

TEST(Compile, ErrorsNameTheKernel) {
  const Target target = HostTarget(1);
  const auto message = [&](const std::string& text, const std::string& name) {
    const auto image = Compile(text, name, target);
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInternal);
    return std::string(image.status().message());
  };
  EXPECT_THAT(message("define nonsense", "bad_text"), HasSubstr("bad_text"));
  EXPECT_THAT(message("", "empty"), HasSubstr("empty"));
  EXPECT_THAT(message(Returning("ret void"), "other"), HasSubstr("other"));
  // Parses, but %x does not dominate its use.
  EXPECT_THAT(
      message("define void @k(i1 %c) {\n br i1 %c, label %a, label %b\na:\n %x = add i64 1, "
              "2\n br label %b\nb:\n %y = add i64 %x, 1\n ret void\n}\n",
              "k"),
      HasSubstr("dominate"));
  Target elsewhere = target;
  elsewhere.arch = "sparc";
  EXPECT_EQ(Compile(Returning("ret void"), "k", elsewhere).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Compile(std::string(kMaxIrBytes + 1, ' '), "k", target).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Only the code generator finds this error; it reports it through the context's handler.
TEST(Compile, BackendErrorsAreStatuses) {
  const auto image =
      Compile("define float @k(float %x) \"target-features\"=\"-sse,-sse2\" {\n ret float %x\n}\n",
              "k", HostTarget(1));
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInternal) << image.status();
  EXPECT_THAT(std::string(image.status().message()), HasSubstr("kernel k"));
}

TEST(Compile, ThreadsCompileAtOnce) {
  const Target target = HostTarget(1);
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        auto image = Compile(Returning("ret void"), "k", target);
        if (image.ok()) results[i] = image->binary;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_FALSE(results[0].empty());
}

}  // namespace
}  // namespace telegrad
