// Which elements of its matrices each thread of a matrix instruction's scope holds, by the rows of
// mma.def.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "engine/types/matrix_unit.h"

namespace telegrad {

// A digit of the number of a thread, or of an element of its fragment: each of its steps lies
// `stride` further along the axis.
struct FragmentDigit {
  char axis = 'm';  // 'm', 'n' or 'k'
  int64_t size = 1;
  int64_t stride = 0;
};

class FragmentDigits {
 public:
  // "4k2 8m1": size, axis and stride of each, the lowest first. Other texts do not compile.
  consteval explicit FragmentDigits(const char* text) {
    while (*text != 0) {
      FragmentDigit& digit = digits_[count_++];
      text = Number(text, &digit.size);
      digit.axis = *text++;
      if (digit.axis != 'm' && digit.axis != 'n' && digit.axis != 'k') std::abort();
      text = Number(text, &digit.stride);
      if (*text == ' ') ++text;
    }
  }

  constexpr std::span<const FragmentDigit> all() const { return std::span(digits_).first(count_); }
  // How far along the axis what has that number lies.
  constexpr int64_t Along(char axis, int64_t number) const {
    int64_t place = 0;
    for (const FragmentDigit& digit : all()) {
      if (digit.axis == axis) place += number % digit.size * digit.stride;
      number /= digit.size;
    }
    return place;
  }

 private:
  static consteval const char* Number(const char* text, int64_t* value) {
    if (*text < '0' || *text > '9') std::abort();
    for (*value = 0; *text >= '0' && *text <= '9'; ++text) *value = *value * 10 + (*text - '0');
    return text;
  }

  std::array<FragmentDigit, 3> digits_ = {};
  size_t count_ = 0;
};

struct FragmentRow {
  MatrixUnit unit;
  char matrix;  // 'a', 'b' or 'c'
  FragmentDigits threads, elements;

  // Along the axis, of an element of what a thread of the scope holds.
  constexpr int64_t Along(char axis, int64_t thread, int64_t element) const {
    return threads.Along(axis, thread) + elements.Along(axis, element);
  }
};

std::span<const FragmentRow> AllFragments();
// Null: no thread holds elements of the matrix, or there is no such unit.
const FragmentRow* FindFragment(MatrixUnit unit, char matrix);

}  // namespace telegrad
