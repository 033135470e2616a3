// The functions have the form of a library's: handles, and a number as result. What went wrong is
// kept for the thread, as an errno with words, until the caller asks for it.
#include "devices/nv/nv_driver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/nv/objects.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

using stream::Called;
using stream::Result;

constexpr Result kFailed = 1, kLost = 2;

// What a thread's functions are about, and how its last one failed.
struct Current {
  Gpu* gpu = nullptr;
  Watcher* watcher = nullptr;
  absl::Status error;
};
Current& Now() {
  thread_local Current current;
  return current;
}

Result Say(absl::Status status) {
  if (status.ok()) return stream::kSuccess;
  const bool lost = absl::IsUnavailable(status);
  if (lost && Now().gpu != nullptr) Now().gpu->Lose(status);
  Now().error = std::move(status);
  return lost ? kLost : kFailed;
}
template <typename T, typename Handle>
Result Say(absl::StatusOr<std::unique_ptr<T>> made, Handle* handle) {
  if (!made.ok()) return Say(made.status());
  *handle = reinterpret_cast<Handle>(made->get());
  Now().gpu->Keep(std::shared_ptr<T>(*std::move(made)));
  return stream::kSuccess;
}

template <typename T, typename Handle>
T* As(Handle handle) {
  return reinterpret_cast<T*>(handle);
}
template <typename Handle>
Result Destroy(Handle handle) {
  Now().gpu->Drop(handle);
  return stream::kSuccess;
}

// Work for the channel of a stream.
template <typename Work>
Result OnChannel(stream::StreamHandle handle, Work work) {
  const absl::StatusOr<Channel*> channel = As<Stream>(handle)->Ready();
  return Say(channel.ok() ? work(**channel) : channel.status());
}

Result EventCreate(stream::EventHandle* event, unsigned int) {
  return Say(Event::Create(*Now().gpu), event);
}
Result EventRecord(stream::EventHandle event, stream::StreamHandle stream) {
  return Say(As<Stream>(stream)->Record(*As<Event>(event)));
}
Result EventQuery(stream::EventHandle event) {
  if (absl::Status status = Now().gpu->Check(); !status.ok()) return Say(std::move(status));
  return As<Event>(event)->HasPassed() ? stream::kSuccess : stream::kNotReady;
}
Result EventElapsed(float* milliseconds, stream::EventHandle begin, stream::EventHandle end) {
  const auto from = static_cast<int64_t>(As<Event>(begin)->time_ns());
  const auto to = static_cast<int64_t>(As<Event>(end)->time_ns());
  *milliseconds = static_cast<float>(1e-6 * static_cast<double>(to - from));
  return stream::kSuccess;
}

Result StreamCreate(stream::StreamHandle* stream, unsigned int) {
  if (absl::Status status = Now().gpu->Check(); !status.ok()) return Say(std::move(status));
  return Say(
      absl::StatusOr<std::unique_ptr<Stream>>(std::make_unique<Stream>(*Now().gpu, *Now().watcher)),
      stream);
}
Result StreamQuery(stream::StreamHandle stream) {
  const absl::StatusOr<bool> idle = As<Stream>(stream)->IsIdle();
  if (!idle.ok()) return Say(idle.status());
  return *idle ? stream::kSuccess : stream::kNotReady;
}
Result StreamSynchronize(stream::StreamHandle stream) {
  return Say(As<Stream>(stream)->Synchronize());
}
Result StreamWaitEvent(stream::StreamHandle stream, stream::EventHandle event, unsigned int) {
  return Say(As<Stream>(stream)->Await(*As<Event>(event)));
}
Result LaunchHostFunction(stream::StreamHandle stream, stream::HostFunction function, void* data) {
  As<Stream>(stream)->CallBack(function, data);
  return stream::kSuccess;
}

constexpr size_t kMemoryAlignment = 256;

Result MemoryAllocate(stream::Address* address, size_t bytes) {
  if (absl::Status status = Now().gpu->Check(); !status.ok()) return Say(std::move(status));
  const absl::StatusOr<Block> block = Now().gpu->video().Take(bytes, kMemoryAlignment);
  if (!block.ok()) return Say(block.status());
  Now().gpu->Remember(*block);
  *address = block->address;
  return stream::kSuccess;
}
Result MemoryFree(stream::Address address) {
  if (const auto block = Now().gpu->Forget(address)) Now().gpu->video().Give(*block);
  return stream::kSuccess;
}
Result HostAllocate(void** address, size_t bytes, unsigned int) {
  const absl::StatusOr<Block> block = Now().gpu->pinned().Take(bytes, kMemoryAlignment);
  if (!block.ok()) return Say(block.status());
  Now().gpu->Remember(*block);
  *address = block->host;
  return stream::kSuccess;
}
Result HostFree(void* address) {
  const uint64_t on_gpu = Now().gpu->pinned().AddressOf(address, 1);
  if (const auto block = Now().gpu->Forget(on_gpu)) Now().gpu->pinned().Give(*block);
  return stream::kSuccess;
}

// For the GPU alone: others copy from and to such memory as to other memory of the host.
Result HostRegister(void* address, size_t bytes, unsigned int) {
  if (absl::Status status = Now().gpu->Check(); !status.ok()) return Say(std::move(status));
  return Say(Now().gpu->PinPages(static_cast<std::byte*>(address), bytes));
}
Result HostUnregister(void* address) { return Say(Now().gpu->UnpinPages(address)); }

Result Copied(stream::StreamHandle stream, uint64_t to, uint64_t from, size_t bytes) {
  if (to == 0 || from == 0) return Say(InvalidArgument("a copy of memory that is not pinned"));
  return OnChannel(stream, [&](Channel& channel) { return channel.Copy(to, from, bytes); });
}
Result CopyFromHost(stream::Address to, const void* from, size_t bytes,
                    stream::StreamHandle stream) {
  return Copied(stream, to, Now().gpu->AddressOf(from, bytes), bytes);
}
Result CopyToHost(void* to, stream::Address from, size_t bytes, stream::StreamHandle stream) {
  return Copied(stream, Now().gpu->AddressOf(to, bytes), from, bytes);
}
Result CopyWithin(stream::Address to, stream::Address from, size_t bytes,
                  stream::StreamHandle stream) {
  return Copied(stream, to, from, bytes);
}
Result SetBytes(stream::Address to, unsigned char value, size_t bytes,
                stream::StreamHandle stream) {
  return OnChannel(stream, [&](Channel& channel) { return channel.Fill(to, value, bytes); });
}

// The parameters as they lie in the constant bank.
std::vector<uint64_t> WordsOf(const Function& function, void** parameters) {
  std::vector<uint64_t> words((function.kernel.parameter_bytes + 7) / 8);
  size_t end = 0;
  for (const uint32_t bytes : function.kernel.parameters) {
    end = (end + bytes - 1) / bytes * bytes;
    std::memcpy(reinterpret_cast<char*>(words.data()) + end, *parameters++, bytes);
    end += bytes;
  }
  return words;
}
GridLaunch GridOf(const stream::KernelLaunch& launch, std::span<const uint64_t> words) {
  return {.function = As<Function>(launch.function),
          .grid = launch.grid,
          .group = launch.group,
          .shared_bytes = launch.local_bytes,
          .words = words};
}
Result LaunchKernel(stream::FunctionHandle function, unsigned int grid_x, unsigned int grid_y,
                    unsigned int grid_z, unsigned int group_x, unsigned int group_y,
                    unsigned int group_z, unsigned int local_bytes, stream::StreamHandle stream,
                    void** parameters, void**) {
  const auto words = WordsOf(*As<Function>(function), parameters);
  const GridLaunch launch =
      GridOf({function, {grid_x, grid_y, grid_z}, {group_x, group_y, group_z}, local_bytes}, words);
  return OnChannel(stream, [&](Channel& channel) { return channel.Launch(launch); });
}

Result GraphCreate(stream::GraphHandle* graph, unsigned int) {
  return Say(absl::StatusOr<std::unique_ptr<CommandGraph>>(std::make_unique<CommandGraph>()),
             graph);
}
Result GraphInstantiate(stream::ExecHandle* exec, stream::GraphHandle graph,
                        unsigned long long) {  // NOLINT(google-runtime-int): as CUDA's
  return Say(CommandExec::Create(*Now().gpu, *As<CommandGraph>(graph)), exec);
}
Result GraphLaunch(stream::ExecHandle exec, stream::StreamHandle stream) {
  return OnChannel(stream,
                   [&](Channel& channel) { return As<CommandExec>(exec)->Replay(channel); });
}

stream::NodeHandle Add(stream::GraphHandle graph, std::unique_ptr<Node> node) {
  auto& nodes = As<CommandGraph>(graph)->nodes;
  nodes.push_back(std::move(node));
  return reinterpret_cast<stream::NodeHandle>(nodes.back().get());
}

}  // namespace

NvDriver::NvDriver(const NvDriverOptions& options, std::string name)
    : options_(options), name_(std::move(name)) {
  calls_.event_create = {"event_create", &EventCreate};
  calls_.event_destroy = {"event_destroy", &Destroy<stream::EventHandle>};
  calls_.event_record = {"event_record", &EventRecord};
  calls_.event_query = {"event_query", &EventQuery};
  calls_.event_elapsed = {"event_elapsed", &EventElapsed};
  calls_.stream_create = {"stream_create", &StreamCreate};
  calls_.stream_destroy = {"stream_destroy", &Destroy<stream::StreamHandle>};
  calls_.stream_query = {"stream_query", &StreamQuery};
  calls_.stream_synchronize = {"stream_synchronize", &StreamSynchronize};
  calls_.stream_wait_event = {"stream_wait_event", &StreamWaitEvent};
  calls_.launch_host_function = {"launch_host_function", &LaunchHostFunction};
  calls_.memory_allocate = {"memory_allocate", &MemoryAllocate};
  calls_.memory_free = {"memory_free", &MemoryFree};
  calls_.host_allocate = {"host_allocate", &HostAllocate};
  calls_.host_free = {"host_free", &HostFree};
  calls_.host_register = {"host_register", &HostRegister};
  calls_.host_unregister = {"host_unregister", &HostUnregister};
  calls_.copy_from_host = {"copy_from_host", &CopyFromHost};
  calls_.copy_to_host = {"copy_to_host", &CopyToHost};
  calls_.copy_within = {"copy_within", &CopyWithin};
  calls_.set_bytes = {"set_bytes", &SetBytes};
  calls_.launch_kernel = {"launch_kernel", &LaunchKernel};
  calls_.module_unload = {"module_unload", &Destroy<stream::ModuleHandle>};
  calls_.graph_create = {"graph_create", &GraphCreate};
  calls_.graph_destroy = {"graph_destroy", &Destroy<stream::GraphHandle>};
  calls_.graph_instantiate = {"graph_instantiate", &GraphInstantiate};
  calls_.exec_destroy = {"exec_destroy", &Destroy<stream::ExecHandle>};
  calls_.graph_launch = {"graph_launch", &GraphLaunch};
}

NvDriver::~NvDriver() { Close(); }

std::vector<std::string> NvDriver::Close() const {
  if (gpu_ == nullptr) return {};
  gpu_->Lose(absl::UnavailableError(StrCat(name_, " was closed")));
  if (watcher_ != nullptr) watcher_->Stop();
  return gpu_->Close();
}

absl::Status NvDriver::Check(std::string_view call, Result result) const {
  if (result == stream::kSuccess) return absl::OkStatus();
  const absl::Status& error = Now().error;
  return absl::Status(error.code(), StrCat(call, ": ", ToStd(error.message())));
}

bool NvDriver::IsSticky(Result result) const { return result == kLost; }

Called NvDriver::Retain(int, stream::ContextHandle* context) const {
  auto gpu = Gpu::Open(*options_.system, options_.gpu, name_, options_.limits);
  if (!gpu.ok()) return {"bring-up", Say(gpu.status())};
  gpu_ = *std::move(gpu);
  watcher_ = std::make_unique<Watcher>(*gpu_);
  *context = reinterpret_cast<stream::ContextHandle>(gpu_.get());
  return {"bring-up", stream::kSuccess};
}

Called NvDriver::Release(int) const {
  Close();
  return {"close", stream::kSuccess};
}

void NvDriver::Lose(const absl::Status& why) const {
  if (gpu_ != nullptr) gpu_->Lose(why);
}

Called NvDriver::Enter(int, stream::ContextHandle context) const {
  Now().gpu = reinterpret_cast<Gpu*>(context);
  Now().watcher = watcher_.get();
  return {"enter", stream::kSuccess};
}

Called NvDriver::CopyAcross(const stream::Place&, const stream::Place&, size_t,
                            stream::StreamHandle) const {
  return {"copy_across", Say(Unimplemented("copies between GPUs go through the host"))};
}

Called NvDriver::AddKernel(stream::NodeHandle* node, stream::GraphHandle graph,
                           std::span<const stream::NodeHandle>,
                           const stream::KernelLaunch& launch) const {
  auto made = std::make_unique<Node>();
  made->words = WordsOf(*As<Function>(launch.function), launch.parameters);
  made->launch = GridOf(launch, made->words);
  *node = Add(graph, std::move(made));
  return {"add_kernel", stream::kSuccess};
}

Called NvDriver::AddCopy(stream::NodeHandle* node, stream::GraphHandle graph,
                         std::span<const stream::NodeHandle>, stream::ContextHandle,
                         stream::Address to, stream::Address from, size_t bytes) const {
  auto made = std::make_unique<Node>();
  made->to = to;
  made->from = from;
  made->bytes = bytes;
  *node = Add(graph, std::move(made));
  return {"add_copy", stream::kSuccess};
}

Called NvDriver::SetKernel(stream::ExecHandle exec, stream::NodeHandle node,
                           const stream::KernelLaunch& launch) const {
  const auto words = WordsOf(*As<Function>(launch.function), launch.parameters);
  return {"set_kernel",
          Say(As<CommandExec>(exec)->SetLaunch(As<Node>(node), GridOf(launch, words)))};
}

Called NvDriver::SetCopy(stream::ExecHandle exec, stream::NodeHandle node, stream::ContextHandle,
                         stream::Address to, stream::Address from, size_t bytes) const {
  return {"set_copy", Say(As<CommandExec>(exec)->SetCopy(As<Node>(node), to, from, bytes))};
}

int64_t NvDriver::CodeBytes(const ProgramImage& image) const {
  const auto cubin = Cubin::Read(image.binary, image.name);
  return cubin.ok() ? static_cast<int64_t>(cubin->bytes()) : 0;
}

Called NvDriver::LoadModule(const ProgramImage& image, stream::ModuleHandle* module,
                            std::string*) const {
  if (!Cubin::IsCubin(image.binary)) {
    return {"load", Say(FailedPrecondition(
                        "PTX is not code of the GPU's: it takes cubins, which ptxas makes"))};
  }
  return {"load", Say(Module::Load(*Now().gpu, image.binary, image.name), module)};
}

absl::StatusOr<stream::Entry> NvDriver::Resolve(stream::Context&, const ProgramImage& image,
                                                int64_t local_limit,
                                                stream::ModuleHandle module) const {
  Function& function = As<Module>(module)->function();
  const CubinKernel& kernel = function.kernel;
  const ProgramSignature& signature = image.signature;
  const auto same = [](ParameterKind kind, uint32_t bytes) {
    return ParameterBytes(kind) == bytes;
  };
  if (!std::ranges::equal(signature.parameters, kernel.parameters, same)) {
    return InvalidArgument("it takes ", kernel.parameters.size(), " parameters of ",
                           kernel.parameter_bytes, " bytes, its signature says ",
                           signature.parameters.size(), " of ",
                           ParametersBytes(signature.parameters));
  }
  // Registers are given to a warp by 256, of 65536 that a processor has, to multiples of 4 warps.
  const uint32_t by_warp = (kernel.registers * 32 + 255) / 256 * 256;
  uint32_t threads = std::min<uint32_t>(1024, 65536 / by_warp / 4 * 4 * 32);
  if (kernel.most_threads > 0) threads = std::min(threads, kernel.most_threads);
  TG_RETURN_IF_ERROR(stream::CheckGroup(signature.group, threads));
  const int64_t wanted = signature.group.x * signature.group.y * signature.group.z;
  if (kernel.required_threads > 0 && wanted != kernel.required_threads) {
    return InvalidArgument(wanted, " threads in a workgroup; the program requires ",
                           kernel.required_threads);
  }
  constexpr int64_t kSystemPart = 1024;
  const int64_t fixed_bytes = int64_t{kernel.shared_bytes} - kSystemPart;
  if (signature.local_bytes < 0 || signature.local_bytes > local_limit - fixed_bytes) {
    return InvalidArgument(signature.local_bytes, " bytes of local memory beside ", fixed_bytes,
                           " fixed ones; a workgroup has at most ", local_limit);
  }
  return stream::Entry{.function = reinterpret_cast<stream::FunctionHandle>(&function),
                       .stack_bytes = kernel.stack_bytes};
}

}  // namespace telegrad::nv
