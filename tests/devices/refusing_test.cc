// A driver's library that refuses: each of its functions fails at its n-th call, for all n that a
// device's life has. That is a clear error of whatever met it, which names the function; nothing
// hangs, what was made is given back, and what succeeds is right.
#include <functional>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/failing_fixture.h"
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

constexpr absl::Duration kHangLimit = absl::Seconds(20);

struct RefusingDriver {
  std::function<std::vector<std::unique_ptr<Device>>(std::vector<std::string>*)> open;
  ProgramImage next;  // adds 1 to the byte of its iteration
};

// Opens a device, moves bytes there, between two of its buffers and back, and runs a program twice,
// once traced.
Life Live(const RefusingDriver& driver, Device& host) {
  Life life;
  auto devices = driver.open(&life.said);
  if (devices.empty()) return life;
  life.opened = true;
  Device& device = *devices[0];
  const auto work = [&]() -> absl::Status {
    TG_ASSIGN_OR_RETURN(const auto program, device.Load(driver.next));
    TG_ASSIGN_OR_RETURN(auto first, device.Alloc(4));
    TG_ASSIGN_OR_RETURN(auto second, device.Alloc(4));
    const BufferView a = Whole(first), b = Whole(second);
    TG_ASSIGN_OR_RETURN(const TimelinePoint there, Copy(device, a, HostBuffer(host, "aceg")));
    Command next;
    next.launch.program = program;
    next.launch.arguments = {{0, 0}};
    next.launch.iterations = 4;
    TG_ASSIGN_OR_RETURN(const auto commands, device.Encode({next, next}));
    const TimelinePoint waits[] = {there};
    TG_ASSIGN_OR_RETURN(const TimelinePoint ran, device.queue().Submit(commands, {a}, waits));
    const auto trace = std::make_shared<RunTrace>();
    TG_ASSIGN_OR_RETURN(const TimelinePoint traced,
                        device.queue().Submit(commands, {a}, waits, trace));
    TG_RETURN_IF_ERROR(ran.Wait());
    TG_RETURN_IF_ERROR(traced.Wait());
    TG_ASSIGN_OR_RETURN(const TimelinePoint moved, Copy(device, b, a));
    TG_RETURN_IF_ERROR(moved.Wait());
    const BufferView out = HostBuffer(host, "????");
    TG_ASSIGN_OR_RETURN(const TimelinePoint back, Copy(device, out, b));
    TG_RETURN_IF_ERROR(back.Wait());
    life.read = Bytes(out);
    return absl::OkStatus();
  };
  if (const absl::Status status = work(); !status.ok()) life.said.push_back(status.ToString());
  life.healthy = device.Health().ok();
  return life;
}

// Functions that make something, and those that give it back.
struct Balance {
  std::vector<std::string> made, released;
};

class Refusing {
 public:
  Refusing(FailingLibrary& library, RefusingDriver driver, int error, std::vector<Balance> balances)
      : library_(library),
        driver_(std::move(driver)),
        error_(error),
        balances_(std::move(balances)) {}

  // Fails every call once; how many there were.
  int64_t FailEachCall() {
    library_.Reset();
    const Life whole = Live(driver_, *host_);
    EXPECT_EQ(whole.read, "egik") << (whole.said.empty() ? "" : whole.said[0]);
    ExpectBalance("nothing refused");
    std::vector<std::pair<std::string, int64_t>> calls;
    for (const std::string& name : library_.Names()) calls.emplace_back(name, library_.Calls(name));
    int64_t all = 0;
    for (const auto& [name, count] : calls) {
      for (int64_t n = 1; n <= count; ++n, ++all) FailOne(name, n);
    }
    return all;
  }

 private:
  void FailOne(const std::string& name, int64_t n) {
    const std::string what = StrCat(name, ", call ", n);
    SCOPED_TRACE(what);
    library_.Reset();
    library_.Fail(name, n, error_);
    const Life life = Live(driver_, *host_);
    if (library_.Calls(name) < n) return;  // calls differ from life to life where threads look
    if (!life.read.empty()) {
      EXPECT_EQ(life.read, "egik");
    } else {
      std::string said;
      for (const std::string& text : life.said) StrAppend(&said, text, "\n");
      EXPECT_NE(said.find(name), std::string::npos) << said;
    }
    if (life.healthy) ExpectBalance(what);
  }

  // A call to release what it had made counts, also where it is the one that was refused.
  void ExpectBalance(const std::string& what) {
    for (const Balance& balance : balances_) {
      int64_t made = 0, released = 0;
      for (const std::string& name : balance.made) made += library_.Succeeded(name);
      for (const std::string& name : balance.released) released += library_.Calls(name);
      EXPECT_EQ(made, released) << balance.made[0] << "; " << what;
    }
  }

  FailingLibrary& library_;
  const RefusingDriver driver_;
  const int error_;
  const std::vector<Balance> balances_;
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

}  // namespace
}  // namespace telegrad
