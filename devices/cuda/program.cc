#include "devices/cuda/program.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

// Dynamic shared memory that needs no asking for.
constexpr int64_t kUnaskedLocalBytes = 48 * 1024;

// How many parameters the entry point has; the driver takes whatever lies where they should be.
std::optional<int64_t> CountParameters(std::string_view ptx, std::string_view name) {
  constexpr std::string_view kEntry = ".entry", kSpace = " \t\r\n", kParameter = ".param";
  for (size_t at = ptx.find(kEntry); at != ptx.npos; at = ptx.find(kEntry, at)) {
    at = ptx.find_first_not_of(kSpace, at + kEntry.size());
    if (at == ptx.npos) break;
    std::string_view rest = ptx.substr(at);
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    const size_t open = rest.find_first_not_of(kSpace);
    if (open == rest.npos || rest[open] != '(') {
      if (open == 0) continue;  // a longer name
      return 0;
    }
    const std::string_view list = rest.substr(open, rest.find(')', open) - open);
    int64_t count = 0;
    for (size_t p = list.find(kParameter); p != list.npos; p = list.find(kParameter, p + 1)) {
      ++count;
    }
    return count;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CudaProgram>> CudaProgram::Load(std::shared_ptr<Context> context,
                                                               const ProgramImage& image,
                                                               int64_t local_limit) {
  TG_RETURN_IF_ERROR(context->health());
  TG_RETURN_IF_ERROR(context->Enter());
  std::array<char, 8192> log{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // A size is passed as if it were a pointer.
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  if (const absl::Status status =
          TG_CUDA(*context, cuModuleLoadDataEx, &module, image.binary.c_str(), std::size(options),
                  options, values);
      !status.ok()) {
    log.back() = 0;
    return absl::Status(status.code(), StrCat(ToStd(status.message()), " for the program ",
                                              image.name, log[0] != 0 ? ": " : "", log.data()));
  }
  std::shared_ptr<CudaProgram> out(new CudaProgram(std::move(context), module));
  if (const absl::Status status = out->Prepare(image, local_limit); !status.ok()) {
    return absl::Status(status.code(),
                        StrCat("the program ", image.name, ": ", ToStd(status.message())));
  }
  return out;
}

absl::Status CudaProgram::Prepare(const ProgramImage& image, int64_t local_limit) {
  TG_RETURN_IF_ERROR(
      TG_CUDA(*context_, cuModuleGetFunction, &function_, module_, image.name.c_str()));
  const auto parameters = CountParameters(image.binary, image.name);
  if (!parameters || *parameters < 1) {
    return InvalidArgument("it takes no parameters, expected its buffers and the first iteration");
  }
  buffers_ = *parameters - 1;
  int threads = 0, fixed_bytes = 0;
  TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuFuncGetAttribute, &threads,
                             CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function_));
  if (image.group_threads < 1 || image.group_threads > threads) {
    return InvalidArgument(image.group_threads, " threads in a workgroup; the GPU runs 1 to ",
                           threads, " of this program");
  }
  TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuFuncGetAttribute, &fixed_bytes,
                             CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_));
  if (image.local_bytes < 0 || image.local_bytes > local_limit - fixed_bytes) {
    return InvalidArgument(image.local_bytes, " bytes of local memory beside ", fixed_bytes,
                           " fixed ones; a workgroup has at most ", local_limit);
  }
  if (image.local_bytes > kUnaskedLocalBytes) {
    TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuFuncSetAttribute, function_,
                               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               static_cast<int>(image.local_bytes)));
  }
  group_threads_ = static_cast<unsigned int>(image.group_threads);
  local_bytes_ = static_cast<unsigned int>(image.local_bytes);
  return absl::OkStatus();
}

CudaProgram::~CudaProgram() {
  if (context_->stuck()) return;
  context_->EnterToRelease();
  context_->api().cuModuleUnload(module_);
}

}  // namespace telegrad::cuda
