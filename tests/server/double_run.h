// Runs DoubleGraph on a server and compares the result.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "tests/server/double_graph.h"

namespace telegrad {

// In a session of its own. DATA_LOSS if the result is wrong, otherwise what the server answered.
inline absl::Status RunDouble(Connection& connection, int64_t elements) {
  TG_ASSIGN_OR_RETURN(const auto session, connection.OpenSession());
  const FrozenGraph graph = DoubleGraph(elements);
  session->Alloc(1, 4 * elements);
  session->Alloc(2, 4 * elements);
  std::vector<float> x(static_cast<size_t>(elements), 1.5f);
  session->WriteCopy(2, 0, std::as_bytes(std::span(x)));
  TG_RETURN_IF_ERROR(session->Put(graph.root()).Get().status());
  const uint64_t handles[] = {1, 2};
  TG_RETURN_IF_ERROR(session->Run(ContentHash(graph.root()), handles).Get().status());
  TG_RETURN_IF_ERROR(session->Read(1, 0, std::as_writable_bytes(std::span(x))).Get().status());
  return std::ranges::all_of(x, [](float y) { return y == 3.0f; })
             ? absl::OkStatus()
             : absl::DataLossError("1.5 + 1.5 is not 3");
}

}  // namespace telegrad
