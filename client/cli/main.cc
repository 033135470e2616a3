// telegrad: the command line of a Telegrad server. Its commands, their flags, --help and exit
// codes.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/terminal/printable.h"
#include "engine/base/flag_pages.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

constexpr FlagRow kTrainFlags[] = {
    {"data", 'd', FlagKind::kString, "tests/data/digits/digits.csv.gz", "FILE",
     "File of the images: gzip, 64 pixels and the label on each line"},
    {"epochs", 'e', FlagKind::kInt, "16", "N", "Number of passes over the training images",
     Between(0, 10'000)},
    {"batch", 'b', FlagKind::kInt, "64", "N", "Number of images in one step", Between(1, 1'024)},
    {"seed", 0, FlagKind::kInt, "1", "N",
     "Seed of the initial weights and of the order of the images", AtLeast(0)},
    {"save", 's', FlagKind::kString, "", "FILE",
     "File (safetensors) that weights and optimizer state are written to"},
    {"resume", 'r', FlagKind::kString, "", "FILE",
     "File of an earlier --save from which training continues"},
    {"plot", 0, FlagKind::kChoice, "auto", "auto|always|never",
     "Draw the loss of all steps at the end; auto means on terminals"},
};

constexpr FlagRow kRunFlags[] = {
    {"input", 'i', FlagKind::kList, "", "FILE",
     "File of an input of the model, ONNX TensorProto (.pb) or a tensor file of one tensor (.npy); "
     "one flag for each input, in the order of the model"},
    {"output", 'o', FlagKind::kList, "", "FILE",
     "File, .npy or .pb, that an output of the model is written to; one flag for each output, in "
     "the order of the model"},
    {"expect", 'x', FlagKind::kList, "", "FILE",
     "File with the expected value of an output; one flag for each output, in the order of the "
     "model; the command fails where they differ"},
    {"rtol", 0, FlagKind::kString, "1e-3", "X", "Relative tolerance of --expect and --verify"},
    {"atol", 0, FlagKind::kString, "1e-5", "X", "Absolute tolerance of --expect and --verify"},
    {"verify", 'v', FlagKind::kString, "", "DIR",
     "Folder of data sets: the model is run with each test_data_set_N/input_*.pb in it, and the "
     "outputs are compared with output_*.pb"},
    {"dim", 'd', FlagKind::kList, "", "NAME=MIN..MAX",
     "Sizes that a named dimension of the model may have, for all of which one import is made "
     "(default: an import for the shapes of each set of inputs)"},
    {"timeline", 't', FlagKind::kString, "", "FILE",
     "File that a timeline of the run is written to, for Perfetto (Chrome trace JSON)"},
    {"server-import", 0, FlagKind::kBool, "false", "",
     "Send the ONNX file unchanged, and have the server import it"},
};

constexpr FlagRow kExplainFlags[] = {
    {"shape", 's', FlagKind::kList, "", "NAME=AxBxC",
     "Shape of an input, in place of the shape in the model"},
    {"dim", 'd', FlagKind::kList, "", "NAME=N", "Size of a named dimension of the model"},
    {"threads", 0, FlagKind::kInt, "0", "N",
     "Number of threads that one launch is planned for; 0 means one for each core of this machine",
     Between(0, 4'096)},
    {"deterministic", 0, FlagKind::kBool, "false", "",
     "Explain what a daemon with --deterministic runs (docs/numerics.md)"},
    {"json", 'j', FlagKind::kBool, "false", "", "Print the explanation as a JSON object"},
    {"html", 0, FlagKind::kString, "", "FILE",
     "File that the explanation is written to as a page for browsers: kernels, fusion, memory and "
     "predicted time"},
};

constexpr FlagRow kCheckFlags[] = {
    {"shape", 's', FlagKind::kList, "", "NAME=AxBxC",
     "Shape of an input, in place of the shape in the model"},
    {"dim", 'd', FlagKind::kList, "", "NAME=N",
     "Size of a named dimension of the model; 1 where it is not given"},
};

constexpr FlagRow kTensorsFlags[] = {
    {"metadata", 'm', FlagKind::kBool, "false", "", "Print the metadata of the file too"},
};

constexpr FlagRow kUpFlags[] = {
    {"program", 0, FlagKind::kString, "", "FILE",
     "Daemon to start (default: telegradd beside this program, else in PATH)"},
    {"wait", 0, FlagKind::kInt, "60", "SECONDS", "Time limit of the daemon's start",
     Between(1, 3'600)},
};

constexpr FlagRow kDownFlags[] = {
    {"wait", 0, FlagKind::kInt, "60", "SECONDS", "Time limit of the daemon's end",
     Between(1, 3'600)},
};

constexpr FlagRow kBenchFlags[] = {
    {"sessions", 's', FlagKind::kInt, "1", "N", "Number of sessions, each with a thread",
     Between(1, 4'096)},
    {"seconds", 0, FlagKind::kInt, "5", "N", "Number of seconds in which runs are sent",
     Between(1, 86'400)},
    {"depth", 0, FlagKind::kInt, "1", "N",
     "Number of runs that each session has under way at a time, where --rate is 0",
     Between(1, 256)},
    {"rate", 0, FlagKind::kInt, "0", "N",
     "Number of runs that all sessions together send in each second, at fixed times (an open "
     "loop); "
     "0 means that a session sends a run when an earlier one of it has ended (a closed loop)",
     Between(0, 10'000'000)},
    {"elements", 0, FlagKind::kInt, "1024", "N",
     "Number of elements of the vector that a run computes, where --matrix is 0",
     Between(1, 1'000'000'000)},
    {"matrix", 0, FlagKind::kInt, "0", "N",
     "Number of rows of a square matrix that a run multiplies with itself; 0 means none",
     Between(0, 32'768)},
    {"token", 0, FlagKind::kList, "", "FILE",
     "File with the token of a tenant; the sessions are distributed over all tokens"},
    {"samples", 0, FlagKind::kString, "", "FILE",
     "File (CSV) that the due time and the end of each run are written to"},
};

constexpr FlagRow kTopFlags[] = {
    {"interval", 0, FlagKind::kInt, "1", "SECONDS", "Time between two updates", Between(1, 3'600)},
    {"times", 0, FlagKind::kInt, "0", "N",
     "Number of updates; 0 means until it is interrupted, or one where the output is not a "
     "terminal",
     Between(0, 1'000'000)},
};

constexpr Command kCommands[] = {
    {"up", "[-- FLAGS]", "starts a daemon on this machine; FLAGS are flags of telegradd", kUpFlags,
     &Up, /*connects=*/false},
    {"down", "", "stops the daemon that \"telegrad up\" started", kDownFlags, &Down,
     /*connects=*/false},
    {"run", "MODEL", "runs an ONNX model, or a plan that telegrad.torch.export saved", kRunFlags,
     &Run},
    {"check", "MODEL.onnx", "reports whether a model is supported, and every node that is not",
     kCheckFlags, &Check, /*connects=*/false},
    {"explain", "MODEL.onnx",
     "shows the kernels and the memory of a run of a model, with the reasons", kExplainFlags,
     &Explain, /*connects=*/false},
    {"train", "digits", "trains a small convolutional network on handwritten digits", kTrainFlags,
     &Train},
    {"devices", "", "lists the devices of the server", {}, &Devices},
    {"models",
     "[list|load|unload|status|statistics|try] [NAME]",
     "lists the models that the server serves, loads and unloads them, and tries them",
     {},
     &Models,
     /*connects=*/true,
     &ModelsDetails},
    {"tensors", "FILE", "lists the tensors of a safetensors, npy, npz, GGUF or PyTorch file",
     kTensorsFlags, &Tensors, /*connects=*/false},
    {"stats", "", "shows the counters of the server", {}, &Stats},
    {"bench", "", "sends many runs from many sessions, and prints percentiles", kBenchFlags,
     &Bench},
    {"top", "", "shows devices, queues and tenants repeatedly; for administrators", kTopFlags,
     &Top},
    {"admin",
     "WORD [ARGUMENT]",
     "shows sessions, tenants, queues, caches or threads, closes sessions, reloads, drains; for "
     "administrators",
     {},
     &Admin,
     /*connects=*/true,
     &AdminDetails},
};

// The flags of every command.
constexpr FlagRow kCommonFlags[] = {
    {"address", 'a', FlagKind::kString, "", "ADDRESS",
     "Address of the server, HOST:PORT or unix:PATH (default: TELEGRAD_ADDRESS, else the daemon of "
     "this machine, else 127.0.0.1:50055)"},
    {"tls-ca", 0, FlagKind::kString, "", "FILE",
     "PEM file with the authorities that sign the server's certificate; enables TLS (default: "
     "TELEGRAD_TLS_CA)"},
    {"tls-cert", 0, FlagKind::kString, "", "FILE",
     "PEM file with the certificate of this client (default: TELEGRAD_TLS_CERT)"},
    {"tls-key", 0, FlagKind::kString, "", "FILE",
     "PEM file with the private key that belongs to --tls-cert (default: TELEGRAD_TLS_KEY)"},
    {"tls-server-name", 0, FlagKind::kString, "", "NAME",
     "Name that the server's certificate must have (default: TELEGRAD_TLS_SERVER_NAME, else the "
     "host of the address)"},
    {"token-file", 0, FlagKind::kString, "", "FILE",
     "File with the token of the caller (default: TELEGRAD_TOKEN_FILE, or the token "
     "TELEGRAD_TOKEN)"},
    {"local-socket", 0, FlagKind::kString, "", "PATH",
     "Unix socket on which the server of this machine issues tokens (default: "
     "TELEGRAD_LOCAL_SOCKET)"},
    {"device", 0, FlagKind::kString, "", "NAME",
     "Device that computes, as listed by \"telegrad devices\" (default: TELEGRAD_DEVICE, else the "
     "first)"},
    {"timeout", 0, FlagKind::kInt, "10", "SECONDS", "Time to wait for an answer of the server",
     AtLeast(1)},
};

constexpr int kFailed = 1, kUsage = 2, kNoServer = 3;

std::vector<FlagRow> FlagsOf(const Command& command) {
  std::vector<FlagRow> rows(command.flags.begin(), command.flags.end());
  rows.insert(rows.end(), std::begin(kCommonFlags), std::end(kCommonFlags));
  return rows;
}

ProgramPage Page() {
  ProgramPage page = {
      .name = "telegrad",
      .section = "1",
      .summary = "the command line of a Telegrad server",
      .arguments = "",
      .description =
          "telegrad runs, trains and explains models, and shows the devices and counters of a "
          "Telegrad server. Without --address it connects to the daemon of this machine.",
      .exit_codes = "0 done, 1 failed, 2 wrong usage, 3 no server answers.",
      .flags = kCommonFlags,
  };
  for (const Command& c : kCommands) {
    page.commands.push_back({c.name, c.arguments, c.summary, c.flags});
  }
  return page;
}

std::string Usage() {
  std::string text = "Usage: telegrad COMMAND [flags]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    StrAppend(&text, "  ", command.name, std::string(12 - command.name.size(), ' '),
              command.summary, "\n");
  }
  StrAppend(&text,
            "\ntelegrad COMMAND --help lists the flags of a command; telegrad --version prints the "
            "version,\ntelegrad --generate=FORM the manual page (man) or the completion of a shell "
            "(bash, zsh, fish).\n");
  return text;
}

int RunCommand(const Command& command, std::span<const std::string_view> args) {
  const std::vector<FlagRow> rows = FlagsOf(command);
  const auto flags = Flags::Parse(rows, args);
  absl::Status status = flags.status();
  if (status.ok() && flags->help()) {
    const std::string arguments = StrCat(command.arguments.empty() ? "" : " ", command.arguments);
    const std::string details = command.details == nullptr ? "" : StrCat("\n", command.details());
    std::printf(
        "Usage: telegrad %s%s [flags]\n%s\n%s\nFlags:\n%s", std::string(command.name).c_str(),
        arguments.c_str(), std::string(command.summary).c_str(), details.c_str(),
        FlagHelp(command.connects ? std::span<const FlagRow>(rows) : command.flags).c_str());
    return 0;
  }
  if (status.ok()) {
    if (const std::optional<int> code = PrintPage(Page(), *flags)) return *code;
    status = command.run(*flags);
  }
  if (status.ok()) return 0;
  const bool usage = absl::IsInvalidArgument(status);
  if (!flags.ok() && command.name == "up") {
    status = InvalidArgument(ToStd(status.message()), "; flags of telegradd follow \"--\"");
  }
  std::fprintf(stderr, "telegrad %s: %s\n%s", std::string(command.name).c_str(),
               PrintableLines(ToStd(status.message())).c_str(),
               usage ? StrCat("see telegrad ", command.name, " --help\n").c_str() : "");
  return usage ? kUsage : absl::IsUnavailable(status) ? kNoServer : kFailed;
}

int Main(int argc, char** argv) {
  const std::vector<std::string_view> args = Arguments(argc, argv);
  if (args.empty()) {
    std::fputs(Usage().c_str(), stderr);
    return kUsage;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    std::fputs(Usage().c_str(), stdout);
    return 0;
  }
  if (args[0].starts_with("--")) {  // without a command only the flags of every table apply
    const auto flags = Flags::Parse({}, std::span(args).first(1));
    if (flags.ok()) return PrintPage(Page(), *flags).value_or(kUsage);
  }
  for (const Command& command : kCommands) {
    if (command.name == args[0]) return RunCommand(command, std::span(args).subspan(1));
  }
  std::fprintf(stderr, "telegrad: unknown command \"%s\"\n\n%s", std::string(args[0]).c_str(),
               Usage().c_str());
  return kUsage;
}

TG_FIRST_OF_ALL(OpenStandardDescriptors);

}  // namespace
}  // namespace telegrad::cli

int main(int argc, char** argv) {
  // What the transport receives lies in malloc's memory until it is copied out. Pages of it that
  // are given back to the system come again slowly.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  const int code = telegrad::cli::Main(argc, argv);
  const absl::Status printed = telegrad::FlushOutput();
  if (code != 0 || printed.ok()) return code;
  std::fprintf(stderr, "telegrad: %s\n", std::string(printed.message()).c_str());
  return 1;
}
