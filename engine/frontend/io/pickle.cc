#include "engine/frontend/io/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using Kind = PickleValue::Kind;

// The opcodes of protocols 2 to 4 that are read.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneValue = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalOp = 'c',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTupleOp = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class Machine {
 public:
  Machine(std::string_view bytes, std::span<const PickleGlobal> globals, Budget* budget)
      : bytes_(bytes), globals_(globals), budget_(budget) {}

  absl::StatusOr<Pickle> Run() {
    while (!stopped_) {
      begin_ = at_;
      TG_ASSIGN_OR_RETURN(const uint64_t code, Number(1));
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      TG_RETURN_IF_ERROR(Step(static_cast<uint8_t>(code)));
    }
    return std::move(out_);
  }

 private:
  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return InvalidArgument("pickle byte ", begin_, ": ", args...);
  }

  absl::StatusOr<std::string_view> Take(uint64_t n) {
    if (n > bytes_.size() - at_) return Bad("the pickle ends within an opcode");
    const std::string_view out = bytes_.substr(at_, n);
    at_ += n;
    return out;
  }
  absl::StatusOr<uint64_t> Number(size_t n) {
    TG_ASSIGN_OR_RETURN(const std::string_view raw, Take(n));
    uint64_t out = 0;
    std::memcpy(&out, raw.data(), n);
    return out;
  }
  absl::StatusOr<std::string_view> Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Bad("a line without an end");
    const std::string_view out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }

  absl::Status Push(PickleValue value) {
    TG_RETURN_IF_ERROR(budget_->SpendNodes());
    stack_.push_back(static_cast<uint32_t>(out_.values.size()));
    out_.values.push_back(std::move(value));
    return absl::OkStatus();
  }
  absl::StatusOr<uint32_t> Pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) return Bad("the stack is empty");
    const uint32_t out = stack_.back();
    stack_.pop_back();
    return out;
  }
  // The value on top, which stays there.
  absl::StatusOr<uint32_t> Top() {
    TG_ASSIGN_OR_RETURN(const uint32_t top, Pop());
    stack_.push_back(top);
    return top;
  }
  // Everything above the last mark, which goes too.
  absl::StatusOr<std::vector<uint32_t>> PopToMark() {
    if (marks_.empty()) return Bad("there is no mark");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<uint32_t> out(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  absl::StatusOr<std::vector<uint32_t>> PopSome(size_t n) {
    std::vector<uint32_t> out(n);
    while (n-- > 0) {
      TG_ASSIGN_OR_RETURN(out[n], Pop());
    }
    return out;
  }

  absl::Status Put(uint64_t slot) {
    TG_RETURN_IF_ERROR(budget_->SpendNodes());
    TG_ASSIGN_OR_RETURN(memo_[static_cast<uint32_t>(slot)], Top());
    return absl::OkStatus();
  }
  absl::Status Get(uint64_t slot) {
    const auto it = memo_.find(static_cast<uint32_t>(slot));
    if (it == memo_.end()) return Bad("nothing was put into memo ", slot);
    stack_.push_back(it->second);
    return absl::OkStatus();
  }

  absl::Status Text(size_t length_bytes) {
    TG_ASSIGN_OR_RETURN(const uint64_t n, Number(length_bytes));
    PickleValue value{.kind = Kind::kString};
    TG_ASSIGN_OR_RETURN(value.text, Take(n));
    return Push(std::move(value));
  }
  absl::Status Int(int64_t number) { return Push({.kind = Kind::kInt, .number = number}); }
  absl::Status Bool(bool value) { return Push({.kind = Kind::kBool, .number = value}); }
  absl::Status Tuple(std::vector<uint32_t> items) {
    return Push({.kind = Kind::kTuple, .items = std::move(items)});
  }

  absl::Status Long() {
    TG_ASSIGN_OR_RETURN(const uint64_t n, Number(1));
    if (n > 8) return Unimplemented("pickle byte ", begin_, ": an integer of ", n, " bytes");
    TG_ASSIGN_OR_RETURN(uint64_t value, Number(n));
    const auto unused = static_cast<int>(64 - 8 * n);
    if (n > 0) value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    return Int(static_cast<int64_t>(value));
  }

  absl::Status Float() {
    TG_ASSIGN_OR_RETURN(const uint64_t bits, Number(8));  // big-endian, the only thing that is
    return Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(__builtin_bswap64(bits))});
  }

  absl::Status Global(std::string_view module, std::string_view name) {
    for (size_t i = 0; i < globals_.size(); ++i) {
      if (globals_[i].module == module && globals_[i].name == name) {
        return Push({.kind = Kind::kGlobal, .number = static_cast<int64_t>(i)});
      }
    }
    constexpr size_t kShown = 80;
    return Unimplemented("pickle byte ", begin_, ": ",
                         absl::CEscape(ToAbsl(module.substr(0, kShown))), ".",
                         absl::CEscape(ToAbsl(name.substr(0, kShown))),
                         " is not among what is read; save the tensors alone (a state_dict)");
  }
  absl::Status StackGlobal() {
    TG_ASSIGN_OR_RETURN(const std::vector<uint32_t> words, PopSome(2));
    const PickleValue &module = out_.values[words[0]], &name = out_.values[words[1]];
    if (module.kind != Kind::kString || name.kind != Kind::kString) {
      return Bad("a global that is not named by strings");
    }
    return Global(module.text, name.text);
  }

  absl::Status Reduce() {
    TG_ASSIGN_OR_RETURN(std::vector<uint32_t> call, PopSome(2));
    const PickleValue &function = out_.values[call[0]], &arguments = out_.values[call[1]];
    if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) {
      return Bad("a call of something that is not a function with a tuple");
    }
    const PickleGlobal& global = globals_[static_cast<size_t>(function.number)];
    if (!global.makes_dict) return Push({.kind = Kind::kCall, .items = std::move(call)});
    if (!arguments.items.empty()) {
      return Unimplemented("pickle byte ", begin_, ": ", global.name, " with arguments");
    }
    return Push({.kind = Kind::kDict});
  }

  absl::Status Extend(Kind kind, const std::vector<uint32_t>& items) {
    TG_ASSIGN_OR_RETURN(const uint32_t top, Top());
    PickleValue& target = out_.values[top];
    if (target.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) {
      return Bad(items.size(), " items for something that cannot take them");
    }
    target.items.insert(target.items.end(), items.begin(), items.end());
    return absl::OkStatus();
  }
  absl::Status ExtendToMark(Kind kind) {
    TG_ASSIGN_OR_RETURN(const std::vector<uint32_t> items, PopToMark());
    return Extend(kind, items);
  }
  absl::Status ExtendSome(Kind kind, size_t n) {
    TG_ASSIGN_OR_RETURN(const std::vector<uint32_t> items, PopSome(n));
    return Extend(kind, items);
  }

  // Attributes of an ordered dict (a state_dict has some about versions); nothing else has any.
  absl::Status Build() {
    TG_RETURN_IF_ERROR(Pop().status());
    TG_ASSIGN_OR_RETURN(const uint32_t target, Top());
    if (out_.values[target].kind == Kind::kDict) return absl::OkStatus();
    return Unimplemented("pickle byte ", begin_, ": an object with attributes");
  }

  absl::Status Step(uint8_t code);
  absl::Status NumberOperand(uint8_t code);

  const std::string_view bytes_;
  const std::span<const PickleGlobal> globals_;
  Budget* const budget_;
  size_t at_ = 0, begin_ = 0;  // begin_: of the opcode
  bool stopped_ = false;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of stack_
  std::unordered_map<uint32_t, uint32_t> memo_;
  Pickle out_;
};

// The opcodes with a number of fixed width after them.
absl::Status Machine::NumberOperand(uint8_t code) {
  const size_t width = code == kBinInt2                                                ? 2
                       : code == kBinInt || code == kLongBinGet || code == kLongBinPut ? 4
                       : code == kFrame                                                ? 8
                                                                                       : 1;
  TG_ASSIGN_OR_RETURN(const uint64_t n, Number(width));
  switch (code) {
    case kBinGet:
    case kLongBinGet:
      return Get(n);
    case kBinPut:
    case kLongBinPut:
      return Put(n);
    case kBinInt:
      return Int(static_cast<int32_t>(n));
    case kProto:
      if (n < 2 || n > 4) return Unimplemented("pickle protocol ", n, ", expected 2 to 4");
      return absl::OkStatus();
    case kFrame:
      return absl::OkStatus();
    default:
      return Int(static_cast<int64_t>(n));
  }
}

absl::Status Machine::Step(uint8_t code) {
  switch (code) {
    case kProto:
    case kFrame:
    case kBinGet:
    case kLongBinGet:
    case kBinPut:
    case kLongBinPut:
    case kBinInt:
    case kBinInt1:
    case kBinInt2:
      return NumberOperand(code);
    case kMemoize:
      return Put(memo_.size());
    case kMark:
      marks_.push_back(stack_.size());
      return budget_->SpendNodes();
    case kPop:
      return Pop().status();
    case kPopMark:
      return PopToMark().status();
    case kNoneValue:
      return Push({});
    case kNewTrue:
      return Bool(true);
    case kNewFalse:
      return Bool(false);
    case kLong1:
      return Long();
    case kBinFloat:
      return Float();
    case kShortBinString:
    case kShortBinBytes:
    case kShortBinUnicode:
      return Text(1);
    case kBinString:
    case kBinBytes:
    case kBinUnicode:
      return Text(4);
    case kEmptyList:
      return Push({.kind = Kind::kList});
    case kEmptyDict:
      return Push({.kind = Kind::kDict});
    case kEmptyTuple:
      return Tuple({});
    case kTupleOp: {
      TG_ASSIGN_OR_RETURN(std::vector<uint32_t> items, PopToMark());
      return Tuple(std::move(items));
    }
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      TG_ASSIGN_OR_RETURN(std::vector<uint32_t> items, PopSome(code - kTuple1 + 1));
      return Tuple(std::move(items));
    }
    case kAppend:
      return ExtendSome(Kind::kList, 1);
    case kAppends:
      return ExtendToMark(Kind::kList);
    case kSetItem:
      return ExtendSome(Kind::kDict, 2);
    case kSetItems:
      return ExtendToMark(Kind::kDict);
    case kGlobalOp: {
      TG_ASSIGN_OR_RETURN(const std::string_view module, Line());
      TG_ASSIGN_OR_RETURN(const std::string_view name, Line());
      return Global(module, name);
    }
    case kStackGlobal:
      return StackGlobal();
    case kReduce:
      return Reduce();
    case kBuild:
      return Build();
    case kBinPersId: {
      TG_ASSIGN_OR_RETURN(std::vector<uint32_t> id, PopSome(1));
      return Push({.kind = Kind::kPersistent, .items = std::move(id)});
    }
    case kStop: {
      TG_ASSIGN_OR_RETURN(out_.root, Pop());
      stopped_ = true;
      return absl::OkStatus();
    }
    default:
      return Unimplemented("pickle byte ", begin_, ": opcode ", int{code},
                           ", which is not among what is read");
  }
}

}  // namespace

absl::StatusOr<Pickle> ReadPickle(std::string_view bytes, std::span<const PickleGlobal> globals,
                                  Budget* budget) {
  return Machine(bytes, globals, budget).Run();
}

}  // namespace telegrad
