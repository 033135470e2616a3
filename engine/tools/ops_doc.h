// docs/ops.md, from the tables: element types, ops, what covers them, and tinygrad's ops in ours.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

// One row of tinygrad.def.
struct TinygradRow {
  std::string_view name;
  std::string_view ops;  // names of ours, separated by blanks; empty: there is none
  std::string_view note;
};
std::span<const TinygradRow> AllTinygradRows();

// An error is a mistake in a table or an example.
absl::StatusOr<std::string> OpsDocument();

}  // namespace telegrad
