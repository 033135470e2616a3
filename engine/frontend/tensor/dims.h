// Sizes and positions that may be symbolic: a number, or a scalar i64 tensor computed from the
// variables of a plan, whose value each run gives and whose bounds say what is stored.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

class Tensor;

class Dim {
 public:
  template <std::integral T>
  Dim(T size) : size_(static_cast<int64_t>(size)) {}  // NOLINT: a number is a size
  Dim(const Tensor& value);                           // NOLINT: a scalar i64 tensor; folds a CONST

  bool is_static() const { return !value_.valid(); }
  // The number; of a symbolic one, its upper bound.
  int64_t size() const { return size_; }
  // The node that computes a symbolic one, else invalid.
  UOp value() const { return value_; }
  friend bool operator==(const Dim&, const Dim&) = default;

 private:
  int64_t size_ = 0;
  UOp value_;
};

class Dims : public std::vector<Dim> {
 public:
  using std::vector<Dim>::vector;
  Dims(std::initializer_list<Dim> dims) : std::vector<Dim>(dims) {}
  Dims(const Shape& shape) : std::vector<Dim>(shape.begin(), shape.end()) {}  // NOLINT
  Dims(ShapeView shape) : std::vector<Dim>(shape.begin(), shape.end()) {}     // NOLINT
  static Dims Of(UOp u);                                                      // of a node's shape

  // An element of a temporary is returned by value, so that `const Dim& size = t.dims()[0]` does
  // not dangle.
  Dim& operator[](size_t i) & { return std::vector<Dim>::operator[](i); }
  const Dim& operator[](size_t i) const& { return std::vector<Dim>::operator[](i); }
  Dim operator[](size_t i) && { return std::vector<Dim>::operator[](i); }
  Dim operator[](size_t i) const&& { return std::vector<Dim>::operator[](i); }

  bool is_static() const;
  Shape sizes() const;       // upper bounds where symbolic
  std::string Text() const;  // "[2, <=8]"
};
// A template, so that it does not compete for a Shape.
template <std::same_as<Dims> T>
std::string ToString(const T& dims) {
  return dims.Text();
}

}  // namespace telegrad
