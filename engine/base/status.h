// Status helpers: the macros that carry an absl::Status across a folder boundary, and builders that
// concatenate their arguments. Errors name what was wrong, where, and what was expected.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/strings.h"

#define TG_CONCAT_INNER(a, b) a##b
#define TG_CONCAT(a, b) TG_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function unless it is OK.
#define TG_RETURN_IF_ERROR(expr)                            \
  do {                                                      \
    if (absl::Status tg_status = (expr); !tg_status.ok()) { \
      return tg_status;                                     \
    }                                                       \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its error.
#define TG_ASSIGN_OR_RETURN(lhs, expr) \
  TG_ASSIGN_OR_RETURN_IMPL(TG_CONCAT(tg_statusor_, __LINE__), lhs, expr)
#define TG_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) {                               \
    return std::move(tmp).status();              \
  }                                              \
  lhs = *std::move(tmp)

namespace telegrad {

template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(StrCat(args...));
}
template <typename... Args>
absl::Status NotFound(const Args&... args) {
  return absl::NotFoundError(StrCat(args...));
}
template <typename... Args>
absl::Status ResourceExhausted(const Args&... args) {
  return absl::ResourceExhaustedError(StrCat(args...));
}
template <typename... Args>
absl::Status FailedPrecondition(const Args&... args) {
  return absl::FailedPreconditionError(StrCat(args...));
}
template <typename... Args>
absl::Status Unimplemented(const Args&... args) {
  return absl::UnimplementedError(StrCat(args...));
}
// A broken invariant of this program: the job fails, the process continues.
template <typename... Args>
absl::Status Internal(const Args&... args) {
  return absl::InternalError(StrCat(args...));
}

}  // namespace telegrad
