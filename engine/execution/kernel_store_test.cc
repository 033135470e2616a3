// What comes out of the store is what was put in, or nothing: whatever happens to its files, and
// whoever else works in the folder.
#include "engine/execution/kernel_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "engine/base/files.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

CompiledKernel Sample(uint64_t seed, size_t size = 300) {
  std::mt19937_64 random(seed);
  CompiledKernel k;
  k.image.name = StrCat("k_", seed);
  for (size_t i = 0; i < size; ++i) k.image.binary += static_cast<char>(random());
  k.arguments = {{DType::kFloat32, 1000 + static_cast<int64_t>(seed), true, false},
                 {DType::kBFloat16, 7, false, true}};
  k.iterations = 12;
  k.flops = 1.5e9;
  k.bytes = 3.25;
  Graph g;
  const UOp load =
      g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(1, DType::kInt64, Shape{2}), g.Index(1)})});
  k.groups = Freeze(g.Make(Op::kMul, {load, g.Index(3)}));
  k.bounds = {.proved = 4, .gated = 5, .data_dependent = 6};
  return k;
}

class KernelStoreTest : public ::testing::Test {
 protected:
  KernelStoreTest()
      : path_(StrCat(testing::TempDir(), "store_", getpid(), "_",
                     testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
  }
  ~KernelStoreTest() override { fs::remove_all(path_); }

  std::unique_ptr<KernelStore> Open(int64_t bytes = 1 << 20) {
    return *KernelStore::Open({path_, {.bytes = bytes, .files = 1000}, nullptr});
  }
  std::string FileOf(std::string_view key) const {
    return path_ + "/" + KernelStore::FileName(key);
  }
  static std::string Content(const std::string& file) { return *ReadFile(file); }
  static void Replace(const std::string& file, const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }

  const std::string path_;
};

TEST_F(KernelStoreTest, GivesBackEveryMember) {
  const CompiledKernel kernel = Sample(1);
  Open()->Put("key", kernel);
  const auto store = Open();
  const auto back = store->Get("key");
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(Encode(*back), Encode(kernel));
  EXPECT_EQ(back->image.name, kernel.image.name);
  EXPECT_EQ(back->image.binary, kernel.image.binary);
  ASSERT_EQ(back->arguments.size(), 2u);
  EXPECT_EQ(back->arguments[1].dtype, DType::kBFloat16);
  EXPECT_EQ(back->arguments[1].elements, 7);
  EXPECT_TRUE(back->arguments[1].written && !back->arguments[1].read);
  EXPECT_EQ(back->iterations, 12);
  EXPECT_EQ(back->flops, 1.5e9);
  EXPECT_EQ(back->bytes, 3.25);
  ASSERT_TRUE(back->groups.has_value());
  EXPECT_EQ(ValueOf(*back->groups, std::vector<int64_t>{5, 7}), 21);
  EXPECT_EQ(ValueOf(*back->groups, std::vector<int64_t>{5}), std::nullopt);
  EXPECT_EQ(back->bounds.data_dependent, 6);
  EXPECT_FALSE(store->Get("another key").has_value());
  EXPECT_EQ(store->stats().hits, 1u);
  EXPECT_EQ(store->stats().misses, 1u);
  EXPECT_EQ(store->stats().rejected, 0u);
  EXPECT_GT(store->stats().bytes, 300);
}

// Magic, version, checksum, key, kernel: no byte may differ, be missing or be too many.
TEST_F(KernelStoreTest, AnyDamageIsAMissAndRemovesTheFile) {
  const auto store = Open();
  store->Put("key", Sample(2));
  const std::string file = FileOf("key"), whole = Content(file);
  uint64_t rejected = 0;
  const auto damaged = [&](const std::string& content) {
    Replace(file, content);
    EXPECT_FALSE(store->Get("key").has_value());
    EXPECT_FALSE(fs::exists(file));
    EXPECT_EQ(store->stats().rejected, ++rejected);
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string content = whole;
    content[i] = static_cast<char>(content[i] ^ (1 << i % 8));
    damaged(content);
  }
  for (size_t size = 0; size < whole.size(); ++size) damaged(whole.substr(0, size));
  damaged(whole + '\0');
  damaged(whole + whole);
  damaged(std::string(whole.size(), '\0'));  // as a power cut leaves it
  Replace(file, whole);
  EXPECT_TRUE(store->Get("key").has_value());
}

TEST_F(KernelStoreTest, AFileUnderAnotherNameIsAMiss) {
  const auto store = Open();
  store->Put("key", Sample(3));
  fs::copy(FileOf("key"), FileOf("other key"));
  EXPECT_FALSE(store->Get("other key").has_value());
  EXPECT_EQ(store->stats().rejected, 1u);
  EXPECT_TRUE(store->Get("key").has_value());
}

TEST_F(KernelStoreTest, RandomDamageNeverComesThrough) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto store = Open();
  const CompiledKernel kernel = Sample(4);
  store->Put("key", kernel);
  const std::string file = FileOf("key"), whole = Content(file);
  for (int round = 0; round < 3000; ++round) {
    std::string content = whole;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % content.size();
      switch (random() % 4) {
        case 0:
          content[at] = static_cast<char>(random());
          break;
        case 1:
          content.erase(at, 1 + random() % 16);
          break;
        case 2:
          content.insert(at, std::string(1 + random() % 16, static_cast<char>(random())));
          break;
        default:
          content.replace(at, 8, whole.substr(random() % whole.size(), 8));
      }
      if (content.empty()) break;
    }
    Replace(file, content);
    EXPECT_EQ(store->Get("key").has_value(), content == whole);
  }
  // With the checksum of the damaged rest, only what Encode makes decodes.
  const std::string encoded = Encode(kernel);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = encoded;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 2 == 0) bytes.resize(random() % bytes.size());
    const auto decoded = DecodeCompiledKernel(bytes);
    EXPECT_TRUE(!decoded || Encode(*decoded) == bytes);
  }
}

TEST_F(KernelStoreTest, AFailingDiskIsReportedOnceAndCounted) {
  int reports = 0;
  const auto store =
      *KernelStore::Open({path_, {.bytes = 2000, .files = 10}, [&](const absl::Status& status) {
                            ++reports;
                            EXPECT_FALSE(status.ok());
                          }});
  store->Put("large", Sample(5, 5000));
  store->Put("large too", Sample(6, 5000));
  EXPECT_EQ(reports, 1);
  store->Put("small", Sample(7));
  store->Put("large", Sample(5, 5000));
  EXPECT_EQ(reports, 2);
  EXPECT_EQ(store->stats().write_errors, 3u);
  EXPECT_TRUE(store->Get("small").has_value());
  EXPECT_FALSE(store->Get("large").has_value());
}

// Several processes put, get, damage and evict in one folder of too few bytes. Whatever one gets is
// right, and at the end only the last writes may be beyond the limit.
TEST_F(KernelStoreTest, ProcessesShareAFolder) {
  constexpr int kProcesses = 4, kRounds = 400, kKeys = 40;
  constexpr int64_t kBytes = 40'000;  // of about 4000 each
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Open(kBytes);
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    std::mt19937_64 random(seed + static_cast<uint64_t>(p));
    const auto store = Open(kBytes);
    int good = 0;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t id = random() % kKeys;
      const std::string key = StrCat("key ", id);
      const CompiledKernel kernel = Sample(id, 3800);
      if (random() % 16 == 0) Replace(FileOf(key), "damaged");
      if (const auto got = store->Get(key)) {
        if (Encode(*got) != Encode(kernel)) _exit(1);
        ++good;
      } else {
        store->Put(key, kernel);
      }
    }
    _exit(good > 0 && store->stats().write_errors == 0 ? 0 : 2);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const auto store = Open(kBytes);
  EXPECT_LE(store->stats().bytes, kBytes);
  for (const auto& entry : fs::directory_iterator(path_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
}

}  // namespace
}  // namespace telegrad
