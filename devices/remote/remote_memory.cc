// Frees a buffer on the server when its last reference is dropped, and checks that the programs
// of commands were loaded on the link that runs them.
#include "devices/remote/remote_memory.h"

#include <optional>

#include "devices/remote/remote_link.h"
#include "engine/base/status.h"

namespace telegrad {

RemoteMemory::~RemoteMemory() { link_->Free(handle_, generation_, used_, size()); }

absl::StatusOr<std::optional<FormCost<GraphCost>>> RemoteProgram::Predict(
    std::span<const VarValue> values) const {
  return link_->Predict(*this, values);
}

absl::Status RemoteMemory::Health() const { return link_->HealthOf(generation_); }

absl::StatusOr<std::shared_ptr<const RemoteCommands>> RemoteCommands::Encode(
    const RemoteLink& link, std::vector<Command> commands) {
  auto out = std::make_shared<RemoteCommands>();
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].kind != CommandKind::kLaunch || commands[i].launch.program == nullptr) continue;
    const auto* program = dynamic_cast<const RemoteProgram*>(commands[i].launch.program.get());
    if (program == nullptr || &program->link() != &link) {
      return InvalidArgument("command ", i, ": the program was not loaded on a device of ",
                             link.name());
    }
  }
  TG_RETURN_IF_ERROR(out->Fill(std::move(commands)));
  return out;
}

}  // namespace telegrad
