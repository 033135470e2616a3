// The state of the fake driver: devices, contexts and the objects in them, behind one mutex.
// Objects are found by their handles, which are never used twice, so a stale handle is never
// mistaken for a new object.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/cuda/abi.h"
#include "tests/fakes/cuda/device_kernel.h"
#include "tests/fakes/cuda/personality.h"
#include "tests/fakes/cuda/ptx/memory.h"

namespace fakecuda {

using Clock = std::chrono::steady_clock;

// A point in a stream: done when everything before it in the stream is.
struct Marker {
  bool done = false;
  Handle stream = 0;
  Clock::time_point time;
};

// How an operation ended, and what it adds to the counters.
struct Outcome {
  Result result = CUDA_SUCCESS;
  std::string message;
  Counters counted;
};

// What a stream does when its turn comes; `run` then sees the memory of `contexts` and of those
// whose peers they are, as it is at that time.
struct Operation {
  uint64_t number = 0;  // in the order of submission
  std::vector<std::shared_ptr<Marker>> waits;
  std::shared_ptr<Marker> marks;  // may be null
  std::vector<Handle> contexts;
  std::function<Outcome(const MemoryView& memory)> run;  // null: nothing to do
  bool hangs = false;
};

struct Stream {
  Handle handle = 0;
  Handle context = 0;
  bool is_default = false;
  bool blocking = true;    // takes turns with the default stream
  bool destroyed = false;  // goes when it is empty
  bool running = false;    // its first operation is being executed
  std::deque<Operation> operations;
};

struct Event {
  Handle context = 0;
  bool timing = true;
  std::shared_ptr<Marker> marker;  // null: never recorded
};

struct Allocation {
  Handle context = 0;
  Region region;
  int64_t charged = 0;       // of the device's memory
  bool internal = false;     // a module's variables
  int64_t opened = 0;        // how often, of another process's; 0 for one of this process
  uint64_t shared = 0;       // by which number processes name it; 0: none has a handle
  int file = -1;             // where its bytes then are
  DevicePointer mapped = 0;  // of pinned memory: where the GPUs see it, if they do
};

// Memory of cuMemCreate, which is of a device and of no context.
struct PhysicalMemory {
  int device = 0;
  uint64_t bytes = 0;
  int file = -1;  // a memfd with its bytes
  int64_t mapped = 0;
  bool released = false;  // goes when it is mapped nowhere
};

// Addresses without memory. The bytes that are mapped at them are in `host`, at the same offsets.
struct Reservation {
  uint64_t bytes = 0;
  std::shared_ptr<uint8_t> host;
};

struct Mapping {
  uint64_t bytes = 0;
  Handle physical = 0;
  std::set<int> access;  // devices that may use it
};

struct LoadedModule {
  Handle context = 0;
  std::vector<std::shared_ptr<const DeviceKernel>> kernels;
  DevicePointer globals = 0;  // its variables; 0: none
  DevicePointer code = 0;     // where modules take memory; 0: none
  uint64_t most_shared = 0;   // of a workgroup, without asking for more
};

struct LoadedFunction {
  Handle module = 0;
  Handle context = 0;
  std::shared_ptr<const DeviceKernel> kernel;
  uint64_t dynamic_shared = 0;  // at most
  bool loaded_lazily = false;
};

// A launch with everything copied that it needs.
struct PreparedLaunch {
  Handle function = 0;
  LoadedFunction loaded;
  KernelRun run;  // without its parameters and memory
  std::vector<uint8_t> parameters;
};

struct PreparedCopy {
  bool to_device = false;
  bool from_device = false;
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
  std::vector<Handle> contexts;
  bool corrupts = false;  // changes a byte
};

struct GraphNode {
  Handle handle = 0;
  std::vector<size_t> after;  // positions in the graph
  bool is_copy = false;
  PreparedLaunch launch;
  PreparedCopy copy;
};

struct Graph {
  std::vector<GraphNode> nodes;
};

struct ExecutableGraph {
  std::vector<GraphNode> nodes;
  Handle context = 0;
  std::shared_ptr<Marker> last;  // one launch at a time
};

struct Context {
  Handle handle = 0;
  int device = 0;
  Result error = CUDA_SUCCESS;  // a fault stays
  Handle default_stream = 0;
  std::set<Handle> peers;  // contexts whose memory this one may use
};

struct Device {
  int gpu = 0;        // whose number on the bus is one more
  int instance = -1;  // of it; -1: all of it
  int64_t used = 0;
  Handle primary = 0;
  int primary_count = 0;
};

struct Driver {
  static Driver& Get();

  std::mutex mutex;
  std::condition_variable work;  // for the scheduler: something may be ready
  std::condition_variable done;  // for those who wait: something has ended

  bool initialized = false;
  bool eager = false;    // CUDA_MODULE_LOADING was EAGER when that began
  bool started = false;  // the scheduler
  Knobs knobs = KnobsFromEnvironment();
  Counters counters;
  std::vector<std::string> problems;
  std::mt19937_64 random{1};

  std::vector<Device> devices;
  std::map<Handle, Context> contexts;
  std::set<Handle> destroyed_contexts;
  std::map<Handle, std::shared_ptr<Stream>> streams;
  std::map<Handle, Event> events;
  std::map<Handle, LoadedModule> modules;
  std::map<Handle, LoadedFunction> functions;
  std::map<Handle, Graph> graphs;
  std::map<Handle, ExecutableGraph> executables;
  std::map<DevicePointer, Allocation> allocations;
  std::map<uint64_t, Allocation> host_allocations;  // pinned
  std::map<Handle, PhysicalMemory> physical;
  std::map<DevicePointer, Reservation> reservations;
  std::map<DevicePointer, Mapping> mappings;

  uint64_t next_handle = 1;
  uint64_t next_number = 1;
  std::multiset<Handle> awaited;  // streams that somebody waits for

  // Bytes of the device.
  int64_t MemoryOf(const Device& device) const;
  Handle NewHandle() { return 0xfa4e000000000000 + 16 * next_handle++; }
  void Problem(const std::string& text);
  Context* FindContext(Handle handle);
  // The allocation with all the bytes, of device or of pinned memory; null if there is none.
  Allocation* FindDevice(DevicePointer address, uint64_t bytes);
  Allocation* FindPinned(uint64_t address, uint64_t bytes);
  // Pinned memory at the GPUs' addresses for it.
  Allocation* FindMapped(DevicePointer address, uint64_t bytes);
  // Whether work in the context may use all the bytes, which are its own, a peer's, or mapped with
  // access for its device.
  bool Reaches(const Context& context, DevicePointer address, uint64_t bytes);
  MemoryView View(const std::vector<Handle>& of);
};

// The context that is current on this thread; 0: none.
Handle& CurrentContext();

// One call of the driver API: holds the mutex, and knows what forbids the call.
class Call {
 public:
  enum class Needs { kNothing, kDriver, kContext, kHealthyContext };
  explicit Call(Needs needs = Needs::kHealthyContext);

  // CUDA_SUCCESS if the call may go on.
  Result result() const { return result_; }
  Driver& driver() { return driver_; }
  Context& context() { return *context_; }
  std::unique_lock<std::mutex>& lock() { return lock_; }
  // The stream, with 0 for the current context's default one; null if it is none.
  Stream* FindStream(Handle handle);

 private:
  Driver& driver_;
  std::unique_lock<std::mutex> lock_;
  Context* context_ = nullptr;
  Result result_ = CUDA_SUCCESS;
};

#define FAKE_RETURN_IF_FAILED(call) \
  if ((call).result() != fakecuda::CUDA_SUCCESS) return (call).result()

}  // namespace fakecuda
