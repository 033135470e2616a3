#include "engine/reference/program_eval.h"

#include "engine/base/status.h"
#include "engine/ir/verify.h"
#include "engine/reference/program_code.h"
#include "engine/reference/program_machine.h"

namespace telegrad::reference {

absl::Status Run(const Program& program, std::span<const std::span<uint8_t>> buffers, int64_t begin,
                 int64_t end, const RunOptions& options) {
  TG_RETURN_IF_ERROR(Verify(program));
  if (begin < 0 || begin > end || end > program.iterations) {
    return InvalidArgument("iterations [", begin, ", ", end, ") are outside of [0, ",
                           program.iterations, ")");
  }
  if (begin == end) return absl::OkStatus();
  if (buffers.size() != program.arguments.size()) {
    return InvalidArgument("program ", program.name, " has ", program.arguments.size(),
                           " arguments, got ", buffers.size(), " buffers");
  }
  for (size_t slot = 0; slot < buffers.size(); ++slot) {
    const Program::Argument& argument = program.arguments[slot];
    const int64_t bytes = BytesOf(argument.dtype, argument.elements);
    if (static_cast<int64_t>(buffers[slot].size()) < bytes) {
      return InvalidArgument("buffer ", slot, " has ", buffers[slot].size(),
                             " bytes, expected at least ", bytes);
    }
  }
  internal::Code code;
  TG_RETURN_IF_ERROR(internal::Decode(program, options.variables, &code));
  return internal::Machine(code, buffers, options).Run(begin, end);
}

}  // namespace telegrad::reference
