// What brought down or opened up other servers of this kind, tried on ours: a test for each class
// of their published vulnerabilities that applies to a graph, a buffer or a file. Each is named
// after one CVE (or, for projects that assign none, the issue) of its class.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "engine/ir/content_hash.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_bytes.h"
#include "engine/wire/testing/hostile_graphs.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class CveTest : public DaemonTest {
 protected:
  RawSession Raw() { return RawSession(connection_->channel()); }
  // The daemon that was started is up and does as it is told.
  void ExpectAlive() {
    RawSession session(connection_->channel());
    EXPECT_EQ(session.Ask(AllocRequest(1, 8)), absl::OkStatus());
    v1::ExecuteResponse answer;
    EXPECT_EQ(session.Ask(ReadRequest(1, 0, 8), &answer), absl::OkStatus());
    EXPECT_EQ(answer.data(), std::string(8, '\0'));
  }
};

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

// Wire pointers: what a client names is looked up among what its session has, never followed.
TEST_F(CveTest, CVE_2024_42478_HandlesAreNotAddresses) {
  RawSession owner(connection_->channel());
  ASSERT_EQ(owner.Ask(AllocRequest(7, 16)), absl::OkStatus());
  ASSERT_EQ(owner.Ask(WriteRequest(7, 0, "a secret of mine")), absl::OkStatus());
  RawSession other(connection_->channel());
  ASSERT_EQ(other.Ask(AllocRequest(1, 16)), absl::OkStatus());
  const int here = 0;
  for (const uint64_t handle :
       {uint64_t{7}, reinterpret_cast<uint64_t>(&here), uint64_t{0x7fff'ffff'f000}, UINT64_MAX}) {
    v1::ExecuteResponse answer;
    EXPECT_TRUE(absl::IsNotFound(other.Ask(ReadRequest(handle, 0, 16), &answer))) << handle;
    EXPECT_EQ(answer.data(), "") << handle;
    EXPECT_TRUE(absl::IsNotFound(other.Ask(WriteRequest(handle, 0, "overwritten")))) << handle;
    EXPECT_TRUE(absl::IsNotFound(other.Ask(FreeRequest(handle)))) << handle;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(other.Ask(AllocRequest(0, 16)))) << "null";
  v1::ExecuteResponse answer;
  ASSERT_EQ(owner.Ask(ReadRequest(7, 0, 16), &answer), absl::OkStatus());
  EXPECT_EQ(answer.data(), "a secret of mine");
}

// Numbers of enums index nothing before they are known to be one of them.
TEST_F(CveTest, CVE_2024_42477_NumbersOfEnumsAreChecked) {
  const auto put = [&](const std::function<void(testing::RawGraph&, uint32_t)>& edit) {
    testing::RawGraph g;
    const uint32_t x = g.Param(1, DType::kFloat32, {4});
    const uint32_t sum = g.Add(Op::kAdd, DType::kVoid, {x, x});
    edit(g, sum);
    g.Finish(0, DType::kFloat32, {4}, sum);
    return Raw().Ask(PutRequest(g.proto().SerializeAsString()));
  };
  EXPECT_EQ(put([](auto&, uint32_t) {}), absl::OkStatus());
  for (const uint32_t number : {200u, 255u, 256u, 65'536u, 0x7fff'ffffu, 0xffff'ffffu}) {
    EXPECT_TRUE(absl::IsInvalidArgument(put([&](auto& g, uint32_t at) {
      g.node(at)->set_op(number);
    }))) << "op "
         << number;
    EXPECT_TRUE(absl::IsInvalidArgument(put([&](auto& g, uint32_t at) {
      g.node(at - 1)->set_dtype(number);
    }))) << "dtype "
         << number;
    v1::ExecuteRequest file = AllocRequest(1, 8);
    file.mutable_alloc()->set_path("file");
    file.mutable_alloc()->set_mode(static_cast<v1::FileMode>(number));
    EXPECT_TRUE(absl::IsInvalidArgument(Raw().Ask(file))) << "file mode " << number;
  }
  ExpectAlive();
}

// An op of a kernel or a program (loads, stores to indices, barriers, calls) is no op of a client.
TEST_F(CveTest, Ggml25289_NoCallbacksNorLowerLevels) {
  int refused = 0;
  for (uint32_t number = 1; number < 256; ++number) {
    const std::optional<Op> op = OpFromWire(static_cast<int>(number));
    if (op && IsAt(*op, kTensorLevel)) continue;
    for (const int sources : {1, 2, 3}) {
      testing::RawGraph g;
      const uint32_t x = g.Param(1, DType::kFloat32, {4});
      const uint32_t at = g.Add(Op::kAdd, DType::kVoid, {x, x});
      g.node(at)->set_op(number);
      g.node(at)->clear_src();
      for (int i = 0; i < sources; ++i) g.node(at)->add_src(x);
      g.Finish(0, DType::kFloat32, {4}, at);
      const absl::Status status = Raw().Ask(PutRequest(g.proto().SerializeAsString()));
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << number << ": " << status;
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

// Checks of what comes from outside that vanish where NDEBUG is defined.
TEST(CveSourceTest, Ggml26825_NoCheckIsAnAssert) {
  const std::regex assertion(R"((^|[^_\w])assert\()");
  int files = 0;
  for (const char* folder : {"server", "engine", "devices"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      ++files;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        const std::string code = line.substr(0, line.find("//"));
        EXPECT_FALSE(std::regex_search(code, assertion)) << entry.path() << ": " << line;
      }
    }
  }
  EXPECT_GT(files, 100) << "to be run from the root of the sources";
}

// Offset plus size is compared without being added up.
TEST_F(CveTest, Ggml1103_CopiesStayInTheirBuffer) {
  RawSession session(connection_->channel());
  const std::string full(64, 'n');
  for (const uint64_t handle : {1, 2, 3}) {
    ASSERT_EQ(session.Ask(AllocRequest(handle, 64)), absl::OkStatus());
    ASSERT_EQ(session.Ask(WriteRequest(handle, 0, full)), absl::OkStatus());
  }
  constexpr uint64_t kMax = UINT64_MAX;
  for (const auto& [offset, bytes] :
       std::initializer_list<std::pair<uint64_t, uint64_t>>{{0, 65},
                                                            {64, 1},
                                                            {63, 2},
                                                            {kMax, 1},
                                                            {kMax - 7, 8},
                                                            {kMax, 64},
                                                            {uint64_t{1} << 63, 8}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(session.Ask(ReadRequest(2, offset, bytes))))
        << offset << " " << bytes;
    const absl::Status written = session.Ask(WriteRequest(2, offset, std::string(bytes, 'x')));
    EXPECT_TRUE(absl::IsInvalidArgument(written)) << offset << " " << bytes << " " << written;
    ASSERT_EQ(session.Ask(WriteRequest(2, 0, full)), absl::OkStatus());  // no longer poisoned
  }
  EXPECT_TRUE(absl::IsInvalidArgument(session.Ask(ReadRequest(2, 8, kMax - 7))));
  EXPECT_TRUE(absl::IsInvalidArgument(session.Ask(ReadRequest(2, 1, kMax))));
  for (const uint64_t handle : {1, 2, 3}) {
    v1::ExecuteResponse answer;
    ASSERT_EQ(session.Ask(ReadRequest(handle, 0, 64), &answer), absl::OkStatus());
    EXPECT_EQ(answer.data(), full) << handle;
  }
}

// Every operation with nothing in it, and graphs that break one rule each.
TEST_F(CveTest, CVE_2025_33201_NothingThatIsSentAborts) {
  const auto* ops = v1::ExecuteRequest::descriptor()->FindOneofByName("op");
  for (int i = 0; i < ops->field_count(); ++i) {
    for (const bool data : {false, true}) {
      v1::ExecuteRequest request;
      request.GetReflection()->MutableMessage(&request, ops->field(i));
      if (data) request.set_data("data");
      RawSession session(connection_->channel());
      (void)session.Ask(request);
      ASSERT_EQ(Raw().Ask(AllocRequest(1, 8)), absl::OkStatus())
          << "after an empty " << ops->field(i)->name();
    }
  }
  for (const testing::HostileGraph& hostile : testing::HostileGraphs()) {
    const absl::Status status = Raw().Ask(PutRequest(hostile.graph.SerializeAsString()));
    EXPECT_EQ(status.code(), hostile.code) << hostile.name << ": " << status;
  }
  ExpectAlive();
}

// Sizes and counts whose sum or product leaves 64 bits.
TEST_F(CveTest, CVE_2026_24173_SizesDoNotOverflow) {
  for (const uint64_t bytes :
       {UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 63, (uint64_t{1} << 63) - 1}) {
    RawSession session(connection_->channel());
    ASSERT_EQ(session.Ask(AllocRequest(1, 64)), absl::OkStatus());
    const absl::Status status = session.Ask(AllocRequest(2, bytes));
    EXPECT_TRUE(IsRefusal(status)) << bytes << ": " << status;
    EXPECT_FALSE(session.Ask(ReadRequest(2, 0, 1)).ok()) << bytes;
    v1::ExecuteRequest file = AllocRequest(3, 64);
    file.mutable_alloc()->set_path("file");
    file.mutable_alloc()->set_file_offset(bytes);
    EXPECT_FALSE(session.Ask(file).ok()) << bytes;
  }
  const uint64_t half = uint64_t{1} << 32;
  for (const auto dims : {std::initializer_list<uint64_t>{half, half},
                          {half, half, 4},
                          {uint64_t{1} << 62, 4},
                          {uint64_t{1} << 63}}) {
    testing::RawGraph g;
    const uint32_t x = g.Param(1, DType::kFloat32, dims);
    g.Finish(0, DType::kFloat32, dims, x);
    const absl::Status status = Raw().Ask(PutRequest(g.proto().SerializeAsString()));
    EXPECT_TRUE(IsRefusal(status)) << status;
  }
  RawSession session(connection_->channel());
  const FrozenGraph graph = DoubleGraph(4);
  ASSERT_EQ(session.Ask(PutRequest(GraphBytes(graph.root()))), absl::OkStatus());
  v1::ExecuteRequest run = RunRequest(std::string(ContentHash(graph.root()).view()), {});
  for (int64_t i = 0; i <= kMaxParams; ++i) run.mutable_run()->add_handles(1);
  EXPECT_TRUE(absl::IsResourceExhausted(session.Ask(run)));
  ExpectAlive();
}

// Depth is data: a chain of a million nodes is walked, not descended into.
TEST_F(CveTest, CVE_2025_23310_DepthTakesNoStack) {
  constexpr uint32_t kDepth = 200'000;  // frames of any size are more than a thread's stack
  testing::RawGraph g;
  uint32_t x = g.Param(1, DType::kFloat32, {4});
  for (uint32_t i = 0; i < kDepth; ++i) x = g.Add(Op::kSin, DType::kVoid, {x});
  g.Finish(0, DType::kFloat32, {4}, x);
  const absl::Status put = Raw().Ask(PutRequest(g.proto().SerializeAsString()));
  EXPECT_TRUE(put.ok() || absl::IsResourceExhausted(put)) << put;
  // Messages within messages, of a field that nobody knows.
  std::string nested;
  for (int i = 0; i < 20'000; ++i) {
    std::string head("\x7a");
    for (size_t n = nested.size();; n >>= 7) {
      head.push_back(static_cast<char>(n >= 0x80 ? n | 0x80 : n));
      if (n < 0x80) break;
    }
    nested = head + nested;
  }
  EXPECT_FALSE(Raw().Ask(PutRequest(nested)).ok());
  ExpectAlive();
}

// A path names something below the root, whatever it says.
TEST_F(CveTest, CVE_2026_24208_PathsStayBelowTheRoot) {
  const TemporaryDirectory outside, root;
  std::ofstream(outside.path() / "secret") << "a secret of mine";
  std::ofstream(root.path() / "file") << "for everybody...";
  std::filesystem::create_directory(root.path() / "sub");
  std::filesystem::create_directory_symlink(outside.path(), root.path() / "link");
  std::filesystem::create_symlink(outside.path() / "secret", root.path() / "direct");
  Start({"--disk-root", StrCat("data=", root.path().string())});
  const auto open = [&](const std::string& path) {
    RawSession session(connection_->channel());
    v1::ExecuteRequest alloc = AllocRequest(1, 16);
    alloc.mutable_alloc()->set_device("DISK:data");
    alloc.mutable_alloc()->set_path(path);
    return session.Ask(alloc);
  };
  EXPECT_EQ(open("file"), absl::OkStatus());
  const std::string name = outside.path().filename();
  for (const std::string& path :
       {StrCat("../", name, "/secret"), StrCat("sub/../../", name, "/secret"),
        (outside.path() / "secret").string(), std::string("link/secret"), std::string("direct"),
        StrCat("./../", name, "/secret"), std::string("/proc/self/environ"), std::string(".."),
        std::string("file\0/../../x", 13)}) {
    const absl::Status status = open(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("secret of"))) << path;
  }
}

// The server computes hashes, of all that decides what runs, and does not take a cache's word.
TEST_F(CveTest, GgmlFnv1a_HashesCannotBeForged) {
  const FrozenGraph graph = DoubleGraph(4);
  v1::ExecuteResponse answer;
  RawSession session(connection_->channel());
  ASSERT_EQ(session.Ask(PutRequest(GraphBytes(graph.root())), &answer), absl::OkStatus());
  EXPECT_EQ(answer.put().hash(), ContentHash(graph.root()).view());
  EXPECT_EQ(answer.put().hash().size(), 32u);
  std::string forged = answer.put().hash();
  forged[0] ^= 1;
  v1::ExecuteRequest has;
  has.mutable_has()->set_hash(forged);
  ASSERT_EQ(session.Ask(has, &answer), absl::OkStatus());
  EXPECT_FALSE(answer.has().has());
  ASSERT_EQ(session.Ask(AllocRequest(1, 16)), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(session.Ask(RunRequest(forged, {1, 1}))));
}

TEST_F(CveTest, Ggml28789_DamagedCachesAreNotUsed) {
  const TemporaryDirectory cache;
  const auto run = [&] {
    Start({"--kernel-cache", cache.path().string()});
    const auto session = Session();
    const uint64_t handles[] = {1, 2};
    for (const uint64_t handle : handles) session->Alloc(handle, 16);
    std::vector<float> in = {1, 2, 3, 4}, out(4);
    session->WriteCopy(2, 0, Bytes(in));
    const Digest hash = *session->Put(DoubleGraph(4).root()).Get();
    EXPECT_TRUE(session->Run(hash, handles).Get().ok());
    EXPECT_TRUE(session->Read(1, 0, Writable(out)).Get().ok());
    EXPECT_EQ(out, (std::vector<float>{2, 4, 6, 8}));
    return Stat("telegrad_kernels_compiled_total");
  };
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(run(), 0) << "a whole file is used";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.path())) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-40, std::ios::end);
    file.put('\x0f');
    ++files;
  }
  EXPECT_GT(files, 0);
  EXPECT_EQ(run(), 1);
}

// A model is bytes in a format that is only data: no pickle is loaded and no address visited. (What
// an ONNX file says of other files is import_test's.)
TEST_F(CveTest, CVE_2025_32444_ModelsAreOnlyData) {
  const auto import = [&](const std::string& format, const std::string& data) {
    v1::ExecuteRequest request;
    request.mutable_import()->set_format(format);
    request.mutable_import()->set_first_handle(1);
    request.set_data(data);
    return Raw().Ask(request);
  };
  for (const char* format : {"pickle", "torch", "pytorch", "yaml", "ONNX", "onnx ", "", "url"}) {
    const absl::Status status = import(format, "cos\nsystem\n(S'true'\ntR.");
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("only onnx")) << format;
  }
  for (const char* data : {"http://127.0.0.1:1/model.onnx", "file:///etc/passwd", "/etc/passwd"}) {
    EXPECT_FALSE(import("onnx", data).ok()) << data;
  }
  ExpectAlive();
}

// What a buffer held before it was this session's is not told.
TEST_F(CveTest, CVE_2023_4969_MemoryIsClearedForTheNext) {
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{4096}, uint64_t{1} << 20}) {
    const std::string secret(bytes, 's');
    {
      RawSession first(connection_->channel());
      for (const uint64_t handle : {1, 2, 3}) {
        ASSERT_EQ(first.Ask(AllocRequest(handle, bytes)), absl::OkStatus());
        ASSERT_EQ(first.Ask(WriteRequest(handle, 0, secret)), absl::OkStatus());
      }
      ASSERT_EQ(first.Ask(FreeRequest(2)), absl::OkStatus());
    }
    ASSERT_TRUE(BecomesZero("telegrad_buffers"));
    RawSession second(connection_->channel());
    for (const uint64_t handle : {1, 2, 3}) {
      ASSERT_EQ(second.Ask(AllocRequest(handle, bytes)), absl::OkStatus());
      v1::ExecuteResponse answer;
      ASSERT_EQ(second.Ask(ReadRequest(handle, 0, bytes), &answer), absl::OkStatus());
      EXPECT_EQ(answer.data(), std::string(bytes, '\0')) << handle << " of " << bytes;
    }
  }
}

}  // namespace
}  // namespace telegrad
