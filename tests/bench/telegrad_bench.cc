// Telegrad's side of the benchmarks: a client of a running daemon. Prints one number as its last
// line, and fails if a result is wrong: a fast wrong answer is no answer.
//
// Usage: telegrad_bench HOST:PORT upload REPEATS     median GB/s of 256 MiB into a buffer
//        telegrad_bench HOST:PORT download REPEATS   median GB/s of 256 MiB out of a buffer
//        telegrad_bench HOST:PORT shared_upload|shared_download REPEATS
//                                                    the same through shared memory
//        telegrad_bench HOST:PORT between REPEATS    median GB/s of 256 MiB from TELEGRAD_DEVICE to
//                                                    TELEGRAD_OTHER_DEVICE
//        telegrad_bench HOST:PORT memcpy REPEATS     the same from memory to memory of this process
//        telegrad_bench HOST:PORT matmul RUNS        median milliseconds of 1024 x 1024 x 1024,
//                                                    float32
//        telegrad_bench HOST:PORT second_run 1       schedules and compiles that a second run
//        caused telegrad_bench HOST:PORT load PAIRS         how many times as long a safetensors
//        file of
//                                                    1 GiB takes into buffers as the same bytes
//                                                    from memory, median
//        telegrad_bench HOST:PORT import PAIRS       how many times as long importing an ONNX file
//        of
//                                                    400 MiB takes as reading its bytes and sending
//                                                    them, median
//        telegrad_bench HOST:PORT server_import PAIRS  the same where the server imports it
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_plan.h"
#include "client/cc/remote_session.h"
#include "client/cc/shared_memory.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/onnx/test_model.h"
#include "engine/ir/graph.h"
#include "tests/bench/add_constant.h"
#include "tests/bench/timing.h"

namespace telegrad {
namespace {

using bench::AddConstant;
using bench::Median;
using bench::Seconds;

constexpr int64_t kBulkBytes = int64_t{256} << 20;
constexpr int kLoadTensors = 64;  // of 16 MiB
constexpr int64_t kLoadBytes = int64_t{1} << 30;
constexpr int kImportWeights = 25;  // of 16 MiB
constexpr int64_t kImportSide = 2048;
constexpr int64_t kImportBytes = kImportSide * kImportSide * 4;

// The seconds of each of `repeats` calls, after `warm_up` more.
absl::StatusOr<std::vector<double>> Time(int warm_up, int repeats,
                                         const std::function<absl::Status()>& call) {
  std::vector<double> times;
  for (int i = 0; i < warm_up + repeats; ++i) {
    const double start = Seconds();
    TG_RETURN_IF_ERROR(call());
    if (i >= warm_up) times.push_back(Seconds() - start);
  }
  return times;
}

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Slot 2 = slot 0 times slot 1, n x n float32.
UOp MatMul(Graph* graph, int64_t n) {
  const int64_t matrix[] = {n, n};
  const int64_t left[] = {n, n, 1}, right[] = {1, n, n}, cube[] = {n, n, n};
  const int64_t add_over_k[] = {0, 1};
  const auto spread = [&](int64_t slot, std::span<const int64_t> dims) {
    const UOp param = graph->Param(slot, DType::kFloat32, matrix);
    return graph->Make(Op::kExpand, {graph->Make(Op::kReshape, {param}, dims)}, cube);
  };
  const UOp products = graph->Make(Op::kMul, {spread(0, left), spread(1, right)});
  const UOp sums = graph->Make(Op::kReduce, {products}, add_over_k);
  const UOp product = graph->Make(Op::kReshape, {sums}, matrix);
  const UOp store = graph->Make(Op::kStore, {graph->Param(2, DType::kFloat32, matrix), product});
  return graph->Make(Op::kSink, {store});
}

class Bench {
 public:
  explicit Bench(std::string address) : address_(std::move(address)) {}

  // `beside`: large writes and reads do not travel on the session's own stream.
  absl::Status Open(bool beside) {
    ConnectOptions options;
    if (!beside) options.data_streams = 0;
    if (const char* const device = std::getenv("TELEGRAD_DEVICE")) options.device = device;
    options.credentials = ClientCredentials::FromEnvironment();
    TG_ASSIGN_OR_RETURN(connection_, Connection::Connect(address_, options));
    TG_ASSIGN_OR_RETURN(session_, connection_->OpenSession());
    return absl::OkStatus();
  }

  absl::StatusOr<double> Upload256M(int repeats) {
    const auto data = std::make_shared<const std::vector<uint8_t>>(RandomBytes());
    const uint64_t handle = Allocate(kBulkBytes);
    TG_ASSIGN_OR_RETURN(const std::vector<double> times, Time(1, repeats, [&] {
                          session_->Write(handle, 0, Bytes(*data), data);
                          return session_->Sync().Get().status();
                        }));
    TG_RETURN_IF_ERROR(Compare(handle, *data));
    return kBulkBytes / Median(times) / 1e9;
  }

  absl::StatusOr<double> Download256M(int repeats) {
    const std::vector<uint8_t> data = RandomBytes();
    std::vector<uint8_t> out(kBulkBytes);
    const uint64_t handle = Upload(data);
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    TG_ASSIGN_OR_RETURN(const std::vector<double> times,
                        Time(1, repeats, [&] { return Download(handle, &out); }));
    if (out != data) return absl::InternalError("other bytes came back");
    return kBulkBytes / Median(times) / 1e9;
  }

  absl::StatusOr<double> Shared256M(int repeats, bool up) {
    const std::vector<uint8_t> data = RandomBytes();
    TG_ASSIGN_OR_RETURN(const auto memory, SharedMemory::Create(kBulkBytes));
    std::memcpy(memory->bytes().data(), data.data(), data.size());
    const uint64_t handle = Allocate(kBulkBytes);
    const auto write = [&]() -> absl::Status {
      TG_RETURN_IF_ERROR(session_->WriteShared(handle, 0, *memory));
      return session_->Sync().Get().status();
    };
    TG_RETURN_IF_ERROR(write());
    TG_ASSIGN_OR_RETURN(const std::vector<double> times,
                        up ? Time(1, repeats, write) : Time(1, repeats, [&] {
                          return session_->ReadShared(handle, 0, *memory);
                        }));
    TG_RETURN_IF_ERROR(Compare(handle, data));
    const bool same = std::memcmp(memory->bytes().data(), data.data(), data.size()) == 0;
    if (!same) return absl::InternalError("other bytes came back");
    return kBulkBytes / Median(times) / 1e9;
  }

  absl::StatusOr<double> Between256M(int repeats) {
    const char* const other = std::getenv("TELEGRAD_OTHER_DEVICE");
    if (other == nullptr) return absl::InvalidArgumentError("there is no TELEGRAD_OTHER_DEVICE");
    const std::vector<uint8_t> data = RandomBytes();
    const uint64_t from = Upload(data), to = session_->NewHandle();
    session_->Alloc(to, kBulkBytes, other);
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    TG_ASSIGN_OR_RETURN(const std::vector<double> times, Time(1, repeats, [&] {
                          session_->CopyTold(to, 0, from, 0, kBulkBytes, Future<Done>());
                          return session_->Sync().Get().status();
                        }));
    TG_RETURN_IF_ERROR(Compare(to, data));
    return kBulkBytes / Median(times) / 1e9;
  }

  absl::StatusOr<double> Memcpy256M(int repeats) {
    const std::vector<uint8_t> data = RandomBytes();
    std::vector<uint8_t> out(kBulkBytes);
    TG_ASSIGN_OR_RETURN(const std::vector<double> times, Time(1, repeats, [&] {
                          std::memcpy(out.data(), data.data(), data.size());
                          asm volatile("" : : "r"(out.data()) : "memory");  // it is looked at
                          return absl::OkStatus();
                        }));
    return kBulkBytes / Median(times) / 1e9;
  }

  absl::StatusOr<double> MatMul1024(int runs) {
    constexpr int64_t kN = 1024;
    std::vector<float> a(kN * kN), b(kN * kN), c(kN * kN);
    for (int64_t i = 0; i < kN * kN; ++i) {  // small integers: every sum is exact in any order
      a[i] = static_cast<float>(i % 13) - 6;
      b[i] = static_cast<float>(i % 7) - 3;
    }
    const uint64_t handles[] = {Upload(a), Upload(b), Allocate(c.size() * sizeof(float))};
    TG_ASSIGN_OR_RETURN(const Digest hash, Put(MatMul(&graph_, kN)));
    TG_ASSIGN_OR_RETURN(const std::vector<double> times,
                        Time(3, runs, [&] { return session_->Run(hash, handles).Get().status(); }));
    TG_RETURN_IF_ERROR(Download(handles[2], &c));
    for (int64_t at = 0; at < kN * kN; at += 1021) {
      float expected = 0;
      for (int64_t k = 0; k < kN; ++k) expected += a[at / kN * kN + k] * b[k * kN + at % kN];
      if (c[at] != expected) {
        return absl::InternalError(StrCat("element ", at, " is ", c[at], ", not ", expected));
      }
    }
    return Median(times) * 1e3;
  }

  absl::StatusOr<double> SecondRun() {
    const uint64_t handles[] = {Allocate(64 * sizeof(float)), Allocate(64 * sizeof(float))};
    // A graph that no earlier run has sent, so that the first run has something to compile.
    const double addend = std::random_device{}() / 1024.0;
    TG_ASSIGN_OR_RETURN(const Digest hash, Put(AddConstant(&graph_, 64, addend)));
    TG_ASSIGN_OR_RETURN(const double before, Compilations());
    TG_RETURN_IF_ERROR(session_->Run(hash, handles).Get().status());
    TG_ASSIGN_OR_RETURN(const double first, Compilations());
    if (first <= before)
      return absl::InternalError("the first run compiled nothing: nothing is counted");
    TG_ASSIGN_OR_RETURN(const RunInfo info, session_->Run(hash, handles).Get());
    TG_ASSIGN_OR_RETURN(const double second, Compilations());
    if (!info.cached) return absl::InternalError("the second run was not answered as cached");
    return second - first;
  }

  // A chain of products, as a client does it: the file is read, imported, its weights and its graph
  // are sent. Against the file's bytes, read and sent into as many buffers; in turns.
  absl::StatusOr<double> Import400M(int pairs, bool by_server) {
    const std::string path =
        (std::filesystem::temp_directory_path() / StrCat("telegrad_bench_", getpid(), ".onnx"))
            .string();
    TG_RETURN_IF_ERROR(WriteFile(path, ImportModel()));
    std::vector<double> ratios, of_import, of_bytes;
    absl::Status status;
    for (int i = -1; status.ok() && i < pairs; ++i) {
      const auto imported = [&] { return by_server ? ImportByServer(path) : ImportHere(path); };
      const auto a = Time(0, 1, imported);
      const auto b = Time(0, 1, [&] { return ReadAndSend(path); });
      status = !a.ok() ? a.status() : b.status();
      if (i < 0 || !status.ok()) continue;
      of_import.push_back((*a)[0]);
      of_bytes.push_back((*b)[0]);
      ratios.push_back((*a)[0] / (*b)[0]);
    }
    std::filesystem::remove(path);
    TG_RETURN_IF_ERROR(status);
    std::fprintf(stderr, "import: %.3f s, reading and sending %.3f s\n", Median(of_import),
                 Median(of_bytes));
    return Median(ratios);
  }

  // A file in the system's cache against the same bytes from memory, in turns, into new buffers.
  absl::StatusOr<double> Load1G(int pairs) {
    const std::string path =
        (std::filesystem::temp_directory_path() / StrCat("telegrad_bench_", getpid(), ".st"))
            .string();
    const auto file = MakeLoadFile(path);
    std::filesystem::remove(path);  // it stays as long as it is open
    if (!file.ok()) return file.status();
    const auto bytes = std::make_shared<std::vector<std::byte>>(kLoadBytes);
    for (size_t at = 0; const TensorEntry& entry : (*file)->tensors()) {
      const std::span<std::byte> part(bytes->data() + at, static_cast<size_t>(entry.bytes));
      TG_RETURN_IF_ERROR((*file)->Open(entry)->Read(part));
      at += part.size();
    }
    std::vector<double> ratios, of_file, of_memory;
    for (int i = -1; i < pairs; ++i) {
      const auto from_file = [&] { return LoadTensors(**file, *bytes); };
      const auto from_memory = [&] { return CopyBytes(bytes); };
      TG_ASSIGN_OR_RETURN(const std::vector<double> a, Time(0, 1, from_file));
      TG_ASSIGN_OR_RETURN(const std::vector<double> b, Time(0, 1, from_memory));
      if (i < 0) continue;
      of_file.push_back(kLoadBytes / a[0] / 1e9);
      of_memory.push_back(kLoadBytes / b[0] / 1e9);
      ratios.push_back(a[0] / b[0]);
    }
    std::fprintf(stderr, "load: %.3f GB/s from the file, %.3f GB/s from memory\n", Median(of_file),
                 Median(of_memory));
    return Median(ratios);
  }

 private:
  static absl::StatusOr<std::shared_ptr<const TensorFile>> MakeLoadFile(const std::string& path) {
    std::map<std::string, HostTensor> tensors;
    constexpr int64_t kSide = 2048;
    std::mt19937_64 random(7);
    for (int i = 0; i < kLoadTensors; ++i) {
      HostTensor t{DType::kFloat32, {kSide, kSide}, std::string(kSide * kSide * 4, '\0')};
      for (size_t at = 0; at < t.bytes.size(); at += 8) {
        const uint64_t word = random();
        std::memcpy(&t.bytes[at], &word, 8);
      }
      tensors.emplace(StrCat("layer.", i, ".weight"), std::move(t));
    }
    TG_RETURN_IF_ERROR(
        SaveFile(path, [&](ByteSink* sink) { return WriteSafetensors(tensors, {}, sink); }));
    return OpenTensorFile(path);
  }

  // The end of the last tensor is compared: an answer that takes no time beside the rest.
  absl::Status LoadTensors(const TensorFile& file, const std::vector<std::byte>& expected) {
    std::vector<uint64_t> handles;
    for (const TensorEntry& entry : file.tensors()) {
      handles.push_back(Allocate(entry.bytes));
      session_->Write(handles.back(), 0, file.Open(entry));
    }
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    std::vector<std::byte> end(64);
    TG_RETURN_IF_ERROR(
        session_->Read(handles.back(), file.tensors().back().bytes - 64, end).Get().status());
    session_->Free(handles);
    const bool same = std::equal(end.begin(), end.end(), expected.end() - 64);
    return same ? absl::OkStatus() : absl::InternalError("other bytes arrived");
  }

  absl::Status CopyBytes(const std::shared_ptr<std::vector<std::byte>>& bytes) {
    std::vector<uint64_t> handles;
    const size_t each = bytes->size() / kLoadTensors;
    for (int i = 0; i < kLoadTensors; ++i) {
      handles.push_back(Allocate(static_cast<int64_t>(each)));
      session_->Write(handles.back(), 0, std::span(*bytes).subspan(i * each, each), bytes);
    }
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    session_->Free(handles);
    return absl::OkStatus();
  }

  static std::string ImportModel() {
    onnx::test::ModelWriter model;
    model.Input("x0", DType::kFloat32, {1, kImportSide});
    std::mt19937_64 random(7);
    for (int i = 0; i < kImportWeights; ++i) {
      HostTensor w{DType::kFloat32, {kImportSide, kImportSide}, {}};
      w.bytes.resize(kImportBytes);
      for (size_t at = 0; at < w.bytes.size(); at += 8) {
        const uint64_t word = random();
        std::memcpy(&w.bytes[at], &word, 8);
      }
      model.Initializer(StrCat("w", i), w);
      model.Node("MatMul", {StrCat("x", i), StrCat("w", i)}, {StrCat("x", i + 1)});
    }
    return model.Output(StrCat("x", kImportWeights)).File(13);
  }

  static std::span<const std::byte> BytesOfFile(const std::string& file) {
    return std::as_bytes(std::span(file.data(), file.size()));
  }

  static absl::StatusOr<std::shared_ptr<const std::string>> ReadModel(const std::string& path) {
    TG_ASSIGN_OR_RETURN(std::string file, ReadFile(path));
    return std::make_shared<const std::string>(std::move(file));
  }

  absl::Status ImportHere(const std::string& path) {
    TG_ASSIGN_OR_RETURN(const auto file, ReadModel(path));
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(*file));
    std::map<std::string, std::string_view> weights;
    for (const OnnxWeight& w : onnx.weights) weights[onnx.plan.slots[w.slot].name] = w.bytes;
    if (weights.size() != kImportWeights) return absl::InternalError("weights are missing");
    RemoteState state(session_.get());
    state.Preset(std::move(weights), file);
    std::vector<uint64_t> handles;
    for (const OnnxWeight& w : onnx.weights) {
      TG_ASSIGN_OR_RETURN(handles.emplace_back(), state.Buffer(onnx.plan.slots[w.slot]));
    }
    TG_RETURN_IF_ERROR(Put(onnx.plan.graph.root()).status());
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    std::string end(64, '\0');
    TG_RETURN_IF_ERROR(session_
                           ->Read(handles.back(), kImportBytes - 64,
                                  std::as_writable_bytes(std::span(end.data(), end.size())))
                           .Get()
                           .status());
    session_->Free(handles);
    return onnx.weights.back().bytes.ends_with(end) ? absl::OkStatus()
                                                    : absl::InternalError("other bytes arrived");
  }

  absl::Status ImportByServer(const std::string& path) {
    TG_ASSIGN_OR_RETURN(const auto file, ReadModel(path));
    TG_ASSIGN_OR_RETURN(const RemoteModel model,
                        session_->Import(BytesOfFile(*file), {}, file).Get());
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    std::vector<uint64_t> handles;
    for (const RemoteModel::Value& value : model.slots) {
      if (value.handle != 0) handles.push_back(value.handle);
    }
    session_->Free(handles);
    return handles.size() == kImportWeights ? absl::OkStatus()
                                            : absl::InternalError("weights are missing");
  }

  absl::Status ReadAndSend(const std::string& path) {
    TG_ASSIGN_OR_RETURN(const auto file, ReadModel(path));
    std::vector<uint64_t> handles;
    for (size_t i = 0; i < kImportWeights; ++i) {
      handles.push_back(Allocate(kImportBytes));
      session_->Write(handles.back(), 0, BytesOfFile(*file).subspan(i * kImportBytes, kImportBytes),
                      file);
    }
    TG_RETURN_IF_ERROR(session_->Sync().Get().status());
    session_->Free(handles);
    return absl::OkStatus();
  }

  uint64_t Allocate(int64_t bytes) {
    const uint64_t handle = session_->NewHandle();
    session_->Alloc(handle, bytes);
    return handle;
  }

  template <typename T>
  uint64_t Upload(const std::vector<T>& values) {
    const uint64_t handle = Allocate(values.size() * sizeof(T));
    session_->WriteCopy(handle, 0, Bytes(values));
    return handle;
  }

  template <typename T>
  absl::Status Download(uint64_t handle, std::vector<T>* values) {
    return session_->Read(handle, 0, std::as_writable_bytes(std::span(*values))).Get().status();
  }

  absl::Status Compare(uint64_t handle, const std::vector<uint8_t>& expected) {
    std::vector<uint8_t> out(expected.size());
    TG_RETURN_IF_ERROR(Download(handle, &out));
    return out == expected ? absl::OkStatus() : absl::InternalError("other bytes came back");
  }

  absl::StatusOr<Digest> Put(UOp root) {
    TG_RETURN_IF_ERROR(graph_.status());
    return session_->Put(root).Get();
  }

  static std::vector<uint8_t> RandomBytes() {
    std::vector<uint8_t> bytes(kBulkBytes);
    std::mt19937_64 random(7);
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(&bytes[i], &word, 8);
    }
    return bytes;
  }

  // Graphs scheduled and kernels compiled since the daemon's start.
  absl::StatusOr<double> Compilations() {
    TG_ASSIGN_OR_RETURN(const auto stats, connection_->Stats());
    double sum = 0;
    for (const char* name :
         {"telegrad_executables_compiled_total", "telegrad_kernels_compiled_total"}) {
      const auto it = stats.find(name);
      if (it == stats.end()) return absl::InternalError(StrCat("the daemon has no metric ", name));
      sum += it->second;
    }
    return sum;
  }

  const std::string address_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RemoteSession> session_;
  Graph graph_;
};

absl::StatusOr<double> Measure(const std::string& address, const std::string& what, int count) {
  Bench bench(address);
  TG_RETURN_IF_ERROR(bench.Open(/*beside=*/what != "load"));
  if (what == "upload") return bench.Upload256M(count);
  if (what == "download") return bench.Download256M(count);
  if (what == "shared_upload") return bench.Shared256M(count, /*up=*/true);
  if (what == "shared_download") return bench.Shared256M(count, /*up=*/false);
  if (what == "between") return bench.Between256M(count);
  if (what == "memcpy") return bench.Memcpy256M(count);
  if (what == "matmul") return bench.MatMul1024(count);
  if (what == "second_run") return bench.SecondRun();
  if (what == "load") return bench.Load1G(count);
  if (what == "import") return bench.Import400M(count, /*by_server=*/false);
  if (what == "server_import") return bench.Import400M(count, /*by_server=*/true);
  return absl::InvalidArgumentError(StrCat("there is no benchmark ", what));
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  // As in the command telegrad: see client/cli/main.cc.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  const int count = argc == 4 ? std::atoi(argv[3]) : 0;
  if (count <= 0) {
    std::fprintf(
        stderr,
        "Usage: telegrad_bench HOST:PORT "
        "upload|download|shared_upload|shared_download|between|memcpy|matmul|second_run|load|"
        "import|server_import "
        "COUNT\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::Measure(argv[1], argv[2], count);
  if (!result.ok()) {
    std::fprintf(stderr, "telegrad_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.4f\n", *result);
  return 0;
}
