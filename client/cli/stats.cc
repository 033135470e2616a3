// telegrad stats: one line per counter.
#include <cstdio>

#include "client/cli/command.h"
#include "engine/base/status.h"

namespace telegrad::cli {

absl::Status Stats(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto values, connection->Stats());
  for (const auto& [name, value] : values) std::printf("%-40s %.15g\n", name.c_str(), value);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
