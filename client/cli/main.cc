// telegrad: the command line of a Telegrad server. Exit codes: 0 done, 1 failed, 2 wrong usage, 3
// no server answers.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

constexpr FlagRow kTrainFlags[] = {
    {"data", 'd', FlagKind::kString, "tests/data/digits/digits.csv.gz", "FILE",
     "the images: gzip, 64 pixels and the label on each line"},
    {"epochs", 'e', FlagKind::kInt, "16", "N", "passes over the training images"},
    {"batch", 'b', FlagKind::kInt, "64", "N", "images in one step"},
    {"seed", 0, FlagKind::kInt, "1", "N", "of the first weights and of the order of the images"},
    {"save", 's', FlagKind::kString, "", "FILE",
     "where weights and optimizer state go (safetensors)"},
    {"resume", 'r', FlagKind::kString, "", "FILE", "continues from a file made by --save"},
};

constexpr FlagRow kRunFlags[] = {
    {"input", 'i', FlagKind::kList, "", "FILE",
     "the model's inputs, in order: ONNX TensorProto .pb, or a tensor file of one tensor (.npy)"},
    {"output", 'o', FlagKind::kList, "", "FILE", "where its outputs go, in order: .npy or .pb"},
    {"expect", 'x', FlagKind::kList, "", "FILE",
     "what its outputs must be, in order: fails where they differ"},
    {"rtol", 0, FlagKind::kString, "1e-3", "X", "of --expect and --verify: relative tolerance"},
    {"atol", 0, FlagKind::kString, "1e-5", "X", "of --expect and --verify: absolute tolerance"},
    {"verify", 'v', FlagKind::kString, "", "DIR",
     "runs each DIR/test_data_set_N/input_*.pb and compares with its output_*.pb"},
    {"timeline", 't', FlagKind::kString, "", "FILE",
     "where a timeline of the run goes, for Perfetto (Chrome trace JSON)"},
    {"server-import", 0, FlagKind::kBool, "false", "",
     "sends the file as it is, to be imported by the server"},
};

constexpr FlagRow kExplainFlags[] = {
    {"shape", 's', FlagKind::kList, "", "NAME=AxBxC",
     "the shape of an input, where the model leaves it open or has another"},
    {"dim", 'd', FlagKind::kList, "", "NAME=N",
     "the size of a dimension that the model only names"},
    {"threads", 0, FlagKind::kInt, "0", "N",
     "that one launch would run on; 0: as many as there are"},
    {"json", 'j', FlagKind::kBool, "false", "", "prints one JSON object instead of lines"},
};

constexpr FlagRow kCheckFlags[] = {
    {"shape", 's', FlagKind::kList, "", "NAME=AxBxC",
     "the shape of an input, where the model leaves it open or has another"},
    {"dim", 'd', FlagKind::kList, "", "NAME=N",
     "the size of a dimension that the model only names (default 1)"},
};

constexpr FlagRow kTensorsFlags[] = {
    {"metadata", 'm', FlagKind::kBool, "false", "", "prints the metadata too"},
};

constexpr Command kCommands[] = {
    {"run", "MODEL.onnx", "runs an ONNX model", kRunFlags, &Run},
    {"check", "MODEL.onnx", "tells whether a model is supported, and all that is not", kCheckFlags,
     &Check},
    {"explain", "MODEL.onnx", "shows the kernels and the memory that a model would take, and why",
     kExplainFlags, &Explain},
    {"train", "digits", "trains a small convolutional network on handwritten digits", kTrainFlags,
     &Train},
    {"devices", "", "lists the devices of the server", {}, &Devices},
    {"tensors", "FILE", "lists the tensors of a safetensors, npy, npz, GGUF or PyTorch file",
     kTensorsFlags, &Tensors},
    {"stats", "", "shows the counters of the server", {}, &Stats},
};

// Of every command.
constexpr FlagRow kCommonFlags[] = {
    {"address", 'a', FlagKind::kString, "", "ADDRESS",
     "the server, HOST:PORT or unix:PATH (default: TELEGRAD_ADDRESS, else 127.0.0.1:50055)"},
    {"tls-ca", 0, FlagKind::kString, "", "FILE",
     "TLS; authorities of the server's certificate, PEM (default: TELEGRAD_TLS_CA)"},
    {"tls-cert", 0, FlagKind::kString, "", "FILE",
     "this client's certificate, PEM (default: TELEGRAD_TLS_CERT)"},
    {"tls-key", 0, FlagKind::kString, "", "FILE", "its private key (default: TELEGRAD_TLS_KEY)"},
    {"tls-server-name", 0, FlagKind::kString, "", "NAME",
     "the name in the server's certificate (default: TELEGRAD_TLS_SERVER_NAME, else the "
     "address's)"},
    {"token-file", 0, FlagKind::kString, "", "FILE",
     "holds a token that says who calls (default: TELEGRAD_TOKEN_FILE, or TELEGRAD_TOKEN itself)"},
    {"local-socket", 0, FlagKind::kString, "", "PATH",
     "of the server on this machine, which gives a token (default: TELEGRAD_LOCAL_SOCKET)"},
    {"device", 0, FlagKind::kString, "", "NAME",
     "the device that computes, of those that \"telegrad devices\" lists (default: "
     "TELEGRAD_DEVICE, "
     "else the first)"},
    {"timeout", 0, FlagKind::kInt, "10", "SECONDS", "how long to wait for the server to answer"},
};

constexpr int kFailed = 1, kUsage = 2, kNoServer = 3;

std::vector<FlagRow> FlagsOf(const Command& command) {
  std::vector<FlagRow> rows(command.flags.begin(), command.flags.end());
  rows.insert(rows.end(), std::begin(kCommonFlags), std::end(kCommonFlags));
  return rows;
}

std::string Usage() {
  std::string text = "Usage: telegrad COMMAND [flags]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    StrAppend(&text, "  ", command.name, std::string(12 - command.name.size(), ' '),
              command.summary, "\n");
  }
  StrAppend(&text, "\ntelegrad COMMAND --help tells more about a command.\n");
  return text;
}

int RunCommand(const Command& command, std::span<const std::string_view> args) {
  const std::vector<FlagRow> rows = FlagsOf(command);
  const auto flags = Flags::Parse(rows, args);
  absl::Status status = flags.status();
  if (status.ok() && flags->help()) {
    const std::string arguments = StrCat(command.arguments.empty() ? "" : " ", command.arguments);
    std::printf("Usage: telegrad %s%s [flags]\n%s\n\nFlags:\n%s", std::string(command.name).c_str(),
                arguments.c_str(), std::string(command.summary).c_str(), FlagHelp(rows).c_str());
    return 0;
  }
  if (status.ok()) status = command.run(*flags);
  if (status.ok()) return 0;
  const bool usage = absl::IsInvalidArgument(status);
  std::fprintf(stderr, "telegrad %s: %s\n%s", std::string(command.name).c_str(),
               std::string(status.message()).c_str(),
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
  for (const Command& command : kCommands) {
    if (command.name == args[0]) return RunCommand(command, std::span(args).subspan(1));
  }
  std::fprintf(stderr, "telegrad: unknown command \"%s\"\n\n%s", std::string(args[0]).c_str(),
               Usage().c_str());
  return kUsage;
}

// Flags count before the environment.
ClientCredentials CredentialsOf(const Flags& flags) {
  ClientCredentials credentials = ClientCredentials::FromEnvironment();
  const std::pair<std::string_view, std::string*> rows[] = {
      {"tls-ca", &credentials.tls_ca},         {"tls-cert", &credentials.tls_cert},
      {"tls-key", &credentials.tls_key},       {"tls-server-name", &credentials.tls_server_name},
      {"token-file", &credentials.token_file}, {"local-socket", &credentials.local_socket}};
  if (!flags.GetString("token-file").empty() || !flags.GetString("local-socket").empty()) {
    credentials.token = credentials.token_file = credentials.local_socket = "";
  }
  for (const auto& [flag, value] : rows) {
    if (!flags.GetString(flag).empty()) *value = flags.GetString(flag);
  }
  return credentials;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Connection>> Connect(const Flags& flags) {
  std::string address = flags.GetString("address");
  if (const char* from_env = std::getenv("TELEGRAD_ADDRESS"); address.empty() && from_env) {
    address = from_env;
  }
  if (address.empty()) address = kDefaultAddress;
  const int64_t seconds = flags.GetInt("timeout");
  if (seconds < 1) return InvalidArgument("--timeout: ", seconds, " is below 1");
  ConnectOptions options;
  options.timeout = absl::Seconds(seconds);
  options.client = "telegrad-cli";
  options.credentials = CredentialsOf(flags);
  options.device = flags.GetString("device");
  if (const char* from_env = std::getenv("TELEGRAD_DEVICE"); options.device.empty() && from_env) {
    options.device = from_env;
  }
  return Connection::Connect(address, options);
}

}  // namespace telegrad::cli

int main(int argc, char** argv) {
  // What the transport receives lies in malloc's memory until it is copied out. Pages of it that
  // are given back to the system come again slowly.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  return telegrad::cli::Main(argc, argv);
}
