// The programs with tensor maps of the suite of conformance.h, in the code of each kind of device
// that takes them.
//
// box(tensor_map map, buffer to, scalar32 x, scalar32 y, scalar32 z): writes the box at (x, y, z)
// of a tensor of three dimensions of 4 bytes to the beginning of `to`, the first dimension
// innermost. GPUs' has 32 threads, and takes boxes of 32 elements.
//
// unbox(buffer from, tensor_map map, scalar32 x, scalar32 y, scalar32 z): the reverse.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"

namespace telegrad {

// Both, from the fields of a HostTensorMap.
inline absl::StatusOr<ProgramImage> HostBoxProgram(const std::string& name, bool stores) {
  std::string read, visit, sum = "0", inside = "true";
  const auto field = [&](const std::string& of, int d, int64_t first) {
    StrAppend(&read, "  %", of, d, "p = getelementptr i8, ptr %map, i64 ", first + 8 * d, "\n  %",
              of, d, " = load i64, ptr %", of, d, "p\n");
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
  const std::string inside_body =
      stores ? "  %v = load i32, ptr %q\n  store i32 %v, ptr %p\n" : "  %v = load i32, ptr %p\n";
  const std::string always = stores ? ""
                                    : "  %x = phi i32 [ %v, %move ], [ 0, %loop ]\n"
                                      "  store i32 %x, ptr %q\n";
  return Compile(
      StrCat("define void @", name, "(ptr %words, i64 %begin, i64 %end) \"telegrad-parameters\"=\"",
             stores ? "buffer,tensor_map" : "tensor_map,buffer",
             ",scalar32,scalar32,scalar32\" {\nentry:\n  %second = getelementptr i64, ptr %words, "
             "i64 1\n",
             "  %map = load ptr, ptr ", stores ? "%second" : "%words", "\n  %flat = load ptr, ptr ",
             stores ? "%words" : "%second", "\n  %tensor = load ptr, ptr %map\n", read,
             "  %plane = mul i64 %count0, %count1\n  %all = mul i64 %plane, %count2\n"
             "  br label %loop\n"
             "loop:\n  %n = phi i64 [ 0, %entry ], [ %next, %after ]\n",
             visit,
             "  %q = getelementptr i32, ptr %flat, i64 %n\n"
             "  br i1 %inside2, label %move, label %after\n"
             "move:\n  %p = getelementptr i8, ptr %tensor, i64 %sum2\n",
             inside_body, "  br label %after\nafter:\n", always,
             "  %next = add i64 %n, 1\n  %more = icmp ult i64 %next, %all\n"
             "  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}\n"),
      name, HostTarget(1));
}
inline absl::StatusOr<ProgramImage> HostBox() { return HostBoxProgram("box", /*stores=*/false); }
inline absl::StatusOr<ProgramImage> HostUnbox() { return HostBoxProgram("unbox", /*stores=*/true); }

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
  cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r1], [%rd1, {%r3, %r4, %r5}], [%r2];
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

inline constexpr char kUnboxPtx[] = R"(.version 8.0
.target sm_90a
.address_size 64

.visible .entry unbox(.param .u64 from, .param .align 64 .b8 map[128], .param .u32 x,
                      .param .u32 y, .param .u32 z, .param .u64 begin)
.reqntid 32, 1, 1
{
  .reg .pred %p<2>;
  .reg .u32 %r<8>;
  .reg .u64 %rd<6>;
  .shared .align 128 .b8 tile[128];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, tile;
  ld.param.u64 %rd0, [from];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd2, %rd0, %rd1;
  ld.global.u32 %r2, [%rd2];
  mad.lo.u32 %r3, %r0, 4, %r1;
  st.shared.u32 [%r3], %r2;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra $end;
  ld.param.u32 %r4, [x];
  ld.param.u32 %r5, [y];
  ld.param.u32 %r6, [z];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd4, %rd3;
  cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd4, {%r4, %r5, %r6}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
$end:
  ret;
}
)";

inline absl::StatusOr<ProgramImage> CudaUnbox() {
  using enum ParameterKind;
  return ProgramImage{
      .name = "unbox",
      .binary = kUnboxPtx,
      .signature = {.parameters = {kBuffer, kTensorMap, kScalar32, kScalar32, kScalar32, kBegin},
                    .group = {32, 1, 1}}};
}

}  // namespace telegrad
