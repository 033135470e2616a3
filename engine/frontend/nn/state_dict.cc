#include "engine/frontend/nn/state_dict.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

constexpr size_t kListed = 8;  // names of one kind in an error

class Complaints {
 public:
  void Add(std::string_view kind, std::string what) {
    by_kind_[std::string(kind)].push_back(std::move(what));
  }
  absl::Status status() const {
    if (by_kind_.empty()) return absl::OkStatus();
    std::string text = "state: ";
    for (const auto& [kind, all] : by_kind_) {
      if (text.size() > 7) text += "; ";
      text += StrCat(all.size(), " ", kind, ": ");
      for (size_t i = 0; i < std::min(all.size(), kListed); ++i) {
        text += StrCat(i == 0 ? "" : ", ", all[i]);
      }
      if (all.size() > kListed) text += ", ...";
    }
    return InvalidArgument(text);
  }

 private:
  std::map<std::string, std::vector<std::string>> by_kind_;
};

bool BeginsWithOneOf(std::string_view name, const std::vector<std::string>& beginnings) {
  return std::ranges::any_of(beginnings, [&](const std::string& b) { return name.starts_with(b); });
}

std::string Renamed(const std::string& name, const StateMatch& match) {
  for (const auto& [from, to] : match.rename) {
    if (name.starts_with(from)) return to + name.substr(from.size());
  }
  return name;
}

// Of float types that are not packed.
HostTensor Converted(const HostTensor& from, DType dtype) {
  const auto in = static_cast<size_t>(ByteSize(from.dtype));
  const auto out = static_cast<size_t>(ByteSize(dtype));
  const size_t n = from.bytes.size() / in;
  HostTensor to{dtype, from.shape, std::string(n * out, '\0')};
  for (size_t i = 0; i < n; ++i) {
    int64_t raw = 0;
    std::memcpy(&raw, from.bytes.data() + i * in, in);
    const double value = ScalarAsDouble(from.dtype, ScalarFromMemory(from.dtype, raw));
    raw = ScalarToMemory(dtype, ScalarFromDouble(dtype, value));
    std::memcpy(to.bytes.data() + i * out, &raw, out);
  }
  return to;
}

bool Converts(DType from, DType to) {
  return IsFloat(from) && IsFloat(to) && !IsPacked(from) && !IsPacked(to);
}

std::string Describe(DType dtype, const Shape& shape) {
  return StrCat(Name(dtype), " ", ToString(shape));
}

}  // namespace

std::vector<const Slot*> StateSlots(const Plan& plan) {
  std::vector<const Slot*> out;
  for (const Slot& slot : plan.slots) {
    if (slot.role == SlotRole::kState) out.push_back(&slot);
  }
  return out;
}

absl::StatusOr<StateDict> InitialState(const Plan& plan) {
  StateDict out;
  for (const Slot* slot : StateSlots(plan)) {
    TG_ASSIGN_OR_RETURN(out[slot->name], InitialValue(*slot));
  }
  return out;
}

absl::StatusOr<StateDict> MatchState(const Plan& plan, StateDict given, const StateMatch& match) {
  Complaints complaints;
  StateDict renamed;
  for (auto& [name, value] : given) {
    std::string as = Renamed(name, match);
    if (renamed.contains(as)) {
      complaints.Add("given twice", StrCat("'", as, "', once as '", name, "'"));
      continue;
    }
    renamed.emplace(std::move(as), std::move(value));
  }
  StateDict out;
  for (const Slot* slot : StateSlots(plan)) {
    const auto found = renamed.find(slot->name);
    if (found == renamed.end()) {
      if (BeginsWithOneOf(slot->name, match.keep)) {
        TG_ASSIGN_OR_RETURN(out[slot->name], InitialValue(*slot));
      } else {
        complaints.Add("missing",
                       StrCat("'", slot->name, "' ", Describe(slot->dtype, slot->shape)));
      }
      continue;
    }
    HostTensor value = std::move(found->second);
    renamed.erase(found);
    const bool same = value.dtype == slot->dtype;
    if (value.shape != slot->shape || !(same || Converts(value.dtype, slot->dtype))) {
      complaints.Add("not as expected",
                     StrCat("'", slot->name, "' is ", Describe(value.dtype, value.shape),
                            ", expected ", Describe(slot->dtype, slot->shape)));
      continue;
    }
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(value.dtype, value.shape));
    if (static_cast<int64_t>(value.bytes.size()) != bytes) {
      complaints.Add("not as expected",
                     StrCat("'", slot->name, "' ", Describe(value.dtype, value.shape), " holds ",
                            value.bytes.size(), " bytes, expected ", bytes));
      continue;
    }
    out[slot->name] = same ? std::move(value) : Converted(value, slot->dtype);
  }
  for (const auto& [name, value] : renamed) {
    if (BeginsWithOneOf(name, match.ignore)) continue;
    complaints.Add("unexpected", StrCat("'", name, "' ", Describe(value.dtype, value.shape)));
  }
  TG_RETURN_IF_ERROR(complaints.status());
  return out;
}

}  // namespace telegrad
