// The programs of the suite of conformance.h, in the code of every kind of device.
//
// next(buffer): adds 1 to the byte at buffer[begin + workgroup].
//
// place(buffer, scalar32 a, scalar64 b): thread t of the workgroup at (x, y, z) of the grid, with
// `begin` added to x, writes the low byte of a + (b >> 40) + t to buffer[8 * (x + 4 y + 8 z) + t].
// A workgroup has 2 x 2 x 2 threads, numbered x + 2 y + 4 z; a CPU's has one, and its grid is x
// alone.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"

namespace telegrad {

inline absl::StatusOr<ProgramImage> HostNext() {
  return Compile(
      "define void @next(ptr %buffers, i64 %begin, i64 %end) \"telegrad-parameters\"=\"buffer\" {\n"
      "  %b = load ptr, ptr %buffers\n  %x = load i8, ptr %b\n  %y = add i8 %x, 1\n"
      "  store i8 %y, ptr %b\n  ret void\n}\n",
      "next", HostTarget(1));
}

// The parameters of `place` but begin, and its threads.
inline const char* PlaceAttribute() { return "buffer,scalar32,scalar64"; }
inline ProgramSignature PlaceSignature() {
  return {.parameters = {ParameterKind::kBuffer, ParameterKind::kScalar32, ParameterKind::kScalar64,
                         ParameterKind::kBegin},
          .group = {2, 2, 2}};
}

inline absl::StatusOr<ProgramImage> HostPlace() {
  return Compile(
      StrCat("define void @place(ptr %words, i64 %begin, i64 %end) \"telegrad-parameters\"=\"",
             PlaceAttribute(), "\" {\n",
             "entry:\n  %b = load ptr, ptr %words\n"
             "  %wa = getelementptr i64, ptr %words, i64 1\n  %a = load i64, ptr %wa\n"
             "  %wb = getelementptr i64, ptr %words, i64 2\n  %c = load i64, ptr %wb\n"
             "  %high = lshr i64 %c, 40\n  %sum = add i64 %a, %high\n"
             "  %byte = trunc i64 %sum to i8\n  br label %loop\n"
             "loop:\n  %i = phi i64 [ %begin, %entry ], [ %next, %body ]\n"
             "  %more = icmp slt i64 %i, %end\n  br i1 %more, label %body, label %done\n"
             "body:\n  %at = mul i64 %i, 8\n  %p = getelementptr i8, ptr %b, i64 %at\n"
             "  store i8 %byte, ptr %p\n  %next = add i64 %i, 1\n  br label %loop\n"
             "done:\n  ret void\n}\n"),
      "place", HostTarget(1));
}

inline std::string PlacePtx(const std::string& version, const std::string& arch) {
  return StrCat(".version ", version, "\n.target ", arch, R"(
.address_size 64

.visible .entry place(.param .u64 buffer, .param .u32 a, .param .u64 b, .param .u64 begin)
.reqntid 2, 2, 2
{
  .reg .u64 %rd<8>;
  .reg .u32 %r<12>;
  ld.param.u64 %rd1, [buffer];
  ld.param.u32 %r1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [begin];
  shr.u64 %rd2, %rd2, 40;
  cvt.u32.u64 %r2, %rd2;
  add.u32 %r1, %r1, %r2;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %tid.y;
  mad.lo.u32 %r3, %r4, 2, %r3;
  mov.u32 %r4, %tid.z;
  mad.lo.u32 %r3, %r4, 4, %r3;
  add.u32 %r1, %r1, %r3;
  mov.u32 %r5, %ctaid.x;
  cvt.u32.u64 %r6, %rd3;
  add.u32 %r5, %r5, %r6;
  mov.u32 %r6, %ctaid.y;
  mad.lo.u32 %r5, %r6, 4, %r5;
  mov.u32 %r6, %ctaid.z;
  mad.lo.u32 %r5, %r6, 8, %r5;
  mad.lo.u32 %r5, %r5, 8, %r3;
  cvt.u64.u32 %rd4, %r5;
  add.u64 %rd4, %rd1, %rd4;
  st.global.u8 [%rd4], %r1;
  ret;
}
)");
}

inline absl::StatusOr<ProgramImage> CudaPlace() {
  return ProgramImage{
      .name = "place", .binary = PlacePtx("7.8", "sm_80"), .signature = PlaceSignature()};
}

// Its workgroups are said by hand, because the attributes of kernels have one dimension.
inline absl::StatusOr<ProgramImage> HipPlace(const std::string& processor) {
  std::string text =
      "define amdgpu_kernel void @place(ptr addrspace(1) %b, i32 %a, i64 %c, i64 %begin) #0 {\n"
      "  %high = lshr i64 %c, 40\n  %h = trunc i64 %high to i32\n  %sum = add i32 %a, %h\n";
  std::string declared;
  for (const char* axis : {"x", "y", "z"}) {
    StrAppend(&text, "  %t", axis, " = call i32 @llvm.amdgcn.workitem.id.", axis, "()\n", "  %g",
              axis, " = call i32 @llvm.amdgcn.workgroup.id.", axis, "()\n");
    StrAppend(&declared, "declare i32 @llvm.amdgcn.workitem.id.", axis, "()\n",
              "declare i32 @llvm.amdgcn.workgroup.id.", axis, "()\n");
  }
  StrAppend(&text,
            "  %ty2 = mul i32 %ty, 2\n  %tz4 = mul i32 %tz, 4\n  %t1 = add i32 %tx, %ty2\n"
            "  %t = add i32 %t1, %tz4\n  %gy4 = mul i32 %gy, 4\n  %gz8 = mul i32 %gz, 8\n"
            "  %g1 = add i32 %gx, %gy4\n  %g2 = add i32 %g1, %gz8\n"
            "  %g3 = zext i32 %g2 to i64\n  %g = add i64 %g3, %begin\n  %g8 = mul i64 %g, 8\n"
            "  %t64 = zext i32 %t to i64\n  %at = add i64 %g8, %t64\n"
            "  %p = getelementptr i8, ptr addrspace(1) %b, i64 %at\n  %v = add i32 %sum, %t\n"
            "  %byte = trunc i32 %v to i8\n  store i8 %byte, ptr addrspace(1) %p\n  ret void\n}\n",
            declared,
            "attributes #0 = { \"amdgpu-flat-work-group-size\"=\"8,8\" "
            "\"amdgpu-implicitarg-num-bytes\"=\"0\" \"amdgpu-no-dispatch-ptr\" }\n");
  TG_ASSIGN_OR_RETURN(ProgramImage image,
                      Compile(text, "place", AmdTarget(*FindAmdProcessor(processor), 1)));
  image.signature = PlaceSignature();
  return image;
}

inline std::string OpenClPlaceText() {
  return StrCat("// telegrad-parameters: ", PlaceAttribute(), ",begin\n",
                "__kernel __attribute__((reqd_work_group_size(2, 2, 2)))\n"
                "void place(__global uchar* restrict p, ulong o, uint a, ulong b, ulong begin) {\n"
                "  const ulong t = get_local_id(0) + 2 * get_local_id(1) + 4 * get_local_id(2);\n"
                "  const ulong g = begin + get_group_id(0) + 4 * get_group_id(1) +\n"
                "                  8 * get_group_id(2);\n"
                "  p[o + 8 * g + t] = (uchar)(a + (uint)(b >> 40) + (uint)t);\n}\n");
}

}  // namespace telegrad
