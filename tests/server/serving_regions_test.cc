// Inputs and outputs in shared memory, and the names and sizes of regions that are refused.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "engine/base/unique_fd.h"
#include "server/serving/shared_regions.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Memory with a name, as a client makes it.
class ClientMemory {
 public:
  ClientMemory(const std::string& key, size_t bytes) : key_(key) {
    shm_unlink(key.c_str());
    fd_ = UniqueFd(shm_open(key.c_str(), O_CREAT | O_RDWR | O_EXCL, 0600));
    EXPECT_TRUE(fd_.valid()) << key << ": " << std::strerror(errno);
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
  }
  ~ClientMemory() { shm_unlink(key_.c_str()); }
  void Cut(size_t bytes) { EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0); }
  void Put(const std::vector<float>& values) {
    const auto bytes = static_cast<ssize_t>(values.size() * sizeof(float));
    EXPECT_EQ(pwrite(fd_.get(), values.data(), values.size() * sizeof(float), 0), bytes);
  }
  std::vector<float> Get(size_t at, size_t count) {
    std::vector<float> out(count);
    const auto bytes = static_cast<ssize_t>(count * sizeof(float));
    EXPECT_EQ(
        pread(fd_.get(), out.data(), count * sizeof(float), static_cast<off_t>(at * sizeof(float))),
        bytes);
    return out;
  }
  off_t size() const { return lseek(fd_.get(), 0, SEEK_END); }
  const std::string& key() const { return key_; }

 private:
  const std::string key_;
  UniqueFd fd_;
};

class ServingRegionsTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    StartServing({"--models-shared-memory", prefix_});
    ASSERT_TRUE(BecomesReady("add"));
  }
  std::string Key(const std::string& rest) const { return StrCat("/", prefix_, "local@", rest); }
  absl::Status Register(const std::string& name, const std::string& key, uint64_t offset,
                        uint64_t bytes) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    inference::SystemSharedMemoryRegisterResponse response;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_byte_size(bytes);
    return FromGrpc(stub_->SystemSharedMemoryRegister(&context, request, &response));
  }
  inference::SystemSharedMemoryStatusResponse Regions() {
    grpc::ClientContext context;
    inference::SystemSharedMemoryStatusResponse response;
    EXPECT_TRUE(stub_->SystemSharedMemoryStatus(&context, {}, &response).ok());
    return response;
  }
  template <typename Tensor>
  static void In(const std::string& region, int64_t bytes, int64_t offset, Tensor* tensor) {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"].set_string_param(region);
    parameters["shared_memory_byte_size"].set_int64_param(bytes);
    parameters["shared_memory_offset"].set_int64_param(offset);
  }
  static inference::ModelInferRequest FromRegion(const std::string& region, int64_t bytes,
                                                 int64_t offset) {
    auto request = Floats("add", {1, 4}, {});
    request.clear_raw_input_contents();
    In(region, bytes, offset, request.mutable_inputs(0));
    return request;
  }
  void ExpectRefused(const inference::ModelInferRequest& request, const std::string& says) {
    const absl::Status status = Infer(request).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }

  const std::string prefix_ = StrCat("tg", getpid(), "-");
};

TEST_F(ServingRegionsTest, InputsAndOutputsAreInSharedMemory) {
  ClientMemory memory(Key("a"), 64);
  memory.Put({9, 1, 2, 3, 4});
  ASSERT_TRUE(Register("r", memory.key(), 4, 60).ok());
  auto request = FromRegion("r", 16, 0);
  auto* output = request.add_outputs();
  output->set_name("y");
  In("r", 20, 16, output);
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(memory.Get(5, 5), ElementsAre(2, 3, 4, 5, 0));
  EXPECT_THAT(memory.Get(0, 5), ElementsAre(9, 1, 2, 3, 4));
  EXPECT_THAT(response->raw_output_contents(), ElementsAre(""));
  const auto& parameters = response->outputs(0).parameters();
  EXPECT_EQ(parameters.at("shared_memory_region").string_param(), "r");
  EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), 16);
  EXPECT_EQ(Regions().regions().at("r").byte_size(), 60u);
  grpc::ClientContext context;
  inference::SystemSharedMemoryUnregisterRequest all;
  inference::SystemSharedMemoryUnregisterResponse gone;
  EXPECT_TRUE(stub_->SystemSharedMemoryUnregister(&context, all, &gone).ok());
  EXPECT_EQ(Regions().regions_size(), 0);
  ExpectRefused(request, "no shared memory region 'r'");
}

// Requests name a region that comes, becomes shorter and is unregistered meanwhile: each is
// answered, with the values or with an error that names the region.
TEST_F(ServingRegionsTest, RegionsThatGoWhileRequestsNameThem) {
  ClientMemory memory(Key("a"), 64);
  memory.Put({0, 1, 2, 3});
  auto request = FromRegion("r", 16, 0);
  auto* output = request.add_outputs();
  output->set_name("y");
  In("r", 16, 16, output);
  std::atomic<bool> over = false;
  std::thread owner([&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(Register("r", memory.key(), 0, 64).ok());
      memory.Cut(i % 2 == 0 ? 8 : 64);
      memory.Cut(64);
      grpc::ClientContext context;
      inference::SystemSharedMemoryUnregisterRequest all;
      inference::SystemSharedMemoryUnregisterResponse gone;
      EXPECT_TRUE(stub_->SystemSharedMemoryUnregister(&context, all, &gone).ok());
    }
    over = true;
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      while (!over) {
        const absl::Status status = Infer(request).status();
        if (!status.ok()) EXPECT_THAT(std::string(status.message()), HasSubstr("region 'r'"));
      }
    });
  }
  owner.join();
  for (std::thread& client : clients) client.join();
  memory.Put({0, 1, 2, 3});
  ASSERT_TRUE(Register("r", memory.key(), 0, 64).ok());
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_THAT(memory.Get(4, 4), ElementsAre(1, 2, 3, 4));
}

// Names of the memory of others, of the server itself, and such as lead out of their folder.
TEST_F(ServingRegionsTest, KeysThatAreNotTheTenants) {
  const ClientMemory others(StrCat("/", prefix_, "alice@a"), 64);
  const ClientMemory elsewhere(StrCat("/x", prefix_, "local"), 64);
  const ClientMemory own(Key("own"), 64);
  const std::string keys[] = {others.key(),
                              elsewhere.key(),
                              own.key().substr(1),
                              "",
                              "/",
                              Key(""),
                              Key("../../etc/passwd"),
                              Key("a/b"),
                              Key("missing"),
                              std::string("/") + std::string(5000, 'a'),
                              Key(std::string("own\0x", 5)),
                              "/dev/shm/" + own.key()};
  for (const std::string& key : keys) {
    const absl::Status status = Register("r", key, 0, 16);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << key << ": " << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Register("", own.key(), 0, 16)));
  EXPECT_TRUE(Register("r", own.key(), 0, 16).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Register("r", own.key(), 0, 16)));
}

TEST_F(ServingRegionsTest, SizesThatAreNotThere) {
  ClientMemory memory(Key("s"), 64);
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, 65},
                                      {64, 1},
                                      {65, 0},
                                      {UINT64_MAX, 1},
                                      {1, UINT64_MAX},
                                      {UINT64_MAX, UINT64_MAX}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Register("r", memory.key(), offset, bytes)));
  }
  ASSERT_TRUE(Register("r", memory.key(), 0, 64).ok());
  for (const auto& [bytes, offset] : {std::pair<int64_t, int64_t>{65, 0},
                                      {16, 49},
                                      {16, INT64_MAX},
                                      {INT64_MAX, 16},
                                      {-16, 0},
                                      {16, -1}}) {
    ExpectRefused(FromRegion("r", bytes, offset), "region 'r' has 64 bytes");
  }
  ExpectRefused(FromRegion("r", 12, 0), "has 12 bytes, expected 16");
  auto both = FromRegion("r", 16, 0);
  both.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  ExpectRefused(both, "has contents although");
  auto raw = FromRegion("r", 16, 0);
  raw.add_raw_input_contents("raw");
  ExpectRefused(raw, "1 raw_input_contents for 0 inputs");
  auto small = Floats("add", {1, 4}, {0, 1, 2, 3});
  auto* output = small.add_outputs();
  output->set_name("y");
  In("r", 12, 0, output);
  ExpectRefused(small, "room for 12");
  // Who makes it smaller gets an error, and it does not grow again.
  memory.Cut(8);
  ExpectRefused(FromRegion("r", 16, 0), "has become shorter");
  In("r", 16, 0, output);
  ExpectRefused(small, "has become shorter");
  EXPECT_EQ(memory.size(), 8);
}

TEST_F(ServingRegionsTest, RegionsOfOneTenantAreLimited) {
  const ClientMemory memory(Key("m"), 64);
  for (size_t i = 0; i < SharedRegions::kMost; ++i) {
    ASSERT_TRUE(Register(StrCat("r", i), memory.key(), 0, 16).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Register("more", memory.key(), 0, 16)));
}

}  // namespace
}  // namespace telegrad
