// COPY_ASYNC from global to local memory, which goes in units of 4, 8 or 16 bytes that are aligned
// on both sides, where it has such; what a target's instruction does with them is in its own file.
// What has no such units is copied element by element. What lies outside of the source is 0.
#include <algorithm>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/render/lane_offsets.h"
#include "engine/render/llvm_workgroup.h"

namespace telegrad {
namespace {

constexpr int64_t kMostUnit = 16, kLeastUnit = 4;

// The words of a COPY_ASYNC's argument.
struct Box {
  explicit Box(UOp copy)
      : rows(copy.box_rows()),
        columns(copy.box_columns()),
        to_stride(copy.to_stride()),
        from_stride(copy.from_stride()) {}
  int64_t rows, columns, to_stride, from_stride;
};

int64_t DivisorOf(int64_t value) { return value == 0 ? kMostUnit : value & -value; }

// Whether every element of the source is known to lie inside of the buffer.
bool StaysInside(UOp index, const Box& box, int64_t elements) {
  int64_t end;
  return index.vmin() >= 0 && CheckedMul(box.rows - 1, box.from_stride, &end) &&
         CheckedAdd(end, box.columns, &end) && CheckedAdd(end, index.vmax(), &end) &&
         end <= elements;
}

}  // namespace

int64_t LlvmWorkgroupKernel::UnitOf(UOp copy) const {
  const UOp to = copy.src(0), from = copy.src(1), buffer = BehindOrder(to.src(0));
  if (copy.num_src() > 2 || !buffer.is(Op::kBuffer) || !BehindOrder(from.src(0)).is(Op::kParam)) {
    return 0;
  }
  const Box box(copy);
  int64_t divisor = std::min(
      {telegrad::DivisorOf(to.src(1)), telegrad::DivisorOf(from.src(1)), DivisorOf(box.columns)});
  if (box.rows > 1) {
    divisor = std::min({divisor, DivisorOf(box.to_stride), DivisorOf(box.from_stride)});
  }
  const int64_t unit = std::min(divisor * ByteSize(to.dtype()), kMostUnit);
  return unit < kLeastUnit ? 0 : unit;
}

bool LlvmWorkgroupKernel::IsOneUnitInside(UOp copy, int64_t unit) const {
  const Box box(copy);
  const Address& from = *AddressOf(copy.src(1));
  return box.rows == 1 && box.columns * ByteSize(from.dtype) == unit && from.gate.empty() &&
         StaysInside(copy.src(1).src(1), box, from.memory->elements);
}

void LlvmWorkgroupKernel::ForEach(int64_t count,
                                  const std::function<void(const std::string&)>& body) {
  if (count == 1) {
    body("0");
    return;
  }
  const std::string name = StrCat("each", next_loop_++), before = out_.block();
  out_.Line("br label %", name, ".body");
  out_.Block(name + ".body");
  out_.Name(name, "phi i64 [ 0, %", before, " ], [ %", name, ".next, %", name, ".latch ]");
  body("%" + name);
  out_.Line("br label %", name, ".latch");
  out_.Block(name + ".latch");
  out_.Name(name + ".next", "add nuw nsw i64 %", name, ", 1");
  const std::string more = out_.Let("icmp ult i64 %", name, ".next, ", count);
  out_.Line("br i1 ", more, ", label %", name, ".body, label %", name, ".exit");
  out_.Block(name + ".exit");
}

void LlvmWorkgroupKernel::ForBox(UOp copy, int64_t step, const BoxBody& body) {
  const Box box(copy);
  const Address &to = *AddressOf(copy.src(0)), &from = *AddressOf(copy.src(1));
  const bool inside =
      from.gate.empty() && StaysInside(copy.src(1).src(1), box, from.memory->elements);
  ForEach(box.rows, [&](const std::string& row) {
    ForEach(box.columns / step, [&](const std::string& column) {
      const auto number = [&](const Address& at, int64_t stride) {
        const std::string down = out_.Let("mul i64 ", row, ", ", stride);
        const std::string right = out_.Let("mul i64 ", column, ", ", step);
        return out_.Let("add i64 ", at.element, ", ", out_.Let("add i64 ", down, ", ", right));
      };
      const std::string there = number(to, box.to_stride), here = number(from, box.from_stride);
      std::string left;
      if (!inside) {
        // What begins in front of the buffer ends there: units are aligned.
        const std::string within = out_.Let("icmp ult i64 ", here, ", ", from.memory->elements);
        const std::string rest = out_.Let("sub i64 ", from.memory->elements, ", ", here);
        left = out_.Let("select i1 ", within, ", i64 ", rest, ", i64 0");
        if (!from.gate.empty()) left = out_.Let("select i1 ", from.gate, ", i64 ", left, ", i64 0");
      }
      body(there, here, left);
    });
  });
}

void LlvmWorkgroupKernel::CopyElements(UOp copy) {
  const Address &to = *AddressOf(copy.src(0)), &from = *AddressOf(copy.src(1));
  const std::string type = LlvmMemoryType(to.dtype, 1);
  ForBox(copy, 1, [&](const auto& there, const std::string& here, const auto& left) {
    std::string value = "zeroinitializer";
    if (from.memory->elements > 0) {
      // Where there is none, the first one is read and dropped.
      const std::string exists = left.empty() ? "" : out_.Let("icmp ne i64 ", left, ", 0");
      const std::string safe =
          left.empty() ? here : out_.Let("select i1 ", exists, ", i64 ", here, ", i64 0");
      value = out_.Let("load ", type, ", ", from.pointer_type(), " ", PointerAt(from, safe),
                       ", align ", ByteSize(to.dtype), from.memory->of_loads);
      if (!left.empty()) {
        value =
            out_.Let("select i1 ", exists, ", ", type, " ", value, ", ", type, " zeroinitializer");
      }
    }
    out_.Line("store ", type, " ", value, ", ", to.pointer_type(), " ", PointerAt(to, there),
              ", align ", ByteSize(to.dtype), to.memory->of_stores);
  });
}

std::string LlvmWorkgroupKernel::PointerAt(const Address& at, const std::string& element) {
  return out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ", at.pointer_type(), " ",
                  at.memory->pointer, ", i64 ", element);
}

absl::Status LlvmWorkgroupKernel::CopyAsync(UOp u) {
  const Address *to = AddressOf(u.src(0)), *from = AddressOf(u.src(1));
  if (to == nullptr || from == nullptr || to->lanes != 1 || from->lanes != 1) {
    return Broken("node ", u.id(), " copies between what are not addresses");
  }
  if (u.num_src() > 2) return Lacks("copy whose bytes a phased barrier counts");
  const int64_t unit = UnitOf(u);
  OpenGate(u, to->gate);
  if (unit > 0) {
    TG_RETURN_IF_ERROR(CopyUnits(u, unit));
  } else {
    CopyElements(u);
  }
  CloseGate(u, to->gate);
  if (unit > 0) FinishCopy(u);
  return absl::OkStatus();
}

absl::Status LlvmWorkgroupKernel::Wait(UOp u) {
  for (int s = 0; s < u.num_src(); ++s) {
    if (!u.src(s).is(Op::kCopyAsync)) return Lacks(telegrad::Name(u.src(s).op()));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
