// einops' rearrange. Each side of a pattern is a list of groups of names, one group for each axis;
// the left side takes axes apart, the right side orders their parts and puts them together.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad {
namespace {

struct AxisGroup {
  bool joined = false;             // in parentheses
  std::vector<std::string> names;  // an axis of size 1 has none
};

constexpr std::string_view kDots = "...";

bool IsDots(const AxisGroup& group) {
  return !group.joined && group.names.size() == 1 && group.names[0] == kDots;
}

absl::StatusOr<std::vector<AxisGroup>> Groups(std::string_view side) {
  std::vector<AxisGroup> out;
  bool inside = false;
  for (size_t at = 0; at < side.size();) {
    const char c = side[at];
    std::string_view token = side.substr(at, 1);
    if (c == ' ') {
      ++at;
      continue;
    }
    if (side.substr(at, kDots.size()) == kDots) {
      token = kDots;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      size_t end = at;
      while (end < side.size() &&
             (std::isalnum(static_cast<unsigned char>(side[end])) != 0 || side[end] == '_')) {
        ++end;
      }
      token = side.substr(at, end - at);
    }
    at += token.size();
    if ((c == '(' && !inside) || (c == ')' && inside)) {
      inside = c == '(';
      if (inside) out.push_back({true, {}});
      continue;
    }
    const bool name = token.size() > 1 || std::isalpha(static_cast<unsigned char>(c)) != 0 ||
                      c == '_' || token == "1";
    if (!name) return InvalidArgument("'", token, "' at column ", at - token.size());
    if (!inside) out.emplace_back();
    if (token != "1") out.back().names.emplace_back(token);
  }
  if (inside) return InvalidArgument("a parenthesis is not closed");
  return out;
}

// Every ellipsis becomes the names "...0", "...1", ... of the axes that it stands for: axes of
// their own outside of parentheses, parts of one axis inside.
std::vector<AxisGroup> WithoutDots(const std::vector<AxisGroup>& groups, int64_t axes) {
  std::vector<AxisGroup> out;
  for (const AxisGroup& group : groups) {
    const bool alone = IsDots(group);
    if (!alone) out.push_back({group.joined, {}});
    for (const std::string& name : group.names) {
      if (name != kDots) {
        out.back().names.push_back(name);
        continue;
      }
      for (int64_t i = 0; i < axes; ++i) {
        if (alone) out.emplace_back();
        out.back().names.push_back(StrCat(kDots, i));
      }
    }
  }
  return out;
}

using Parts = std::map<std::string, Dim, std::less<>>;  // sizes by name

// The sizes of all names on the left side.
absl::StatusOr<Parts> PartsOf(const std::vector<AxisGroup>& groups, const Dims& dims,
                              const Parts& given) {
  Parts out;
  for (size_t axis = 0; axis < groups.size(); ++axis) {
    Dim rest = dims[axis];
    const std::string* open = nullptr;
    for (const std::string& name : groups[axis].names) {
      const auto it = given.find(name);
      if (it == given.end()) {
        if (open != nullptr) {
          return InvalidArgument("the sizes of '", *open, "' and '", name, "' are not known");
        }
        open = &name;
        continue;
      }
      const int64_t size = it->second.size();
      if (!rest.is_static() || size < 1 || rest.size() % size != 0) {
        return InvalidArgument("axis ", axis, " of size ", dims[axis].size(), " has no part '",
                               name, "' of size ", size);
      }
      rest = rest.size() / size;
      if (!out.emplace(name, size).second) return InvalidArgument("'", name, "' is there twice");
    }
    if (open == nullptr && rest != Dim(1)) {
      return InvalidArgument("axis ", axis, " has size ", dims[axis].size(),
                             ", which its parts do not fill");
    }
    if (open != nullptr && !out.emplace(*open, rest).second) {
      return InvalidArgument("'", *open, "' is there twice");
    }
  }
  return out;
}

absl::StatusOr<Tensor> Rearranged(const Tensor& x, std::string_view pattern, const Parts& given) {
  const size_t arrow = pattern.find("->");
  if (arrow == std::string_view::npos) return InvalidArgument("there is no '->'");
  TG_ASSIGN_OR_RETURN(std::vector<AxisGroup> left, Groups(pattern.substr(0, arrow)));
  TG_ASSIGN_OR_RETURN(std::vector<AxisGroup> right, Groups(pattern.substr(arrow + 2)));
  const auto dots = static_cast<int64_t>(std::ranges::count_if(left, IsDots));
  const int64_t others = static_cast<int64_t>(left.size()) - dots;
  if (dots > 1 || others > x.rank() || (dots == 0 && others != x.rank())) {
    return InvalidArgument("the left side has ", others, " axes");
  }
  left = WithoutDots(left, x.rank() - others);
  right = WithoutDots(right, x.rank() - others);

  TG_ASSIGN_OR_RETURN(const Parts sizes, PartsOf(left, x.dims(), given));
  for (const auto& [name, size] : given) {
    if (!sizes.contains(name)) return InvalidArgument("'", name, "' is not on the left side");
  }
  std::vector<std::string> order;  // of the parts on the left side
  Dims split, joined;
  for (const AxisGroup& group : left) {
    for (const std::string& name : group.names) {
      order.push_back(name);
      split.push_back(sizes.at(name));
    }
  }
  Axes axes;
  for (const AxisGroup& group : right) {
    Dim size = 1;
    for (const std::string& name : group.names) {
      const auto at = std::ranges::find(order, name);
      if (at == order.end()) return InvalidArgument("'", name, "' is not on the left side");
      axes.push_back(at - order.begin());
      if (std::ranges::count(axes, axes.back()) > 1) {
        return InvalidArgument("'", name, "' is there twice");
      }
      size = MulDims(x.builder(), size, sizes.at(name));
    }
    joined.push_back(size);
  }
  if (axes.size() != order.size()) {
    for (const std::string& name : order) {
      if (std::ranges::count(axes, std::ranges::find(order, name) - order.begin()) == 0) {
        return InvalidArgument("'", name, "' is not on the right side");
      }
    }
  }
  return x.Reshape(split).Permute(axes).Reshape(joined);
}

}  // namespace

Tensor Tensor::Rearrange(std::string_view pattern,
                         std::initializer_list<std::pair<std::string_view, int64_t>> sizes) const {
  if (!valid()) return *this;
  Parts given;
  for (const auto& [name, size] : sizes) given.emplace(name, size);
  const absl::StatusOr<Tensor> out = Rearranged(*this, pattern, given);
  if (out.ok()) return *out;
  return builder_->Fail(InvalidArgument("rearrange: '", pattern, "' of ", ToString(dims()), ": ",
                                        out.status().message()));
}

}  // namespace telegrad
