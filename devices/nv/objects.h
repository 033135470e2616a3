// The objects behind the handles of the driver's functions: events, streams, modules and graphs
// of one GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/nv/channel.h"
#include "devices/nv/gpu.h"
#include "devices/nv/watcher.h"
#include "devices/nv/work.h"

namespace telegrad::nv {

// A 64-bit word of the host's memory that the GPU sets, with the time of it behind: what a stream
// has passed when the word is at least the value. Recorded again, it has a greater value.
class Event {
 public:
  static absl::StatusOr<std::unique_ptr<Event>> Create(Gpu& gpu);
  ~Event() { gpu_.semaphores().Give(word_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Moment moment() const { return {word_, value_}; }
  // Of the next record.
  Moment Advance() { return {word_, ++value_}; }
  bool HasPassed() const { return moment().HasPassed(); }
  uint64_t time_ns() const;  // of the last record, once it has passed

 private:
  Event(Gpu& gpu, const Block& word) : gpu_(gpu), word_(word) {}

  Gpu& gpu_;
  const Block word_;
  uint64_t value_ = 0;  // 0: it was not recorded
};

// Work in order. It takes a channel when the first work comes that needs one; a stream that only
// waits and calls back has none. Used by one thread at a time.
class Stream {
 public:
  Stream(Gpu& gpu, Watcher& watcher) : gpu_(gpu), watcher_(watcher) {}
  ~Stream();  // idle
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The channel, behind all that the stream waits for.
  absl::StatusOr<Channel*> Ready();
  absl::Status Record(Event& event);
  absl::Status Await(const Event& event);
  void CallBack(void (*function)(void*), void* data);
  // Whether all that is on it has ended.
  absl::StatusOr<bool> IsIdle();
  absl::Status Synchronize();

 private:
  Gpu& gpu_;
  Watcher& watcher_;
  Channel* channel_ = nullptr;
  std::vector<Moment> awaited_;  // that no channel waits for yet
};

// A cubin in the GPU's memory.
class Module {
 public:
  static absl::StatusOr<std::unique_ptr<Module>> Load(Gpu& gpu, std::string_view cubin,
                                                      std::string_view entry);
  ~Module() { gpu_.commands().Give(memory_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Function& function() { return function_; }

 private:
  explicit Module(Gpu& gpu) : gpu_(gpu) {}

  Gpu& gpu_;
  Block memory_;
  Function function_;
};

// A launch or a copy of a graph.
struct Node {
  std::vector<uint64_t> words;
  GridLaunch launch = {};  // of `words`, where it has a function
  uint64_t to = 0, from = 0, bytes = 0;

  bool launches() const { return launch.function != nullptr; }
};

struct CommandGraph {
  std::vector<std::unique_ptr<Node>> nodes;  // in order, which is theirs
};

// A graph encoded once: its methods and all that they refer to lie in memory that the GPU reads, so
// a replay is one entry of a ring. What differs from run to run is written there in words: the
// parameters of a launch, and the addresses of a copy.
class CommandExec {
 public:
  static absl::StatusOr<std::unique_ptr<CommandExec>> Create(Gpu& gpu, const CommandGraph& graph);
  ~CommandExec();
  CommandExec(const CommandExec&) = delete;
  CommandExec& operator=(const CommandExec&) = delete;

  // While it does not run. Launches keep their function, their grid and their workgroups.
  absl::Status SetLaunch(const Node* node, const GridLaunch& launch);
  absl::Status SetCopy(const Node* node, uint64_t to, uint64_t from, uint64_t bytes);

  absl::Status Replay(Channel& channel) const;

 private:
  struct NodeWords {
    const Node* node = nullptr;
    size_t words = 0, count = 0;  // its methods, by the word
    Block data = {};              // of a launch
    uint64_t step = 0, bytes = 0;
    const Function* function = nullptr;
  };

  explicit CommandExec(Gpu& gpu) : gpu_(gpu) {}
  absl::StatusOr<NodeWords*> Find(const Node* node);
  void Write(const NodeWords& of_node, const PushBuffer& push) const;

  Gpu& gpu_;
  Block words_, data_, steps_;
  size_t count_ = 0;  // words
  std::vector<NodeWords> nodes_;
};

}  // namespace telegrad::nv
