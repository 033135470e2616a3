// A vector of trivial values that grows by realloc: where the system can move pages, a large pool
// grows without being copied and without new pages for what it already holds.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <type_traits>

namespace telegrad {

template <typename T>
class Pool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { std::free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return capacity_ * sizeof(T); }
  const T& operator[](size_t i) const { return data_[i]; }

  void Reserve(size_t n) {
    if (n > capacity_) Reallocate(n);
  }
  void Add(T value) {
    if (size_ == capacity_) Reallocate(capacity_ < 16 ? 32 : 2 * capacity_);
    data_[size_++] = value;
  }
  // Room for `n` more values, not initialized.
  T* Extend(size_t n) {
    if (n > capacity_ - size_) Reallocate(size_ + n > 2 * capacity_ ? size_ + n : 2 * capacity_);
    T* const at = data_ + size_;
    size_ += n;
    return at;
  }

 private:
  void Reallocate(size_t capacity) {
    auto* const moved = static_cast<T*>(std::realloc(data_, capacity * sizeof(T)));
    if (moved == nullptr) std::terminate();  // as where a vector finds no memory
    data_ = moved;
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace telegrad
