// Driver libraries whose functions fail: each function at its n-th call, for every n that occurs
// in the life of a device. The operation that made the call then fails with an error that names
// the function; nothing hangs, everything is released, and the results of operations that
// succeed are right.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "devices/api/idle_at_once.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/failing_fixture.h"
#include "tests/devices/hip_fixture.h"
#include "tests/devices/tensor_map_programs.h"
#include "tests/fakes/foreign_memory.h"
#include "tests/opencl/opencl_fixture.h"

namespace telegrad {
namespace {

// What one life of a device came to.
struct Life {
  std::vector<std::string> said;  // notes and messages of errors
  bool opened = false;
  bool healthy = true;  // until the end
  std::string read;     // what the programs left; empty where that failed
};

struct RefusingDriver {
  std::function<std::vector<std::unique_ptr<Device>>(std::vector<std::string>*)> open;
  ProgramImage next;        // adds 1 to the byte of its iteration
  std::string handle = {};  // of 8 bytes of another process; empty: there are none
  // Bytes of chunks of memory, of which the device has room for four; 0: it has none.
  int64_t chunk = 0;
  std::optional<ProgramImage> box = {};  // see tensor_map_programs.h; none: it takes no tensor maps
  // Makes so many launches from now fail while they run, 0 or 1; null: nothing does.
  std::function<void(int)> fault = nullptr;
  std::function<int64_t(const char*)> count = nullptr;  // a counter of the fake's
};

constexpr char kRead[] = "gikm";
constexpr int64_t kChunk = 2 << 20;

// Twice a box of 32 numbers of the whole of one buffer, and again of another.
absl::Status CopyBoxes(Device& device, const ProgramImage& image) {
  const TensorMap map{.rank = 3,
                      .sizes = {4, 4, 2, 1, 1},
                      .strides = {4, 16, 64, 0, 0},
                      .boxes = {4, 4, 2, 1, 1},
                      .element = DType::kInt32};
  Command box;
  TG_ASSIGN_OR_RETURN(auto program, device.Load(image));
  box.launch = Launch::Of(std::move(program));
  box.launch.arguments = {LaunchArgument::Map(map, 0, 0, BufferAccess::kRead),
                          {1, 0, BufferAccess::kWrite},
                          LaunchArgument::Scalar32(0),
                          LaunchArgument::Scalar32(0),
                          LaunchArgument::Scalar32(0)};
  TG_ASSIGN_OR_RETURN(const auto commands, device.Encode({box, box}));
  TG_ASSIGN_OR_RETURN(auto to, device.Alloc(128));
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(auto from, device.Alloc(128));
    TG_ASSIGN_OR_RETURN(const TimelinePoint ran,
                        device.queue().Submit(commands, {Whole(from), Whole(to)}, {}));
    TG_RETURN_IF_ERROR(ran.Wait());
  }
  return absl::OkStatus();
}

// "aceg" becomes "bdfh" by a graph that is replayed.
absl::Status RunGraph(Device& device, Device& host, const ProgramImage& image) {
  TG_ASSIGN_OR_RETURN(const auto program, device.Load(image));
  Command next;
  next.launch = Launch::Of(program);
  next.launch.arguments = {{0, 0}};
  next.launch.grid.x = 4;
  TG_ASSIGN_OR_RETURN(const auto commands, device.Encode({next, next}));
  TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(4));
  const BufferView buffer = Whole(std::move(memory)), out = HostBuffer(host, "????");
  for (int i = 0; i < 3; ++i) {
    TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(device, buffer, HostBuffer(host, "aceg")));
    const TimelinePoint waits[] = {in};
    TG_ASSIGN_OR_RETURN(const TimelinePoint ran, device.queue().Submit(commands, {buffer}, waits));
    TG_RETURN_IF_ERROR(ran.Wait());
  }
  TG_ASSIGN_OR_RETURN(const TimelinePoint back, Copy(device, out, buffer));
  TG_RETURN_IF_ERROR(back.Wait());
  EXPECT_EQ(Bytes(out), "cegi");
  return absl::OkStatus();
}

// As the server copies: where no path between the two is trusted, by memory of the host.
absl::Status CopyAcross(Device& device, Device& last, Device& host, const BufferView& to,
                        const BufferView& from) {
  if (last.AccessTo(device).reaches()) {
    TG_ASSIGN_OR_RETURN(const TimelinePoint across, Copy(last, to, from));
    return across.Wait();
  }
  const BufferView between = HostBuffer(host, std::string(static_cast<size_t>(from.length), '?'));
  TG_ASSIGN_OR_RETURN(const TimelinePoint out, Copy(device, between, from));
  TG_RETURN_IF_ERROR(out.Wait());
  TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(last, to, between));
  return in.Wait();
}

// After one refusal, which may still be to come, each device runs a graph, if need be once more and
// as the next generation, and the host's device works.
void ExpectAllRun(const RefusingDriver& driver, Device& host,
                  const std::vector<std::unique_ptr<Device>>& devices, Life* life) {
  for (const auto& device : devices) {
    absl::Status status;
    for (int attempt = 0; attempt < 3; ++attempt) {
      status = device->Health().ok() ? absl::OkStatus() : device->Recover();
      if (status.ok()) status = RunGraph(*device, host, driver.next);
      if (status.ok()) break;
      life->said.push_back(status.ToString());
    }
    EXPECT_EQ(status, absl::OkStatus()) << device->name() << " does not go on";
  }
  const BufferView copied = HostBuffer(host, "????");
  const auto point = Copy(host, copied, HostBuffer(host, "host"), {}, QueueKind::kCompute);
  EXPECT_TRUE(point.ok() && point->Wait().ok());
  EXPECT_EQ(Bytes(copied), "host");
}

// A device runs a graph, gives back what is idle, is lost and comes back, beside another one.
Life LiveTwice(const RefusingDriver& driver, Device& host) {
  Life life;
  life.healthy = false;  // it is lost once
  auto devices = driver.open(&life.said);
  if (devices.empty()) return life;
  life.opened = true;
  Device& device = *devices[0];
  Device& last = *devices.back();
  const auto work = [&]() -> absl::Status {
    TG_RETURN_IF_ERROR(RunGraph(device, host, driver.next));
    if (const auto idle = std::dynamic_pointer_cast<IdleMemoryAtOnce>(device.idle_memory())) {
      TG_RETURN_IF_ERROR(idle->GiveBackAll().status());
    }
    driver.fault(1);
    const absl::Status lost = RunGraph(device, host, driver.next);
    driver.fault(0);
    if (device.Health().ok()) return lost;  // a call was refused before the fault
    TG_RETURN_IF_ERROR(RunGraph(last, host, driver.next));
    TG_RETURN_IF_ERROR(device.Recover());
    TG_RETURN_IF_ERROR(RunGraph(device, host, driver.next));
    TG_ASSIGN_OR_RETURN(auto first, device.Alloc(4));
    TG_ASSIGN_OR_RETURN(auto second, last.Alloc(4));
    const BufferView a = Whole(first), b = Whole(second), out = HostBuffer(host, "????");
    TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(device, a, HostBuffer(host, kRead)));
    TG_RETURN_IF_ERROR(in.Wait());
    TG_RETURN_IF_ERROR(CopyAcross(device, last, host, b, a));
    TG_ASSIGN_OR_RETURN(const TimelinePoint back, Copy(last, out, b));
    TG_RETURN_IF_ERROR(back.Wait());
    life.read = Bytes(out);
    return absl::OkStatus();
  };
  if (const absl::Status status = work(); !status.ok()) life.said.push_back(status.ToString());
  driver.fault(0);
  if (life.read.empty()) ExpectAllRun(driver, host, devices, &life);
  return life;
}

// Opens devices, moves bytes to the first, between two of its buffers, to memory of another process
// and to the second device where there are such, and back, and runs programs and a copy: traced,
// and again with other buffers.
Life Live(const RefusingDriver& driver, Device& host) {
  Life life;
  auto devices = driver.open(&life.said);
  if (devices.empty()) return life;
  life.opened = true;
  Device& device = *devices[0];
  Device& last = *devices.back();
  const auto work = [&]() -> absl::Status {
    TG_ASSIGN_OR_RETURN(const auto program, device.Load(driver.next));
    TG_ASSIGN_OR_RETURN(auto first, device.Alloc(8));
    TG_ASSIGN_OR_RETURN(auto second, device.Alloc(8));
    TG_ASSIGN_OR_RETURN(auto third, last.Alloc(8));
    const BufferView a = Whole(first), b = Whole(second), c = Whole(third);
    TG_ASSIGN_OR_RETURN(const TimelinePoint there, Copy(device, a, HostBuffer(host, "????aceg")));
    Command move, next;
    move.kind = CommandKind::kCopy;
    move.copy = {.to = {0, 0}, .from = {0, 4}, .length = 4};
    next.launch = Launch::Of(program);
    next.launch.arguments = {{0, 0}};
    next.launch.grid.x = 4;
    Command next_again = next;
    next_again.launch.arguments = {{0, 4}};
    // The last 4 bytes, and these plus 1.
    TG_ASSIGN_OR_RETURN(const auto commands, device.Encode({next_again, move, next}));
    const TimelinePoint waits[] = {there};
    TG_ASSIGN_OR_RETURN(const TimelinePoint ran, device.queue().Submit(commands, {a}, waits));
    const auto trace = std::make_shared<RunTrace>();
    TG_ASSIGN_OR_RETURN(const TimelinePoint traced,
                        device.queue().Submit(commands, {a}, waits, trace));
    TG_RETURN_IF_ERROR(ran.Wait());
    TG_RETURN_IF_ERROR(traced.Wait());
    TG_ASSIGN_OR_RETURN(const TimelinePoint moved, Copy(device, b, a));
    TG_RETURN_IF_ERROR(moved.Wait());
    if (!driver.handle.empty()) {
      TG_ASSIGN_OR_RETURN(auto shared, device.ImportHandle(driver.handle, 8));
      TG_ASSIGN_OR_RETURN(const TimelinePoint given, Copy(device, Whole(shared), b));
      TG_RETURN_IF_ERROR(given.Wait());
    }
    if (device.Makes(MemoryKind::kPinnedHost)) {
      TG_ASSIGN_OR_RETURN(const auto pinned, device.AllocOf(MemoryKind::kPinnedHost, b.length));
      TG_ASSIGN_OR_RETURN(const TimelinePoint out, Copy(device, Whole(pinned), b));
      TG_RETURN_IF_ERROR(out.Wait());
      TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(device, b, Whole(pinned)));
      TG_RETURN_IF_ERROR(in.Wait());
    }
    for (int i = 0; i < 2; ++i) {
      const auto lent = device.LendPinned(64 << 10);
      if (lent == nullptr) break;
      const BufferView passing{lent, 0, b.length};
      TG_ASSIGN_OR_RETURN(const TimelinePoint out, Copy(device, passing, b));
      TG_RETURN_IF_ERROR(out.Wait());
      TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(device, b, passing));
      TG_RETURN_IF_ERROR(in.Wait());
    }
    if (driver.chunk > 0) {
      // Of three chunks the outer ones are free when two side by side are needed.
      std::vector<std::shared_ptr<Memory>> chunks(3);
      for (auto& chunk : chunks) {
        TG_ASSIGN_OR_RETURN(chunk, device.Alloc(driver.chunk));
      }
      chunks[0] = chunks[2] = nullptr;
      TG_ASSIGN_OR_RETURN(const auto large, device.Alloc(2 * driver.chunk));
      TG_ASSIGN_OR_RETURN(const TimelinePoint end,
                          Copy(device, {large, 2 * driver.chunk - 8, 8}, b));
      TG_RETURN_IF_ERROR(end.Wait());
    }
    if (driver.box) TG_RETURN_IF_ERROR(CopyBoxes(device, *driver.box));
    if (device.Makes(MemoryKind::kExported)) {
      TG_ASSIGN_OR_RETURN(const auto exported, device.AllocOf(MemoryKind::kExported, 8));
      TG_RETURN_IF_ERROR(device.ExportHandle(*exported).status());
    }
    for (int i = 0; i < 3; ++i) {
      TG_ASSIGN_OR_RETURN(const TimelinePoint replayed, device.queue().Submit(commands, {b}, {}));
      TG_RETURN_IF_ERROR(replayed.Wait());
    }
    TG_RETURN_IF_ERROR(CopyAcross(device, last, host, c, b));
    const BufferView out = HostBuffer(host, "????");
    TG_ASSIGN_OR_RETURN(const TimelinePoint back, Copy(last, out, {c.memory, 0, 4}));
    TG_RETURN_IF_ERROR(back.Wait());
    life.read = Bytes(out);
    return absl::OkStatus();
  };
  if (const absl::Status status = work(); !status.ok()) life.said.push_back(status.ToString());
  for (const auto& each : devices) life.healthy &= each->Health().ok();
  if (life.read.empty()) ExpectAllRun(driver, host, devices, &life);
  return life;
}

// Ends the process where something takes so long, and says what. It counts looks of its own, of
// which a machine that is busy with others gives it fewer.
class HangWatch {
 public:
  explicit HangWatch(std::string what)
      : what_(std::move(what)), thread_([this] {
          std::unique_lock lock(mutex_);
          for (int look = 0; look < kLooks; ++look) {
            if (over_.wait_for(lock, kLook, [&] { return is_over_; })) return;
          }
          std::fprintf(stderr, "hangs: %s\n", what_.c_str());
          std::abort();
        }) {}
  ~HangWatch() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLook{50};
  static constexpr int kLooks = 400;  // 20 seconds

  const std::string what_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

// Functions that make something, and those that give it back.
struct Balance {
  std::vector<std::string> made, released;
};

class Refusing {
 public:
  using Lived = Life (*)(const RefusingDriver& driver, Device& host);

  Refusing(FailingLibrary& library, RefusingDriver driver, int error, std::vector<Balance> balances,
           Lived live = &Live)
      : library_(library),
        driver_(std::move(driver)),
        error_(error),
        balances_(std::move(balances)),
        live_(live) {}

  // Fails every call once, or every one of these functions, or of all one of `every`, beginning
  // with `first`; how many there were.
  int64_t FailEachCall(const std::vector<std::string>& only = {}, int64_t every = 1,
                       int64_t first = 0) {
    library_.Reset();
    const Life whole = live_(driver_, *host_);
    EXPECT_EQ(whole.read, kRead) << (whole.said.empty() ? "" : whole.said[0]);
    if (whole.healthy) ExpectBalance("nothing refused");
    std::vector<std::pair<std::string, int64_t>> calls;
    for (const std::string& name : library_.Names()) {
      if (only.empty() || std::ranges::find(only, name) != only.end()) {
        calls.emplace_back(name, library_.Calls(name));
      }
      if (library_.Calls(name) == 0) uncalled_.push_back(name);
    }
    int64_t all = 0;
    for (const auto& [name, count] : calls) {
      // Those that look again and again have no certain number of calls.
      const bool looks = name.ends_with("Query") || name.starts_with("clGet");
      const int64_t step = looks ? count / kMostLooks + 1 : 1;
      for (int64_t n = 1; n <= count; n += step, ++all) {
        if (all % every == first % every) FailOne(name, n);
      }
    }
    return all;
  }

  // Functions that were not called in a life without failures.
  const std::vector<std::string>& uncalled() const { return uncalled_; }

 private:
  static constexpr int64_t kMostLooks = 100;
  static constexpr std::array kAlive = {
      "live_contexts",         "live_streams", "live_events",
      "live_modules",          "live_graphs",  "live_allocations",
      "live_host_allocations", "live_imports", "live_reservations"};

  void FailOne(const std::string& name, int64_t n) {
    const std::string what = StrCat(name, ", call ", n);
    SCOPED_TRACE(what);
    library_.Reset();
    library_.Fail(name, n, error_);
    const HangWatch watch(what);
    const std::vector<int64_t> before = Alive();
    const Life life = live_(driver_, *host_);
    if (library_.Calls(name) < n) return;  // calls differ from life to life where threads look
    if (!life.read.empty()) {
      EXPECT_EQ(life.read, kRead);
    } else {
      std::string said;
      for (const std::string& text : life.said) StrAppend(&said, text, "\n");
      // A GPU that does not tell how many copies it does at once counts as one that does one.
      const bool differs = name.ends_with("GetAttribute") && said.find("other queues") != said.npos;
      EXPECT_TRUE(differs || said.find(name) != said.npos) << said;
    }
    if (life.healthy) ExpectBalance(what);
    if (Releases(name)) return;
    const std::vector<int64_t> after = Alive();  // less where a reset gave back what was left
    // HIP has no call that gives up a context: what one life has reset, the next has again.
    const size_t first = name.starts_with("hip") ? 1 : 0;
    for (size_t i = first; i < after.size(); ++i) EXPECT_LE(after[i], before[i]) << kAlive[i];
  }

  // What the fake has that is not released.
  std::vector<int64_t> Alive() {
    std::vector<int64_t> out;
    if (driver_.count == nullptr) return out;
    for (const char* counter : kAlive) out.push_back(driver_.count(counter));
    return out;
  }
  // What it does not release stays.
  bool Releases(const std::string& name) const {
    return name.find("Reset") != name.npos || name.find("SetCurrent") != name.npos ||
           name.find("SetDevice") != name.npos || name.find("DestroyEx") != name.npos ||
           std::ranges::any_of(balances_, [&](const Balance& balance) {
             return std::ranges::find(balance.released, name) != balance.released.end();
           });
  }

  // A call to release what it had made counts, also where it is the one that was refused, unless it
  // was made again.
  void ExpectBalance(const std::string& what) {
    for (const Balance& balance : balances_) {
      int64_t made = 0, released = 0, called = 0;
      for (const std::string& name : balance.made) made += library_.Succeeded(name);
      for (const std::string& name : balance.released) {
        released += library_.Succeeded(name);
        called += library_.Calls(name);
      }
      EXPECT_TRUE(made == called || made == released)
          << balance.made[0] << ": " << made << " made, " << released << " released by " << called
          << " calls; " << what;
    }
  }

  FailingLibrary& library_;
  const RefusingDriver driver_;
  const int error_;
  const std::vector<Balance> balances_;
  const Lived live_;
  std::vector<std::string> uncalled_;
  const std::unique_ptr<Device> host_ = OpenHost({.index = 7});
};

TEST(RefusingOpenCl, EveryCall) {
  SKIP_WITHOUT_OPENCL();
  FailingLibrary library(TELEGRAD_FAILING_OPENCL, OpenClLibrary());
  ASSERT_TRUE(library.works());
  const auto image = Compile(kNextOpenCl, "next", OpenOpenClDevice()->target(),
                             {.opencl_library = OpenClLibrary()});
  ASSERT_TRUE(image.ok()) << image.status();
  const RefusingDriver driver{
      [](std::vector<std::string>* notes) {
        return OpenOpenCls(
            {.library = TELEGRAD_FAILING_OPENCL, .devices = 1, .memory_limit = 1 << 20}, notes);
      },
      *image};
  constexpr int kOutOfResources = -5;
  Refusing refusing(library, driver, kOutOfResources,
                    {{{"clCreateContext"}, {"clReleaseContext"}},
                     {{"clCreateCommandQueue"}, {"clReleaseCommandQueue"}},
                     {{"clCreateBuffer"}, {"clReleaseMemObject"}},
                     {{"clCreateProgramWithBinary"}, {"clReleaseProgram"}},
                     {{"clCreateKernel"}, {"clReleaseKernel"}},
                     {{"clEnqueueMarkerWithWaitList"}, {"clReleaseEvent"}}});
  EXPECT_GT(refusing.FailEachCall(), 60);
}

// So what others want meanwhile waits for a part of it only. Where a part fails, none is kept.
TEST(RefusingOpenCl, LargeMemoryIsZeroedInParts) {
  SKIP_WITHOUT_OPENCL();
  FailingLibrary library(TELEGRAD_FAILING_OPENCL, OpenClLibrary());
  ASSERT_TRUE(library.works());
  auto devices = OpenOpenCls({.library = TELEGRAD_FAILING_OPENCL, .devices = 1}, nullptr);
  ASSERT_EQ(devices.size(), 1u);
  const auto host = OpenHost({.index = 7});
  constexpr int64_t kSize = (int64_t{100} << 20) + 1;
  for (int i = 0; i < 2; ++i) {  // the second has perhaps what the first has left
    const int64_t before = library.Calls("clEnqueueFillBuffer");
    const auto memory = devices[0]->Alloc(kSize);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(library.Calls("clEnqueueFillBuffer") - before, 7);
    const BufferView last{*memory, kSize - 1, 1};
    const BufferView read = HostBuffer(*host, "?");
    ASSERT_EQ(Copy(*devices[0], read, last)->Wait(), absl::OkStatus());
    EXPECT_EQ(Bytes(read), std::string(1, '\0'));
    ASSERT_EQ(Copy(*devices[0], last, HostBuffer(*host, "!"))->Wait(), absl::OkStatus());
  }
  constexpr int kOutOfResources = -5;
  library.Reset();
  library.Fail("clEnqueueFillBuffer", 4, kOutOfResources);
  const absl::Status failed = devices[0]->Alloc(kSize).status();
  EXPECT_THAT(failed.ToString(), ::testing::HasSubstr("clEnqueueFillBuffer"));
  EXPECT_EQ(devices[0]->memory_used(), 0);
}

TEST(RefusingOpenCl, NoLibraryOrAnother) {
  std::vector<std::string> notes;
  EXPECT_TRUE(OpenOpenCls({.library = "libNoSuchOpenCL.so.1"}, &notes).empty());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], ::testing::HasSubstr("no OpenCL loader: libNoSuchOpenCL.so.1"));
  notes.clear();
  EXPECT_TRUE(OpenOpenCls({.library = TELEGRAD_FAKE_CUDA}, &notes).empty());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], ::testing::HasSubstr("lacks clGetPlatformIDs"));
  // One that works, with no platform behind it.
  notes.clear();
  FailingLibrary library(TELEGRAD_FAILING_OPENCL, OpenClLibrary());
  if (!library.works()) GTEST_SKIP() << "no OpenCL loader";
  library.Fail("clGetPlatformIDs", 1, -1001);
  EXPECT_TRUE(OpenOpenCls({.library = TELEGRAD_FAILING_OPENCL}, &notes).empty());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], ::testing::HasSubstr("CL_PLATFORM_NOT_FOUND_KHR"));
}

// Of how many calls the ordinary tests fail one, where they sample; TELEGRAD_REFUSING_EVERY says
// another number, 1 for all.
int64_t Every(int64_t usual) {
  const char* const text = std::getenv("TELEGRAD_REFUSING_EVERY");
  const int64_t every = text == nullptr ? usual : std::atoll(text);
  return every > 0 ? every : usual;
}

constexpr int kSampled[] = {1, 2, 700};  // CUDA's and HIP's: invalid value, no memory, sticky

class RefusingCuda : public ::testing::Test {
 protected:
  static constexpr int kInvalidValue = 1;

  void SetUp() override { fake_.Set("virtual_memory", 1); }
  RefusingDriver Driver() {
    return {[](std::vector<std::string>* notes) {
              return OpenCudas({.library = TELEGRAD_FAILING_CUDA, .memory_limit = 4 * kChunk},
                               notes);
            },
            next_,
            foreign_.handle(),
            kChunk,
            *CudaBox(),
            [this](int launches) { fake_.Set("fault_launch", launches); },
            [this](const char* counter) { return fake_.Count(counter); }};
  }
  const std::vector<Balance> balances_ = {
      {{"cuDevicePrimaryCtxRetain"}, {"cuDevicePrimaryCtxRelease_v2"}},
      {{"cuStreamCreate"}, {"cuStreamDestroy_v2"}},
      {{"cuEventCreate"}, {"cuEventDestroy_v2"}},
      {{"cuMemAlloc_v2"}, {"cuMemFree_v2"}},
      {{"cuMemAddressReserve"}, {"cuMemAddressFree"}},
      {{"cuMemCreate"}, {"cuMemRelease"}},
      {{"cuMemMap"}, {"cuMemUnmap"}},
      {{"cuIpcOpenMemHandle_v2"}, {"cuIpcCloseMemHandle"}},
      {{"cuMemHostAlloc"}, {"cuMemFreeHost"}},
      {{"cuMemHostRegister_v2"}, {"cuMemHostUnregister"}},
      {{"cuModuleLoadDataEx"}, {"cuModuleUnload"}},
      {{"cuGraphCreate"}, {"cuGraphDestroy"}},
      {{"cuGraphInstantiateWithFlags"}, {"cuGraphExecDestroy"}}};

  ForeignMemory foreign_{TELEGRAD_FAKE_CUDA, "cuda", 8};
  FakeCuda fake_;
  FailingLibrary library_{TELEGRAD_FAILING_CUDA, TELEGRAD_FAKE_CUDA};
  ProgramImage next_ = NextImage();
};

TEST_F(RefusingCuda, EveryCall) {
  ASSERT_TRUE(library_.works());
  next_.signature.local_bytes = 60 << 10;  // has to be asked for
  Refusing refusing(library_, Driver(), kInvalidValue, balances_);
  EXPECT_GT(refusing.FailEachCall(), 200);
  EXPECT_THAT(refusing.uncalled(),
              ::testing::IsSubsetOf({"cuGetErrorName", "cuGetErrorString", "cuDeviceGetName",
                                     "cuDeviceGetPCIBusId", "cuDeviceGetUuid_v2",
                                     "cuCtxDisablePeerAccess", "cuDevicePrimaryCtxReset_v2",
                                     "cuStreamQuery", "cuLaunchHostFunc", "cuEventQuery"}));
}

TEST_F(RefusingCuda, OtherErrors) {
  ASSERT_TRUE(library_.works());
  for (const int error : {2, 700}) {
    SCOPED_TRACE(error);
    Refusing refusing(library_, Driver(), error, balances_);
    EXPECT_GT(refusing.FailEachCall({}, Every(60), error), 200);
  }
}

// Copies between the GPUs arrive wrong while one reaches the memory of the other.
TEST_F(RefusingCuda, WhileADeviceIsLostAndComesBack) {
  ASSERT_TRUE(library_.works());
  fake_.Set("corrupt_peer", 1);
  for (const int error : kSampled) {
    SCOPED_TRACE(error);
    Refusing refusing(library_, Driver(), error, balances_, &LiveTwice);
    EXPECT_GT(refusing.FailEachCall({}, Every(100), error), 200);
    for (const char* called : {"cuCtxDisablePeerAccess", "cuDevicePrimaryCtxReset_v2"}) {
      EXPECT_THAT(refusing.uncalled(), ::testing::Not(::testing::Contains(called)));
    }
  }
}

// The driver of a GPU that writes no words is asked how far it is.
TEST_F(RefusingCuda, EveryQuestion) {
  fake_.Set("stream_words", 0);
  ASSERT_TRUE(library_.works());
  Refusing refusing(library_, Driver(), kInvalidValue, {});
  EXPECT_GT(refusing.FailEachCall({"cuEventQuery", "cuEventRecord"}), 20);
}

class RefusingHip : public ::testing::Test {
 protected:
  static constexpr int kInvalidValue = 1;

  void SetUp() override {
    fake_.Set("virtual_memory", 1);
    ASSERT_TRUE(library_.works());
    const auto image = NextHip();
    ASSERT_TRUE(image.ok()) << image.status();
    next_ = *image;
  }
  RefusingDriver Driver() {
    return {.open =
                [](std::vector<std::string>* notes) {
                  return OpenHips({.library = TELEGRAD_FAILING_HIP, .memory_limit = 4 * kChunk},
                                  notes);
                },
            .next = next_,
            .handle = foreign_.handle(),
            .chunk = kChunk,
            .fault = [this](int launches) { fake_.Set("fault_launch", launches); },
            .count = [this](const char* counter) { return fake_.Count(counter); }};
  }

  const ForeignMemory foreign_{TELEGRAD_FAKE_HIP, "hip", 8};
  FakeHip fake_;
  FailingLibrary library_{TELEGRAD_FAILING_HIP, TELEGRAD_FAKE_HIP};
  ProgramImage next_;
  const std::vector<Balance> balances_ = {
      {{"hipStreamCreateWithFlags"}, {"hipStreamDestroy"}},
      {{"hipEventCreateWithFlags"}, {"hipEventDestroy"}},
      {{"hipMalloc"}, {"hipFree"}},
      {{"hipMemAddressReserve"}, {"hipMemAddressFree"}},
      {{"hipMemCreate"}, {"hipMemRelease"}},
      {{"hipMemMap"}, {"hipMemUnmap"}},
      {{"hipIpcOpenMemHandle"}, {"hipIpcCloseMemHandle"}},
      {{"hipHostMalloc"}, {"hipHostFree"}},
      {{"hipHostRegister"}, {"hipHostUnregister"}},
      {{"hipModuleLoadData"}, {"hipModuleUnload"}},
      {{"hipGraphCreate"}, {"hipGraphDestroy"}},
      {{"hipGraphInstantiateWithFlags"}, {"hipGraphExecDestroy"}}};
};

TEST_F(RefusingHip, EveryCall) {
  Refusing refusing(library_, Driver(), kInvalidValue, balances_);
  EXPECT_GT(refusing.FailEachCall(), 200);
  EXPECT_THAT(
      refusing.uncalled(),
      ::testing::IsSubsetOf({"hipDrvGetErrorName", "hipDrvGetErrorString", "hipDeviceGetName",
                             "hipDeviceDisablePeerAccess", "hipDeviceReset", "hipStreamQuery",
                             "hipLaunchHostFunc", "hipEventQuery"}));
}

TEST_F(RefusingHip, OtherErrors) {
  for (const int error : {2, 700}) {
    SCOPED_TRACE(error);
    Refusing refusing(library_, Driver(), error, balances_);
    EXPECT_GT(refusing.FailEachCall({}, Every(60), error), 200);
  }
}

TEST_F(RefusingHip, WhileADeviceIsLostAndComesBack) {
  fake_.Set("corrupt_peer", 1);
  for (const int error : kSampled) {
    SCOPED_TRACE(error);
    Refusing refusing(library_, Driver(), error, balances_, &LiveTwice);
    EXPECT_GT(refusing.FailEachCall({}, Every(100), error), 200);
    for (const char* called : {"hipDeviceDisablePeerAccess", "hipDeviceReset"}) {
      EXPECT_THAT(refusing.uncalled(), ::testing::Not(::testing::Contains(called)));
    }
  }
}

// A download of which the driver does not mark the end may still land in pinned memory when the
// next copy goes through that.
TEST_F(RefusingCuda, TheNextCopyAwaitsWhatHasNoEvent) {
  ASSERT_TRUE(library_.works());
  const auto host = OpenHost({.index = 7});
  std::vector<std::string> notes;
  const auto devices = Driver().open(&notes);
  ASSERT_FALSE(devices.empty());
  Device& device = *devices[0];
  const BufferView a = Whole(*device.Alloc(1000)), b = Whole(*device.Alloc(1000));
  const std::string old_bytes(1000, 'a'), new_bytes(1000, 'b');
  EXPECT_EQ(Copy(device, a, HostBuffer(*host, old_bytes))->Wait(), absl::OkStatus());
  EXPECT_EQ(Copy(device, b, HostBuffer(*host, old_bytes))->Wait(), absl::OkStatus());
  fake_.Set("delay_us", 30'000);
  constexpr int kChunks = 4;  // that copies use in turn
  for (int i = 0; i < 8; ++i) {
    library_.Fail("cuEventRecord", library_.Calls("cuEventRecord") + 1, kInvalidValue);
    const auto failed = Copy(device, HostBuffer(*host, old_bytes), a);
    absl::StatusOr<TimelinePoint> uploaded;
    for (int k = 0; k < kChunks; ++k) uploaded = Copy(device, b, HostBuffer(*host, new_bytes));
    EXPECT_THAT(failed->Wait().ToString(), ::testing::HasSubstr("cuEventRecord"));
    ASSERT_EQ(uploaded->Wait(), absl::OkStatus());
    const BufferView out = HostBuffer(*host, old_bytes);
    ASSERT_EQ(Copy(device, out, b)->Wait(), absl::OkStatus());
    ASSERT_EQ(Bytes(out), new_bytes);
  }
  EXPECT_EQ(device.Health(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
