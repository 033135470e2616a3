// SHUFFLE: lanes of a warp read values of each other, which go in words of 32 bits. The program's
// warps are parts of the hardware's, or the same.
#include <bit>
#include <string>

#include "engine/base/status.h"
#include "engine/render/llvm_workgroup.h"

namespace telegrad {

LlvmWorkgroupKernel::Threads LlvmWorkgroupKernel::Present() const {
  for (const UOp u : open_) {
    if (u.is(Op::kRole)) return {u.first_warp() * program_.warp, u.warps() * program_.warp};
  }
  return {0, threads_};
}

// The words that a value of the type is made of, each shuffled.
std::string LlvmWorkgroupKernel::ShuffleValue(DType dtype, const std::string& value,
                                              std::string_view lane) {
  const std::string type = LlvmType(dtype, 1);
  const int bits = IsBool(dtype) ? 1 : Info(dtype).bits;
  const std::string code = StrCat("i", bits);
  std::string word = value;
  if (IsLlvmFloat(dtype)) word = out_.Let("bitcast ", type, " ", value, " to ", code);
  if (bits == 64) {
    const std::string low = out_.Let("trunc i64 ", word, " to i32");
    const std::string above = out_.Let("lshr i64 ", word, ", 32");
    const std::string high = out_.Let("trunc i64 ", above, " to i32");
    const std::string low_there = out_.Let("zext i32 ", ShuffleWord(low, lane), " to i64");
    const std::string high_there = out_.Let("zext i32 ", ShuffleWord(high, lane), " to i64");
    word = out_.Let("or i64 ", low_there, ", ", out_.Let("shl i64 ", high_there, ", 32"));
  } else {
    if (bits < 32) word = out_.Let("zext ", code, " ", word, " to i32");
    word = ShuffleWord(word, lane);
    if (bits < 32) word = out_.Let("trunc i32 ", word, " to ", code);
  }
  return IsLlvmFloat(dtype) ? out_.Let("bitcast ", code, " ", word, " to ", type) : word;
}

absl::Status LlvmWorkgroupKernel::Shuffle(UOp u) {
  const int64_t width = program_.warp;
  if (width > HardwareLanes() || !std::has_single_bit(static_cast<uint64_t>(width))) {
    return Lacks("shuffle among ", width, " threads, only among a power of two up to ",
                 HardwareLanes());
  }
  const UOp from = u.src(1);
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(u.src(0), lanes));
  TG_ASSIGN_OR_RETURN(const std::string number, ValueOf(from, 1));
  const std::string wide = AsOffset(from.dtype(), number, 1);
  const std::string lane = out_.Let("trunc i64 ", wide, " to i32");
  const std::string type = LlvmType(u.dtype(), lanes), element = LlvmType(u.dtype(), 1);
  std::string there = value;
  if (lanes == 1) {
    if (width > 1) there = ShuffleValue(u.dtype(), value, lane);
  } else {
    for (int64_t i = 0; i < lanes && width > 1; ++i) {
      const std::string own = out_.Let("extractelement ", type, " ", value, ", i64 ", i);
      there = out_.Let("insertelement ", type, " ", there, ", ", element, " ",
                       ShuffleValue(u.dtype(), own, lane), ", i64 ", i);
    }
  }
  if (from.vmin() < 0 || from.vmax() >= width) {
    const std::string exists = out_.Let("icmp ult i64 ", wide, ", ", width);
    there = out_.Let("select i1 ", exists, ", ", type, " ", there, ", ", type, " zeroinitializer");
  }
  values_[u] = there;
  return absl::OkStatus();
}

}  // namespace telegrad
