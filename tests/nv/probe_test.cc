// The probe walks all its steps on a fake GH100 with driver 580, and whatever goes wrong there,
// says which step it was, skips those that need it and gives everything back.
#include "devices/nv/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "devices/nv/store_42.h"
#include "tests/fakes/nv/fake_driver.h"
#include "tests/fakes/nv/fields.h"

namespace telegrad::nv {
namespace {

using fakes::FakeDriver;
using fakes::FakeGpu;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr int kSteps = 30;

// store_42 by hand, from what its code loads: the stack's address, the word at 0x208, its
// parameter.
std::string RunStore42(FakeGpu& gpu, const std::byte* constants, size_t bytes) {
  if (bytes < 0x218) return "the constant bank is too small";
  if (fakes::Get<uint64_t>(constants, 0x28) == 0) return "no stack";
  if (fakes::Get<uint64_t>(constants, 0x208) != 0) return "a descriptor word that is not 0";
  std::byte* to = gpu.At(fakes::Get<uint64_t>(constants, 0x210), 4);
  if (!to) return "the kernel's store is not mapped";
  const uint32_t value = 42;
  std::memcpy(to, &value, 4);
  return "";
}

struct Walk {
  ProbeReport report;
  std::vector<std::string> lines;
  std::vector<int> failed, skipped;
};

void Prepare(FakeDriver& driver) {
  driver.gpu.kernel.code.assign(std::begin(kStore42Code), std::end(kStore42Code));
  driver.gpu.kernel.registers = 8;
  driver.gpu.kernel.run = RunStore42;
}

Walk Probe(FakeDriver& driver, ProbeOptions options = {}) {
  Prepare(driver);
  Walk walk;
  walk.report = RunProbe(driver, options, [&](const StepReport& step) {
    walk.lines.push_back(StepLine(step));
    if (step.result == StepResult::kFailed) walk.failed.push_back(step.number);
    if (step.result == StepResult::kSkipped) walk.skipped.push_back(step.number);
  });
  return walk;
}

TEST(Probe, WalksAllStepsAndGivesEverythingBack) {
  FakeDriver driver;
  const Walk walk = Probe(driver);
  for (const std::string& line : walk.lines) std::printf("%s\n", line.c_str());
  EXPECT_THAT(driver.gpu.errors, IsEmpty());
  EXPECT_THAT(walk.lines, SizeIs(kSteps));
  EXPECT_THAT(walk.failed, IsEmpty());
  EXPECT_THAT(walk.skipped, IsEmpty());
  EXPECT_EQ(driver.gpu.releases, 3);
  EXPECT_EQ(driver.gpu.copies, 1);
  EXPECT_EQ(driver.gpu.kernels, 1);
  EXPECT_THAT(walk.report.left, IsEmpty());
  EXPECT_THAT(driver.Live(), IsEmpty());
  EXPECT_EQ(ExitCode(walk.report), kProbeDone);
}

TEST(Probe, WithoutDriverThereIsNoDeviceAndNoError) {
  FakeDriver driver;
  driver.faults.missing = {"/dev/nvidiactl"};
  const Walk walk = Probe(driver);
  EXPECT_EQ(walk.report.no_device, "no NVIDIA kernel driver: /dev/nvidiactl is not there");
  EXPECT_THAT(walk.lines, IsEmpty());
  EXPECT_EQ(ExitCode(walk.report), kProbeDone);
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, WithoutCardThereIsNoDevice) {
  FakeDriver driver;
  driver.cards = 0;
  const Walk walk = Probe(driver);
  EXPECT_THAT(walk.report.no_device, HasSubstr("no NVIDIA GPU"));
  EXPECT_EQ(ExitCode(walk.report), kProbeDone);
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, AskedForACardThatIsNotThere) {
  FakeDriver driver;
  const Walk walk = Probe(driver, {.gpu = 1});
  EXPECT_THAT(walk.failed, ElementsAre(5));
  EXPECT_THAT(walk.lines[4], HasSubstr("there is no GPU 1: the driver has 1"));
  EXPECT_EQ(ExitCode(walk.report), kProbeFailed);
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, RefusesAnotherBranchUnlessForced) {
  for (const char* version : {"570.211.01", "590.48.01", "58.1", "5800.1", ""}) {
    FakeDriver driver;
    driver.version = version;
    const Walk walk = Probe(driver);
    EXPECT_THAT(walk.failed, ElementsAre(4)) << version;
    EXPECT_THAT(walk.lines[3], HasSubstr("refused (--force goes on)"));
    EXPECT_THAT(walk.lines[kSteps - 1], HasSubstr("skipped  kernel by QMD: because of step 4"));
    EXPECT_EQ(ExitCode(walk.report), kProbeRefused);
    EXPECT_THAT(driver.Live(), IsEmpty());
  }
  FakeDriver driver;
  driver.version = "590.48.01";
  const Walk walk = Probe(driver, {.force = true});
  EXPECT_THAT(walk.failed, IsEmpty());
  EXPECT_THAT(walk.lines[3], HasSubstr("going on by --force"));
}

TEST(Probe, SaysWhichFileIsDenied) {
  struct Case {
    const char* file;
    int step;
  };
  for (const Case& c : {Case{"/dev/nvidiactl", 1}, {"/dev/nvidia-uvm", 2}, {"/dev/nvidia0", 6}}) {
    FakeDriver driver;
    driver.faults.denied = {c.file};
    const Walk walk = Probe(driver);
    EXPECT_THAT(walk.failed, ElementsAre(c.step)) << c.file;
    EXPECT_THAT(walk.lines[c.step - 1], HasSubstr(c.file));
    EXPECT_THAT(walk.lines[c.step - 1], HasSubstr("Permission denied"));
    EXPECT_EQ(ExitCode(walk.report), kProbeFailed);
    EXPECT_THAT(driver.Live(), IsEmpty());
  }
}

TEST(Probe, WithoutUvmGoesAsFarAsItCan) {
  FakeDriver driver;
  driver.faults.missing = {"/dev/nvidia-uvm"};
  const Walk walk = Probe(driver);
  EXPECT_THAT(walk.failed, ElementsAre(2));
  // Objects, doorbell and memory do not need it; what is behind the address space does.
  EXPECT_THAT(walk.skipped, ElementsAre(13, 14, 15, 16, 17, 22, 23, 24, 25, 26, 27, 28, 29, 30));
  EXPECT_THAT(walk.lines[kSteps - 1], HasSubstr("because of step 2"));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, ANewerGpuIsNamedAsNotHopper) {
  FakeDriver driver;
  driver.classes = {0xC661, 0xC96F, 0xCDC0, 0xC9B5, 0x90F1, 0xA06C, 0x9067};
  const Walk walk = Probe(driver);
  EXPECT_THAT(walk.failed, ElementsAre(10));
  EXPECT_THAT(walk.lines[9], HasSubstr("not a Hopper"));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

// Every call that the walk makes fails once: with a status of the driver's, and without one.
TEST(Probe, EveryCallMayFail) {
  int calls = 0;
  std::vector<std::string> names;
  {
    FakeDriver driver;
    Probe(driver);
    calls = driver.calls();
    names = driver.call_names();
  }
  ASSERT_GT(calls, 60);
  int failed_walks = 0, left_walks = 0;
  for (const uint32_t status : {0x51u, 0xBEEFu, 0u}) {
    for (int call = 0; call < calls; ++call) {
      FakeDriver driver;
      driver.faults.fail_call = call;
      driver.faults.fail_status = status;
      const Walk walk = Probe(driver);
      const std::string what = names[call] + ", call " + std::to_string(call);
      ASSERT_THAT(walk.lines, SizeIs(kSteps)) << what;
      // A call of the walk fails one step; one of the way back leaves something; the one call that
      // may fail (UVM_MM_INITIALIZE) does neither.
      const bool tolerated = names[call] == "UVM 0x4b";
      EXPECT_EQ(walk.failed.size() + (walk.report.left.empty() ? 0 : 1), tolerated ? 0 : 1) << what;
      if (walk.failed.size() == 1) {
        ++failed_walks;
        const std::string& line = walk.lines[walk.failed[0] - 1];
        const bool has_status = names[call] != "CARD_INFO" && names[call] != "REGISTER_FD";
        EXPECT_THAT(line, HasSubstr(!has_status || status == 0 ? "Invalid argument"
                                    : status == 0x51 ? "NV_ERR_NO_MEMORY (0x51): out of memory"
                                                     : "RM status 0xbeef"))
            << what;
        for (const int skipped : walk.skipped) {
          EXPECT_THAT(walk.lines[skipped - 1],
                      HasSubstr("because of step " + std::to_string(walk.failed[0])))
              << what;
        }
        EXPECT_THAT(driver.Live(), IsEmpty()) << what;
        EXPECT_EQ(ExitCode(walk.report), kProbeFailed) << what;
      } else if (!tolerated) {
        ++left_walks;
        EXPECT_THAT(driver.Live(), Not(IsEmpty())) << what;
        EXPECT_EQ(ExitCode(walk.report), kProbeLeft) << what;
      } else {
        EXPECT_THAT(walk.lines[12], HasSubstr("goes on without UVM_MM_INITIALIZE")) << what;
      }
    }
  }
  EXPECT_GT(failed_walks, 3 * 35);
  EXPECT_GT(left_walks, 3 * 20);
}

// Nothing waits for ever: by the fake's own clock, of which each look takes a millisecond.
TEST(Probe, ALostDoorbellEndsAtTheDeadline) {
  FakeDriver driver;
  driver.faults.lose_doorbell = true;
  const int64_t start = driver.Ns();
  const Walk walk = Probe(driver, {.timeout_ns = 50'000'000});
  EXPECT_EQ(driver.Ns() - start, 100'000'000);  // the semaphore's wait and the copy's
  EXPECT_THAT(walk.failed, ElementsAre(28, 29));
  EXPECT_THAT(walk.skipped, ElementsAre(30));
  EXPECT_THAT(walk.lines[27],
              HasSubstr("the semaphore holds 0 where 1 is waited for, after 50 ms"));
  EXPECT_THAT(walk.lines[27], HasSubstr("error notifier is silent"));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, AGpuThatDoesNothingEndsAtTheDeadline) {
  FakeDriver driver;
  driver.faults.no_progress = true;
  const Walk walk = Probe(driver);
  EXPECT_THAT(walk.failed, ElementsAre(28, 29));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, AnErrorOfTheGpuIsNamed) {
  FakeDriver driver;
  Prepare(driver);
  Walk walk;
  const auto on_step = [&](const StepReport& step) {
    walk.lines.push_back(StepLine(step));
    if (step.result == StepResult::kFailed) walk.failed.push_back(step.number);
  };
  driver.gpu.kernel.registers = 9;  // the GPU expects another register count than the QMD says
  walk.report = RunProbe(driver, {}, on_step);
  EXPECT_THAT(walk.failed, ElementsAre(30));
  EXPECT_THAT(walk.lines[29], HasSubstr("error notifier says Xid 13"));
  EXPECT_THAT(driver.gpu.errors, ElementsAre("QMD REGISTER_COUNT is 8 where 9 is expected"));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

TEST(Probe, ACopyThatArrivesWrongIsSeen) {
  FakeDriver driver;
  driver.gpu.corrupt_copies = true;
  const Walk walk = Probe(driver);
  EXPECT_THAT(walk.failed, ElementsAre(29));
  EXPECT_THAT(walk.lines[28], HasSubstr("word 0 of the copy is"));
  EXPECT_THAT(driver.Live(), IsEmpty());
}

}  // namespace
}  // namespace telegrad::nv
