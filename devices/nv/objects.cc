// Events are semaphore words with a timestamp, streams use a channel, modules are cubins in the
// GPU's memory, and graphs are pushbuffers that are encoded once and patched.
#include "devices/nv/objects.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::nv {

absl::StatusOr<std::unique_ptr<Event>> Event::Create(Gpu& gpu) {
  TG_RETURN_IF_ERROR(gpu.Check());
  constexpr size_t kWordAndTime = 16;
  TG_ASSIGN_OR_RETURN(const Block word, gpu.semaphores().Take(kWordAndTime, kWordAndTime));
  for (const size_t at : {0, 8}) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word.host + at)).store(0);
  }
  return std::unique_ptr<Event>(new Event(gpu, word));
}

uint64_t Event::time_ns() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word_.host + 8)).load();
}

Stream::~Stream() {
  if (channel_ != nullptr) gpu_.ReturnChannel(channel_);
}

absl::StatusOr<Channel*> Stream::Ready() {
  if (channel_ == nullptr) {
    TG_ASSIGN_OR_RETURN(channel_, gpu_.TakeChannel());
  }
  while (!awaited_.empty()) {
    const Moment& moment = awaited_.back();
    if (!moment.HasPassed()) {
      TG_RETURN_IF_ERROR(channel_->Acquire(moment.word.address, moment.value));
    }
    awaited_.pop_back();
  }
  return channel_;
}

absl::Status Stream::Record(Event& event) {
  TG_ASSIGN_OR_RETURN(Channel * channel, Ready());
  const Moment moment = event.Advance();
  TG_RETURN_IF_ERROR(channel->Release(moment.word.address, moment.value));
  return channel->Flush();
}

absl::Status Stream::Await(const Event& event) {
  TG_RETURN_IF_ERROR(gpu_.Check());
  if (event.HasPassed()) return absl::OkStatus();
  awaited_.push_back(event.moment());
  return channel_ == nullptr ? absl::OkStatus() : Ready().status();
}

void Stream::CallBack(void (*function)(void*), void* data) {
  watcher_.Call(this, std::exchange(awaited_, {}), function, data);
}

absl::StatusOr<bool> Stream::IsIdle() {
  TG_RETURN_IF_ERROR(gpu_.Check());
  if (!watcher_.IsIdle(this)) return false;
  if (channel_ == nullptr) {
    return std::ranges::all_of(awaited_, &Moment::HasPassed);
  }
  TG_RETURN_IF_ERROR(channel_->Flush());
  return channel_->IsIdle();
}

absl::Status Stream::Synchronize() {
  watcher_.Drain(this);
  const SharedLock open(gpu_.closing());
  TG_RETURN_IF_ERROR(gpu_.Check());
  if (channel_ == nullptr) return absl::OkStatus();
  return channel_->Await(gpu_.limits().hang_ns);
}

absl::StatusOr<std::unique_ptr<Module>> Module::Load(Gpu& gpu, std::string_view cubin,
                                                     std::string_view entry) {
  TG_RETURN_IF_ERROR(gpu.Check());
  TG_ASSIGN_OR_RETURN(const Cubin read, Cubin::Read(cubin, entry));
  if (!read.IsFor(90)) return InvalidArgument("a cubin for another kind of GPU, not for sm_90");
  TG_RETURN_IF_ERROR(gpu.HoldStacks(read.kernel().stack_bytes));
  std::unique_ptr<Module> out(new Module(gpu));
  TG_ASSIGN_OR_RETURN(out->memory_, gpu.commands().Take(read.bytes(), Cubin::kAlignment));
  // The doorbell of the first launch orders these stores before it.
  const std::vector<std::byte> image = read.Place(out->memory_.address);
  for (size_t i = 0; i < image.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, &image[i], sizeof(word));
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(out->memory_.host + i))
        .store(word, std::memory_order_relaxed);
  }
  out->function_ = {read.kernel(), out->memory_.address};
  return out;
}

absl::StatusOr<std::unique_ptr<CommandExec>> CommandExec::Create(Gpu& gpu,
                                                                 const CommandGraph& graph) {
  TG_RETURN_IF_ERROR(gpu.Check());
  std::unique_ptr<CommandExec> out(new CommandExec(gpu));
  TG_ASSIGN_OR_RETURN(out->steps_, gpu.semaphores().Take(16, 16));
  constexpr size_t kAlignment = 256;
  const auto rounded = [](size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); };
  size_t data_bytes = 0;
  for (const auto& node : graph.nodes) {
    if (node->launches()) data_bytes += rounded(LaunchDataBytes(node->launch.function->kernel));
  }
  TG_ASSIGN_OR_RETURN(out->data_, gpu.commands().Take(data_bytes, kAlignment));
  // The steps begin at 0 in each run: what was there is of the run before, which has ended.
  PushBuffer push;
  push.Release(out->steps_.address, 0);
  size_t data_at = 0;
  uint64_t step = 0;
  for (const auto& node : graph.nodes) {
    NodeWords& of_node = out->nodes_.emplace_back();
    of_node.node = node.get();
    of_node.words = push.words().size();
    of_node.step = ++step;
    of_node.bytes = node->bytes;
    const Step end{out->steps_.address, step};
    if (node->launches()) {
      of_node.function = node->launch.function;
      of_node.data = {out->data_.address + data_at, out->data_.host + data_at,
                      LaunchDataBytes(of_node.function->kernel)};
      data_at += rounded(of_node.data.bytes);
      WriteLaunchData(of_node.data, node->launch);
      PushLaunch(push, of_node.data.address, end);
    } else {
      PushCopy(push, node->to, node->from, node->bytes, end);
    }
    of_node.count = push.words().size() - of_node.words;
  }
  out->count_ = push.words().size();
  TG_ASSIGN_OR_RETURN(out->words_, gpu.commands().Take(4 * out->count_, kAlignment));
  out->Write({.words = 0}, push);
  return out;
}

CommandExec::~CommandExec() {
  gpu_.commands().Give(words_);
  gpu_.commands().Give(data_);
  gpu_.semaphores().Give(steps_);
}

void CommandExec::Write(const NodeWords& of_node, const PushBuffer& push) const {
  for (size_t i = 0; i < push.words().size(); ++i) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(words_.host + 4 * (of_node.words + i)))
        .store(push.words()[i], std::memory_order_relaxed);
  }
}

absl::StatusOr<CommandExec::NodeWords*> CommandExec::Find(const Node* node) {
  const auto it = std::ranges::find(nodes_, node, &NodeWords::node);
  if (it == nodes_.end()) return InvalidArgument("the graph has no such node");
  return &*it;
}

absl::Status CommandExec::SetLaunch(const Node* node, const GridLaunch& launch) {
  TG_ASSIGN_OR_RETURN(const NodeWords* of_node, Find(node));
  if (of_node->function == nullptr || of_node->function != launch.function) {
    return InvalidArgument("a node's kernel stays as it is");
  }
  PatchLaunchData(of_node->data, launch);
  return absl::OkStatus();
}

absl::Status CommandExec::SetCopy(const Node* node, uint64_t to, uint64_t from, uint64_t bytes) {
  TG_ASSIGN_OR_RETURN(const NodeWords* of_node, Find(node));
  if (of_node->function != nullptr || of_node->bytes != bytes) {
    return InvalidArgument("a node's copy keeps its length");
  }
  PushBuffer push;
  PushCopy(push, to, from, bytes, {steps_.address, of_node->step});
  Write(*of_node, push);
  return absl::OkStatus();
}

absl::Status CommandExec::Replay(Channel& channel) const {
  return channel.Replay(words_.address, count_);
}

}  // namespace telegrad::nv
