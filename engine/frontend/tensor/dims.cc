#include "engine/frontend/tensor/dims.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

Dim::Dim(const Tensor& value) {
  const UOp u = value.uop();
  if (!u.valid() || !IsInt(u.dtype()) || !u.shape().empty()) {
    size_ = -2;  // every operation refuses it
    return;
  }
  if (u.is_const()) {
    size_ = u.const_word();
    return;
  }
  size_ = u.vmax();
  value_ = u;
}

Dims Dims::Of(UOp u) {
  Dims out;
  for (size_t i = 0; i < u.shape().size(); ++i) {
    const UOp value = u.dim(static_cast<int>(i));
    if (value.valid()) {
      out.emplace_back(Tensor(nullptr, value));
    } else {
      out.emplace_back(u.shape()[i]);
    }
  }
  return out;
}

bool Dims::is_static() const { return std::ranges::all_of(*this, &Dim::is_static); }

Shape Dims::sizes() const {
  Shape out;
  for (const Dim& dim : *this) out.push_back(dim.size());
  return out;
}

std::string Dims::Text() const {
  std::string out = "[";
  for (const Dim& dim : *this) {
    StrAppend(&out, out.size() > 1 ? ", " : "", dim.is_static() ? "" : "<=", dim.size());
  }
  return StrCat(out, "]");
}

}  // namespace telegrad
