// The programs of the suite of conformance.h, in the code of every kind of device.
//
// next(buffer): adds 1 to the byte at buffer[begin + workgroup].
//
// place(buffer, scalar32 a, scalar64 b): thread t of the workgroup at (x, y, z) of the grid, with
// `begin` added to x, writes the low byte of a + (b >> 40) + t to buffer[8 * (x + 4 y + 8 z) + t].
// A workgroup has 2 x 2 x 2 threads, numbered x + 2 y + 4 z; a CPU's has one, and its grid is x
// alone.
//
// box(tensor_map map, buffer to, scalar32 x, scalar32 y, scalar32 z): writes the box at (x, y, z)
// of a tensor of three dimensions of 4 bytes to the beginning of `to`, the first dimension
// innermost. GPUs' has 32 threads, and takes boxes of 32 elements.
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

// From the fields of a HostTensorMap.
inline absl::StatusOr<ProgramImage> HostBox() {
  std::string read, visit, sum = "0", inside = "true";
  const auto field = [&](const std::string& name, int d, int64_t first) {
    StrAppend(&read, "  %", name, d, "p = getelementptr i8, ptr %map, i64 ", first + 8 * d, "\n  %",
              name, d, " = load i64, ptr %", name, d, "p\n");
  };
  for (int d = 0; d < 3; ++d) {
    field("size", d, 16);
    field("stride", d, 56);
    field("box", d, 96);
    field("step", d, 136);
    StrAppend(&read, "  %wp", d, " = getelementptr i64, ptr %words, i64 ", 2 + d, "\n  %w", d,
              " = load i64, ptr %wp", d, "\n  %t", d, " = trunc i64 %w", d, " to i32\n  %first", d,
              " = sext i32 %t", d, " to i64\n  %up", d, " = add i64 %box", d, ", %step", d,
              "\n  %most", d, " = sub i64 %up", d, ", 1\n  %count", d, " = udiv i64 %most", d,
              ", %step", d, "\n");
    const std::string rest = d == 0 ? "%n" : StrCat("%rest", d - 1);
    StrAppend(&visit, "  %i", d, " = urem i64 ", rest, ", %count", d, "\n  %rest", d,
              " = udiv i64 ", rest, ", %count", d, "\n  %way", d, " = mul i64 %i", d, ", %step", d,
              "\n  %c", d, " = add i64 %first", d, ", %way", d, "\n  %in", d, " = icmp ult i64 %c",
              d, ", %size", d, "\n  %off", d, " = mul i64 %c", d, ", %stride", d, "\n  %sum", d,
              " = add i64 ", sum, ", %off", d, "\n  %inside", d, " = and i1 ", inside, ", %in", d,
              "\n");
    sum = StrCat("%sum", d);
    inside = StrCat("%inside", d);
  }
  return Compile(
      StrCat("define void @box(ptr %words, i64 %begin, i64 %end) \"telegrad-parameters\"="
             "\"tensor_map,buffer,scalar32,scalar32,scalar32\" {\nentry:\n"
             "  %map = load ptr, ptr %words\n  %from = load ptr, ptr %map\n"
             "  %top = getelementptr i64, ptr %words, i64 1\n  %to = load ptr, ptr %top\n",
             read,
             "  %plane = mul i64 %count0, %count1\n  %all = mul i64 %plane, %count2\n"
             "  br label %loop\n"
             "loop:\n  %n = phi i64 [ 0, %entry ], [ %next, %put ]\n",
             visit,
             "  br i1 %inside2, label %get, label %put\n"
             "get:\n  %p = getelementptr i8, ptr %from, i64 %sum2\n  %v = load i32, ptr %p\n"
             "  br label %put\n"
             "put:\n  %x = phi i32 [ %v, %get ], [ 0, %loop ]\n"
             "  %q = getelementptr i32, ptr %to, i64 %n\n  store i32 %x, ptr %q\n"
             "  %next = add i64 %n, 1\n  %more = icmp ult i64 %next, %all\n"
             "  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}\n"),
      "box", HostTarget(1));
}

// By the copy engine of tensor maps, which a thread starts and all wait for.
inline constexpr char kBoxPtx[] = R"(.version 8.0
.target sm_90a
.address_size 64

.visible .entry box(.param .align 64 .b8 map[128], .param .u64 to, .param .u32 x, .param .u32 y,
                    .param .u32 z, .param .u64 begin)
.reqntid 32, 1, 1
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %rd<6>;
  .shared .align 128 .b8 tile[128];
  .shared .align 8 .b64 here;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  mov.u32 %r1, tile;
  mov.u32 %r2, here;
  @%p0 bra $started;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  ld.param.u32 %r3, [x];
  ld.param.u32 %r4, [y];
  ld.param.u32 %r5, [z];
  mov.b64 %rd0, map;
  cvta.param.u64 %rd1, %rd0;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%r2], 128;
  cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3, %r4, %r5}], [%r2];
$started:
  bar.sync 0;
$wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra $wait;
  mad.lo.u32 %r6, %r0, 4, %r1;
  ld.shared.u32 %r7, [%r6];
  ld.param.u64 %rd3, [to];
  mul.wide.u32 %rd4, %r0, 4;
  add.u64 %rd5, %rd3, %rd4;
  st.global.u32 [%rd5], %r7;
  ret;
}
)";

inline absl::StatusOr<ProgramImage> CudaBox() {
  using enum ParameterKind;
  return ProgramImage{
      .name = "box",
      .binary = kBoxPtx,
      .signature = {.parameters = {kTensorMap, kBuffer, kScalar32, kScalar32, kScalar32, kBegin},
                    .group = {32, 1, 1}}};
}

}  // namespace telegrad
