// The drivers that the suite of conformance.h tests, and how each is opened.
#include <signal.h>

#include <atomic>

#include "devices/disk/disk_device.h"
#include "devices/hosted/hosted_device.h"
#include "devices/null/null_device.h"
#include "devices/worker/worker_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/devices/conformance.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/failing_fixture.h"
#include "tests/devices/hip_fixture.h"
#include "tests/opencl/opencl_fixture.h"
#ifdef FAKE_PTXAS  // not where the suite travels to other machines
#include "tests/nv/nv_fixture.h"
#endif
#ifdef TELEGRADD  // where there is gRPC
#include "devices/remote/remote_device.h"
#include "engine/ir/graph.h"
#include "engine/wire/graph_bytes.h"
#include "tests/server/process.h"
#endif

namespace telegrad {
namespace {

const std::filesystem::path& DiskRoot() {
  static const TemporaryDirectory directory;
  return directory.path();
}

// The first GPU that `open` finds, CUDA's or HIP's.
template <typename Options>
using OpenAll = std::vector<std::unique_ptr<Device>> (*)(const Options&, std::vector<std::string>*);

template <typename Options>
std::unique_ptr<Device> OpenFirst(OpenAll<Options> open, Options options,
                                  const QueueLimits& limits) {
  options.devices = 1;
  options.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  auto devices = open(options, nullptr);
  EXPECT_EQ(devices.size(), 1u);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

// Why it finds none; "" where it does.
template <typename Options>
std::string WhyNone(OpenAll<Options> open) {
  std::vector<std::string> notes;
  if (!open({.devices = 1}, &notes).empty()) return "";
  return notes.empty() ? "no GPU" : notes[0];
}

#ifdef FAKE_PTXAS
std::unique_ptr<fakes::FakeDriver>& RawDriver() {
  static std::unique_ptr<fakes::FakeDriver> driver;
  return driver;
}

void FaultRaw() {
  RawDriver()->Locked([] { RawDriver()->gpu.fault_in = 1; });
}

// A raw GPU with the fake kernel driver that it runs on.
std::unique_ptr<Device> OpenRaw(const QueueLimits& limits) {
  std::unique_ptr<fakes::FakeDriver>& driver = RawDriver();
  driver = std::make_unique<fakes::FakeDriver>();
  driver->Start();
  NvOptions options = FakeNvOptions(*driver);
  options.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  std::vector<std::string> notes;
  auto devices = OpenNvs(options, &notes);
  EXPECT_EQ(devices.size(), 1u) << (notes.empty() ? "" : notes[0]);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

absl::StatusOr<ProgramImage> PlaceCubin() {
  TG_ASSIGN_OR_RETURN(ProgramImage image, CubinOf(PlacePtx("8.0", "sm_90a"), "place"));
  image.signature = PlaceSignature();
  return image;
}
#endif

// Those of the fake libraries, which they reset when they are first asked for.
FakeCuda& ControlsOfCuda() {
  static FakeCuda* const fake = new FakeCuda();
  return *fake;
}
FakeHip& ControlsOfHip() {
  static FakeHip* const fake = new FakeHip();
  return *fake;
}

// A GPU of the fake library, whose memory is the library's, and whose events are asked, or whose
// memory is mapped, and whose streams write words. `mig`: see mig_units.h.
TestedDriver FakeNvidia(std::string name, bool is_virtual, int64_t mig = 0) {
  return {.name = std::move(name),
          .open =
              [is_virtual, mig](const QueueLimits& limits) {
                // What devices there are, the driver finds when it is first started.
                if (ControlsOfCuda().Get("mig") != mig) ControlsOfCuda().Reset();
                ControlsOfCuda().Set("mig", mig);
                ControlsOfCuda().Set("virtual_memory", is_virtual ? 1 : 0);
                ControlsOfCuda().Set("stream_words", is_virtual ? 1 : 0);
                return OpenFirst(&OpenCudas, FakeOptions(), limits);
              },
          .next = &NextImage,
          .place = &CudaPlace,
          .box = &CudaBox,
          .unbox = &CudaUnbox,
          .fault = [] { ControlsOfCuda().Set("fault_launch", 1); },
          .hang = [] { ControlsOfCuda().Set("hang_launch", 1); },
          .release = [] { ControlsOfCuda().Release(); },
          .given_copies = [] { return ControlsOfCuda().Count("given_copies"); },
          .pinned_blocks = [] { return ControlsOfCuda().Count("live_host_allocations"); },
          .problems = [] { return Unasked(ControlsOfCuda().Problems()); },
          .queues = 3};
}
constexpr char kNoneOfAmd[] = "AMD's processors have none";

TestedDriver FakeAmd(std::string name, int64_t processor, const char* arch, bool is_virtual) {
  return {.name = std::move(name),
          .open =
              [processor, is_virtual](const QueueLimits& limits) {
                ControlsOfHip().Set("processor", processor);
                ControlsOfHip().Set("virtual_memory", is_virtual ? 1 : 0);
                ControlsOfHip().Set("stream_words", is_virtual ? 1 : 0);
                return OpenFirst(&OpenHips, FakeHipOptions(), limits);
              },
          .next = [arch] { return NextHip(arch); },
          .place = [arch] { return HipPlace(arch); },
          .fault = [] { ControlsOfHip().Set("fault_launch", 1); },
          .hang = [] { ControlsOfHip().Set("hang_launch", 1); },
          .release = [] { ControlsOfHip().Release(); },
          .given_copies = [] { return ControlsOfHip().Count("given_copies"); },
          .pinned_blocks = [] { return ControlsOfHip().Count("live_host_allocations"); },
          .problems = [] { return Unasked(ControlsOfHip().Problems()); },
          .no_tensor_maps = kNoneOfAmd,
          .queues = 3};
}

std::unique_ptr<Device> OpenFirstOpenCl(const QueueLimits& limits) {
  return OpenOpenClDevice(
      {.memory_limit = kLimit, .queue_capacity = limits.capacity, .wait_limit = limits.wait_limit});
}

absl::StatusOr<ProgramImage> OpenClNext() {
  return Compile(kNextOpenCl, "next", OpenOpenClDevice()->target(),
                 {.opencl_library = OpenClLibrary()});
}
absl::StatusOr<ProgramImage> OpenClPlace() {
  return Compile(OpenClPlaceText(), "place", OpenOpenClDevice()->target(),
                 {.opencl_library = OpenClLibrary()});
}

#ifdef TELEGRAD_FAILING_OPENCL
// Between the driver and the loader.
FailingLibrary& ControlsOfOpenCl() {
  static auto* const library = new FailingLibrary(TELEGRAD_FAILING_OPENCL, OpenClLibrary());
  return *library;
}

std::unique_ptr<Device> OpenFaultyOpenCl(const QueueLimits& limits) {
  ControlsOfOpenCl().Reset();
  auto devices = OpenOpenCls({.library = TELEGRAD_FAILING_OPENCL,
                              .devices = 1,
                              .memory_limit = kLimit,
                              .queue_capacity = limits.capacity,
                              .wait_limit = limits.wait_limit,
                              .inexact = OpenClIsInexact()},
                             nullptr);
  EXPECT_EQ(devices.size(), 1u);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

void FaultOpenCl() {
  constexpr int kNotAvailable = -2;  // CL_DEVICE_NOT_AVAILABLE
  ControlsOfOpenCl().Reset();
  ControlsOfOpenCl().Fail("clEnqueueNDRangeKernel", 1, kNotAvailable);
}
#endif

#ifdef DEVICE_WORKER
// The program of its workers is a link, which is away while none is to start.
struct Workers {
  std::filesystem::path program() const { return folder.path() / "worker"; }
  void Repair() const {
    std::error_code ignored;
    std::filesystem::create_symlink(DEVICE_WORKER, program(), ignored);
  }
  // A start is told a moment after the worker is there.
  void Fault() {
    std::filesystem::remove(program());
    while (pid == 0) std::this_thread::yield();
    kill(pid.exchange(0), SIGKILL);
  }

  const TemporaryDirectory folder;
  std::atomic<pid_t> pid{0};  // of the last that has started; 0: it was ended
};

Workers& TheWorkers() {
  static Workers workers;
  return workers;
}
Workers& DriverWorkers() {
  static Workers workers;
  return workers;
}

// The first device of a driver that is opened in a process.
std::unique_ptr<Device> OpenInWorker(HostedOptions options, const QueueLimits& limits) {
  DriverWorkers().Repair();
  DriverWorkers().pid = 0;
  options.executable = DriverWorkers().program();
  options.setup.devices = 1;
  options.setup.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  options.on_event = [](const WorkerEvent& event) {
    if (event.pid != 0) DriverWorkers().pid = event.pid;
  };
  std::vector<std::string> notes;
  auto devices = OpenHosted(options, &notes);
  EXPECT_EQ(devices.size(), 1u) << (notes.empty() ? "" : notes[0]);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

// As the row of the driver itself, but for what a fake tells and does in this process only.
TestedDriver InWorker(TestedDriver row, const HostedOptions& options) {
  row.name += options.by_tenant ? "_in_worker_of_tenant" : "_in_worker";
  row.open = [options](const QueueLimits& limits) { return OpenInWorker(options, limits); };
  row.fault = [] { DriverWorkers().Fault(); };
  row.repair = [] { DriverWorkers().Repair(); };
  row.hang = row.release = nullptr;
  row.given_copies = row.pinned_blocks = nullptr;
  row.problems = nullptr;
  return row;
}

TestedDriver OpenClInWorker(bool by_tenant) {
  return InWorker(
      {.name = "opencl",
       .open = nullptr,
       .next = &OpenClNext,
       .place = &OpenClPlace,
       .absent = [] { return WhyNoOpenCl(); },
       .no_tensor_maps = "OpenCL C has none",
       .queues = 2},
      {.prefix = "OPENCL",
       .setup = {.driver = "opencl", .library = OpenClLibrary(), .inexact = OpenClIsInexact()},
       .by_tenant = by_tenant});
}

std::unique_ptr<Device> OpenWorkers(const QueueLimits& limits) {
  TheWorkers().Repair();
  TheWorkers().pid = 0;
  auto device = OpenWorkerDevice({.cpu = {.threads = 2,
                                          .memory_limit = kLimit,
                                          .queue_capacity = limits.capacity,
                                          .wait_limit = limits.wait_limit},
                                  .executable = TheWorkers().program(),
                                  .on_event = [](const WorkerEvent& event) {
                                    if (event.pid != 0) TheWorkers().pid = event.pid;
                                  }});
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}
#endif

#ifdef TELEGRADD
// A daemon that has no other client.
struct FarDaemon {
  void Start() {
    daemon = nullptr;
    daemon = std::make_unique<testing::Process>(
        TELEGRADD, std::vector<std::string>{"--listen", address, "--cuda-devices", "0",
                                            "--cpu-memory", StrCat(kLimit), "--log-level", "off"});
    address = daemon->Line("listening on ");
    daemon->ReadOn();
  }

  std::string address;
  std::unique_ptr<testing::Process> daemon;
};

FarDaemon& TheFarDaemon() {
  static FarDaemon daemon;
  return daemon;
}

// Its first device.
std::unique_ptr<Device> OpenFar(const QueueLimits& limits) {
  TheFarDaemon().address = "127.0.0.1:0";
  TheFarDaemon().Start();
  RemoteOptions options{.name = "far",
                        .address = TheFarDaemon().address,
                        .queue_capacity = limits.capacity,
                        .wait_limit = limits.wait_limit};
  if (limits.impatient) {
    options.interval = absl::Milliseconds(20);
    options.grace = absl::Milliseconds(100);
  }
  auto devices = OpenRemote(options, nullptr);
  EXPECT_TRUE(devices.ok()) << devices.status();
  return devices.ok() ? std::move((*devices)[0]) : nullptr;
}

// The same as a graph: its slot of one byte is one more.
absl::StatusOr<ProgramImage> GraphNext() {
  Graph g;
  const UOp x = g.Param(0, DType::kUInt8, Shape{1});
  const UOp next = g.Make(Op::kAdd, {x, g.Const(DType::kUInt8, 1)});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {x, next})});
  return ProgramImage{.name = "next", .binary = GraphBytes(sink)};
}

absl::StatusOr<ProgramImage> GraphAdds() {
  Graph g;
  const UOp x = g.Param(0, DType::kInt64, Shape{1});
  const UOp n =
      g.Make(Op::kVar, {}, std::vector<int64_t>{7, 0, 1000, 1});  // id, min, max, multiple
  const UOp sum = g.Make(Op::kAdd, {x, n});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {x, sum})});
  return ProgramImage{.name = "adds", .binary = GraphBytes(sink)};
}
#endif

}  // namespace

std::vector<TestedDriver> AllDrivers() {
  return {
#ifdef TELEGRADD
      {.name = "remote",
       .open = &OpenFar,
       .next = &GraphNext,
       .adds = &GraphAdds,
       .fault = [] { TheFarDaemon().daemon = nullptr; },
       .repair = [] { TheFarDaemon().Start(); },
       .lost_name = "far",
       .no_scalars = "a graph has variables, not scalars, and its grids are its own device's"},
#endif
      {.name = "cpu",
       .open =
           [](const QueueLimits& limits) {
             return *OpenCpu({.threads = 2,
                              .memory_limit = kLimit,
                              .queue_capacity = limits.capacity,
                              .wait_limit = limits.wait_limit});
           }},
#ifdef DEVICE_WORKER  // not where the suite travels to other machines
      {.name = "worker",
       .open = &OpenWorkers,
       .fault = [] { TheWorkers().Fault(); },
       .repair = [] { TheWorkers().Repair(); },
       .keeps_memory = true},
#endif
      {.name = "null",
       .open = [](const QueueLimits& limits) -> std::unique_ptr<Device> {
         return OpenNull({.memory_limit = kLimit,
                          .queue_capacity = limits.capacity,
                          .wait_limit = limits.wait_limit});
       },
       .place = &CudaPlace,
       .box = &CudaBox,
       .unbox = &CudaUnbox,
       .no_contents = "a null device runs nothing, so its copies leave no bytes"},
      {.name = "null_with_copy_queues",
       .open = [](const QueueLimits& limits) -> std::unique_ptr<Device> {
         return OpenNull({.memory_limit = kLimit,
                          .copy_queues = 2,
                          .queue_capacity = limits.capacity,
                          .wait_limit = limits.wait_limit});
       },
       .place = &CudaPlace,
       .no_contents = "a null device runs nothing, so its copies leave no bytes",
       .queues = 3},
      {.name = "disk",
       .open =
           [](const QueueLimits& limits) {
             return *OpenDisk({.name = "test",
                               .directory = DiskRoot(),
                               .growth = kLimit,
                               .queue_capacity = limits.capacity,
                               .wait_limit = limits.wait_limit});
           },
       .no_programs = "a disk copies only"},
      {.name = "npy",
       .open = [](const QueueLimits& limits) -> std::unique_ptr<Device> {
         return OpenNpy({.queue_capacity = limits.capacity, .wait_limit = limits.wait_limit});
       },
       .no_alloc = "host arrays belong to the caller; they are imported",
       .no_programs = "host arrays are copied only"},
      FakeNvidia("cuda_fake", /*is_virtual=*/false),
      FakeNvidia("cuda_fake_virtual_memory", /*is_virtual=*/true),
      // The first of two instances of the first GPU.
      FakeNvidia("cuda_fake_mig_instance", /*is_virtual=*/true, /*mig=*/2),
      {.name = "cuda",
       .open = [](const QueueLimits& limits) { return OpenFirst(&OpenCudas, {}, limits); },
       .next = &NextImage,
       .place = &CudaPlace,
       .box = &CudaBox,
       .unbox = &CudaUnbox,
       .absent = [] { return WhyNone(&OpenCudas); }},
#ifdef FAKE_PTXAS
      {.name = "nv_fake",
       .open = &OpenRaw,
       .next = &NextCubin,
       .place = &PlaceCubin,
       .fault = &FaultRaw,
       .no_tensor_maps = "only NVIDIA's own driver encodes them"},
#endif
      FakeAmd("hip_fake_wave64", 0x942, "gfx942", /*is_virtual=*/false),
      FakeAmd("hip_fake_wave32", 0x1100, "gfx1100", /*is_virtual=*/false),
      FakeAmd("hip_fake_virtual_memory", 0x942, "gfx942", /*is_virtual=*/true),
      {.name = "hip",
       .open = [](const QueueLimits& limits) { return OpenFirst(&OpenHips, {}, limits); },
       .next = [] { return NextHip(OpenFirst(&OpenHips, {}, {})->target().arch); },
       .place = [] { return HipPlace(OpenFirst(&OpenHips, {}, {})->target().arch); },
       .absent = [] { return WhyNone(&OpenHips); },
       .no_tensor_maps = kNoneOfAmd},
      {.name = "opencl",
       .open = &OpenFirstOpenCl,
       .next = &OpenClNext,
       .place = &OpenClPlace,
       .absent = [] { return WhyNoOpenCl(); },
       .no_tensor_maps = "OpenCL C has none"},
#ifdef DEVICE_WORKER
      InWorker(FakeNvidia("cuda_fake", /*is_virtual=*/false),
               {.prefix = "CUDA", .setup = {.driver = "cuda", .library = TELEGRAD_FAKE_CUDA}}),
      InWorker(FakeNvidia("cuda_fake", /*is_virtual=*/false),
               {.prefix = "CUDA",
                .setup = {.driver = "cuda", .library = TELEGRAD_FAKE_CUDA},
                .by_tenant = true}),
      InWorker(FakeAmd("hip_fake_wave64", 0x942, "gfx942", /*is_virtual=*/false),
               {.prefix = "HIP", .setup = {.driver = "hip", .library = TELEGRAD_FAKE_HIP}}),
      OpenClInWorker(/*by_tenant=*/false),
      OpenClInWorker(/*by_tenant=*/true),
#endif
#ifdef TELEGRAD_FAILING_OPENCL
      {.name = "opencl_faulty",
       .open = &OpenFaultyOpenCl,
       .next = &OpenClNext,
       .place = &OpenClPlace,
       .fault = &FaultOpenCl,
       .absent = [] { return WhyNoOpenCl(); },
       .no_tensor_maps = "OpenCL C has none"},
#endif
  };
}

}  // namespace telegrad
