// nv_probe: says, step by step, how far the raw bring-up of an NVIDIA GPU gets on this machine.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "devices/nv/probe.h"
#include "engine/base/flag_pages.h"
#include "engine/base/flags.h"

namespace telegrad::nv {
namespace {

constexpr FlagRow kFlags[] = {
    {"gpu", 'g', FlagKind::kInt, "0", "N", "Number of the GPU, in the driver's order",
     Between(0, 31)},
    {"force", 'f', FlagKind::kBool, "false", "",
     "Continue with a driver of another branch than 580, whose structs may differ"},
    {"timeout", 't', FlagKind::kInt, "2", "SECONDS", "Time limit of a wait for the GPU",
     Between(1, 600)},
};

constexpr ProgramPage kPage = {
    .name = "nv_probe",
    .section = "8",
    .summary = "walks the bring-up of an NVIDIA GPU through its kernel driver",
    .arguments = "",
    .description = "nv_probe prints a line for each step and gives everything back.",
    .exit_codes = "",
    .flags = kFlags,
};

void PrintHelp() {
  std::printf(
      "Usage: nv_probe [FLAGS]\n"
      "Walks the bring-up of an NVIDIA Hopper GPU through its kernel driver, branch 580, without\n"
      "libcuda, and prints a line for each step. Gives everything back.\n\n%s\n"
      "Exit codes: 0 every step was ok, or there is no device; 1 a step failed; 2 wrong usage;\n"
      "3 a driver of another branch; 4 something could not be given back; 5 a call did not come\n"
      "back from the kernel.\n",
      FlagHelp(kFlags).c_str());
}

// A call that never comes back from the kernel must not hold the probe: the alarm ends it, and with
// the process the kernel closes its files.
void OnAlarm(int) {
  constexpr char kText[] = "nv_probe: the step behind the last line did not come back\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(kProbeStuck);
  _exit(kProbeStuck);
}

int Main(int argc, char** argv) {
  auto flags = Flags::Parse(kFlags, Arguments(argc, argv));
  if (!flags.ok()) {
    std::fprintf(stderr, "nv_probe: %s\n", std::string(flags.status().message()).c_str());
    return 2;
  }
  if (flags->help()) {
    PrintHelp();
    return 0;
  }
  if (const std::optional<int> code = PrintPage(kPage, *flags)) return *code;
  const int64_t gpu = flags->GetInt("gpu"), timeout = flags->GetInt("timeout");
  if (!flags->positional().empty()) {
    std::fprintf(stderr, "nv_probe: takes no arguments\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  signal(SIGALRM, OnAlarm);
  alarm(static_cast<unsigned>(60 + 4 * timeout));  // three waits, and the driver's own work

  const ProbeOptions options{.gpu = static_cast<int>(gpu),
                             .force = flags->GetBool("force"),
                             .timeout_ns = timeout * 1'000'000'000};
  const ProbeReport report = RunProbe(hcq::SystemOps(), options, [](const StepReport& step) {
    std::printf("%s\n", StepLine(step).c_str());
  });
  for (const std::string& what : report.left) {
    std::printf("could not be given back: %s\n", what.c_str());
  }
  if (!report.no_device.empty()) std::printf("%s\n", report.no_device.c_str());
  return ExitCode(report);
}

}  // namespace
}  // namespace telegrad::nv

int main(int argc, char** argv) { return telegrad::nv::Main(argc, argv); }
