#include "devices/stream/generation.h"

#include "engine/base/status.h"

namespace telegrad::stream {

absl::Status Generation::Close() {
  const auto at_work = [&] {
    return absl::UnavailableError(
        StrCat(context_->name(),
               " is still at work on something that does not end, and is free "
               "again when the process has ended: restart the daemon"));
  };
  if (context_->stuck() && !context_->driver().EndsStuckWork()) return at_work();
  context_->driver().Lose(absl::UnavailableError(StrCat(context_->name(), " is replaced")));
  device_ = nullptr;
  if (context_->stuck() && !context_->driver().EndsStuckWork()) return at_work();
  context_->Discard();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> GenerationsProgram::In(Generation& generation) {
  const MutexLock lock(mutex_);
  if (number_ != generation.number()) {
    TG_ASSIGN_OR_RETURN(loaded_, generation.device().Load(image_));
    number_ = generation.number();
  }
  return loaded_;
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> GenerationsCommands::In(
    Generation& generation) const {
  const MutexLock lock(mutex_);
  if (number_ == generation.number()) return encoded_;
  std::vector<Command> commands = commands_;
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].kind != CommandKind::kLaunch || commands[i].launch.program == nullptr) continue;
    auto* const program = dynamic_cast<GenerationsProgram*>(commands[i].launch.program.get());
    if (program == nullptr || program->device() != device_) {
      return InvalidArgument("command ", i, ": the program was not loaded on ",
                             generation.context().name());
    }
    TG_ASSIGN_OR_RETURN(commands[i].launch.program, program->In(generation));
  }
  TG_ASSIGN_OR_RETURN(encoded_, generation.device().Encode(std::move(commands)));
  number_ = generation.number();
  return encoded_;
}

absl::Status GenerationsCommands::Prepare(Generation& generation) {
  TG_ASSIGN_OR_RETURN(const auto encoded, In(generation));
  scalars_ = encoded->scalars();
  return absl::OkStatus();
}

}  // namespace telegrad::stream
