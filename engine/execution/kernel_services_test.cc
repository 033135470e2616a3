// What the kernel cache does with the compiler, the store and the reports that it is given.
#include "engine/execution/kernel_services.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "devices/cpu/cpu_device.h"
#include "engine/base/byte_codec.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// Fails on demand, and says who it is.
class TestCompiler final : public KernelCompiler {
 public:
  explicit TestCompiler(std::string identity) : identity_(std::move(identity)) {}
  absl::StatusOr<ProgramImage> Compile(const std::string& llvm_ir, const std::string& name,
                                       const Target& target, Budget*) override {
    ++calls;
    if (!error.ok()) return error;
    return telegrad::Compile(llvm_ir, name, target);
  }
  const std::string& identity() const override { return identity_; }

  absl::Status error;
  int calls = 0;

 private:
  const std::string identity_;
};

class KernelServicesTest : public ::testing::Test {
 protected:
  KernelServicesTest() : path_(StrCat(testing::TempDir(), "services_", getpid())) {
    CpuOptions options;
    options.target = HostTarget(1);
    options.threads = 1;
    device_ = *OpenCpu(options);
    services_ = {compiler_, OpenStore(),
                 [this](const FailedKernel& kernel) { failed_.push_back(kernel); }};
  }
  ~KernelServicesTest() override { std::filesystem::remove_all(path_); }

  std::shared_ptr<KernelStore> OpenStore() { return *KernelStore::Open({path_, {}, nullptr}); }

  // out (slot 1) = in (slot 0) + addend, of 8 floats, run by a new cache, as a new daemon has.
  absl::StatusOr<float> Run(double addend) {
    Graph g;
    const Shape shape{8};
    const UOp in = g.Param(0, DType::kFloat32, shape), out = g.Param(1, DType::kFloat32, shape);
    const UOp sum = g.Make(Op::kAdd, {in, g.ConstFloat(DType::kFloat32, addend)});
    const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})}));
    ExecutableCache cache({}, services_);
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto result,
                        cache.Get(ContentHash(graph.root()), graph, *device_, &budget));
    compiled_ = cache.stats().kernels_compiled;
    lower_ns_ = cache.stats().lower_ns;
    const BufferView buffers[] = {{*device_->Alloc(32), 0, 32}, {*device_->Alloc(32), 0, 32}};
    TG_ASSIGN_OR_RETURN(const TimelinePoint done, result.executable->Submit(buffers, {}));
    TG_RETURN_IF_ERROR(done.Wait());
    return static_cast<float*>(buffers[1].memory->host())[7];
  }

  const std::string path_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<TestCompiler> compiler_ = std::make_shared<TestCompiler>("a compiler");
  KernelServices services_;
  std::vector<FailedKernel> failed_;
  uint64_t compiled_ = 0, lower_ns_ = 0;
};

TEST_F(KernelServicesTest, AWarmStartNeitherLowersNorCompiles) {
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 1u);
  services_.store = OpenStore();
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 0u);
  EXPECT_EQ(lower_ns_, 0u);
  EXPECT_EQ(compiler_->calls, 1);
  EXPECT_EQ(services_.store->stats().hits, 1u);
  EXPECT_EQ(*Run(4), 4.0f);
  EXPECT_EQ(compiler_->calls, 2);
}

TEST_F(KernelServicesTest, AnotherCompilerOrTargetFindsNothing) {
  EXPECT_EQ(*Run(3), 3.0f);
  services_.compiler = std::make_shared<TestCompiler>("another compiler");
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 1u);
  services_.compiler = compiler_;
  CpuOptions options;
  options.target = HostTarget(2);
  options.threads = 2;
  device_ = *OpenCpu(options);
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 1u);
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 0u);
}

TEST_F(KernelServicesTest, WithoutAnIdentityNothingIsKept) {
  services_.compiler = std::make_shared<TestCompiler>("");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*Run(3), 3.0f);
    EXPECT_EQ(compiled_, 1u);
  }
  EXPECT_TRUE(std::filesystem::is_empty(path_));
}

// The file is whole and has the right key, but no device loads what is in it.
TEST_F(KernelServicesTest, AnObjectThatDoesNotLoadIsReplaced) {
  EXPECT_EQ(*Run(3), 3.0f);
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) file = entry.path();
  const std::string content = *ReadFile(file);
  ByteReader body(std::string_view(content).substr(40));
  const std::string key(body.Text());
  auto kernel = services_.store->Get(key);
  ASSERT_TRUE(kernel.has_value());
  kernel->image.binary.resize(kernel->image.binary.size() / 2);
  services_.store->Put(key, *kernel);
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 1u);
  EXPECT_EQ(services_.store->stats().rejected, 1u);
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(compiled_, 0u);
}

TEST_F(KernelServicesTest, AFailureOfOursLeavesAReproducer) {
  compiler_->error =
      absl::InternalError("kernel k: its compiler was ended by signal 11\nand said so");
  const absl::Status status = Run(3).status();
  EXPECT_EQ(status, compiler_->error);
  ASSERT_EQ(failed_.size(), 1u);
  const FailedKernel& failed = failed_[0];
  EXPECT_EQ(failed.status, status);
  EXPECT_THAT(failed.reproducer, HasSubstr(failed.name));
  EXPECT_THAT(failed.reproducer, HasSubstr("# and said so\n"));
  EXPECT_THAT(failed.reproducer, HasSubstr(failed.replay_flags));
  EXPECT_THAT(failed.replay_flags, HasSubstr(device_->target().Key()));
  // The text is the kernel itself.
  Graph g;
  const auto kernel = Parse(failed.reproducer, &g);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(failed.name, "k_" + ContentHash(*kernel).Hex().substr(0, 16));
  // It is not remembered: the next attempt may work.
  compiler_->error = absl::OkStatus();
  EXPECT_EQ(*Run(3), 3.0f);
  EXPECT_EQ(failed_.size(), 1u);
}

TEST_F(KernelServicesTest, AClientsErrorIsNoFailureOfOurs) {
  compiler_->error = absl::ResourceExhaustedError("too much");
  EXPECT_TRUE(absl::IsResourceExhausted(Run(3).status()));
  EXPECT_TRUE(failed_.empty());
}

}  // namespace
}  // namespace telegrad
