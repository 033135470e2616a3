// Quotas, the file of tenants, and the directory that finds tenants by name and drops idle ones.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/identity/principal.h"
#include "server/tenant/tenant_directory.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Quotas, AreNamedAndHaveUnits) {
  Quotas quotas;
  EXPECT_EQ(quotas[Quota::kSessions], 256);
  EXPECT_TRUE(quotas.Set("sessions=7").ok());
  EXPECT_TRUE(quotas.Set(" device_memory = 3 GiB").ok());
  EXPECT_TRUE(quotas.Set("graphs=0").ok());
  EXPECT_EQ(quotas[Quota::kSessions], 7);
  EXPECT_EQ(quotas[Quota::kDeviceMemory], int64_t{3} << 30);
  EXPECT_EQ(quotas[Quota::kGraphs], 0);
  for (const std::string_view wrong :
       {"sessions", "=1", "Sessions=1", "sessions=", "sessions=-1", "sessions=1.5", "sessions=1k",
        "sessions=9223372036854775808", "sessions=8388608TiB", "sessions=KiB", "sessions=1=1",
        "sessions=+1", "sessions=0x10"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(quotas.Set(wrong))) << wrong;
  }
  EXPECT_THAT(std::string(quotas.Set("nonsense=1").message()),
              HasSubstr("unknown quota \"nonsense\"; there are device_memory, "));
  EXPECT_EQ(quotas[Quota::kSessions], 7) << "as it was";
  EXPECT_EQ(quotas.Set("weight=0").message(), "weight: 0 is too small; expected at least 1");
  EXPECT_TRUE(quotas.Set("weight=3").ok());
  EXPECT_EQ(quotas.Set("weight=9223372036854775807").message(),
            "weight: 9223372036854775807 is too large; expected at most 10000");
}

TEST(TenantFile, GivesEachItsOwn) {
  Quotas defaults;
  defaults[Quota::kGraphs] = 5;
  const auto table = ParseTenants(
      "# who pays\n"
      "[*]\r\n"
      "sessions = 1  # one each\n"
      "\n"
      "[alice]\n"
      "  device_memory = 2GiB\n"
      "[bob-2.x_y]",
      "file", defaults);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->from_file);
  ASSERT_EQ(table->named.size(), 2u);
  const Quotas& alice = table->named.at("alice");
  EXPECT_EQ(alice[Quota::kDeviceMemory], int64_t{2} << 30);
  EXPECT_EQ(alice[Quota::kSessions], 256) << "[*] is for others";
  EXPECT_EQ(alice[Quota::kGraphs], 5);
  ASSERT_TRUE(table->others);
  EXPECT_EQ((*table->others)[Quota::kSessions], 1);
  EXPECT_EQ(table->named.count("bob-2.x_y"), 1u);
  EXPECT_FALSE(ParseTenants("[alice]", "file", defaults)->others);
}

TEST(TenantFile, SaysWhereItIsWrong) {
  const struct {
    std::string_view text, error;
  } kCases[] = {
      {"sessions = 1", "f:1: a quota stands before the first section"},
      {"\n[a]\nsessions", "f:3: \"sessions\" is not NAME=VALUE"},
      {"[a]\nmodels = ../x", "f:2: models: \"../x\" is not a model's name"},
      {"[a]\nacts_for = b/c", "f:2: acts_for: \"b/c\" is not the name of a tenant"},
      {"[a]\nsession = 1", "f:2: unknown quota \"session\""},
      {"[a]\nsessions = x", "f:2: sessions: \"x\" is not a whole number"},
      {"[a]\nsessions = 1\nsessions = 2", "f:3: a second sessions in this section"},
      {"[a]\n[b]\n[a]", "f:3: a second section [a]"},
      {"[*]\n[*]", "f:2: there are two sections [*]"},
      {"[a", "f:1: expected a section header, [NAME] or [*]"},
      {"[a b]", "f:1: \"a b\" is not the name of a tenant"},
      {"[]", "f:1: \"\" is not the name of a tenant"},
      {"[\x1b]", "f:1: \"?\" is not the name of a tenant"},
  };
  for (const auto& c : kCases) {
    const auto table = ParseTenants(c.text, "f", {});
    EXPECT_TRUE(absl::IsInvalidArgument(table.status())) << c.text;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(c.error));
  }
  EXPECT_THAT(std::string(ReadTenants("/nowhere/at/all", {}).status().message()),
              HasSubstr("cannot read /nowhere/at/all: No such file"));
  EXPECT_THAT(std::string(ReadTenants("/proc", {}).status().message()),
              HasSubstr("cannot read /proc: Is a directory"));
}

TEST(TenantNames, FitIntoAFileAndALabel) {
  for (const std::string_view name : {"a", "7", "alice", "a.b-c_d", "Team.1"}) {
    EXPECT_TRUE(IsTenantName(name)) << name;
  }
  const std::string longest(64, 'a');
  EXPECT_TRUE(IsTenantName(longest));
  for (const std::string& name :
       {std::string(), longest + "a", std::string("-a"), std::string("*"), std::string("a b"),
        std::string("a\"b"), std::string("a\0b", 3), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(IsTenantName(name)) << name;
  }
}

class DirectoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<TenantDirectory> Directory(std::string_view file, int64_t idle) {
    return std::make_unique<TenantDirectory>(
        *ParseTenants(file, "file", {}), idle,
        [this](const Accounts&) {
          ++engines_;
          return std::make_shared<fakes::CopyEngine>();
        },
        &metrics_, &clock_);
  }
  fakes::ManualClock clock_;
  Metrics metrics_;
  int engines_ = 0;
};

TEST_F(DirectoryTest, FindsTheSameForTheSameName) {
  const auto directory = Directory("[alice]\nsessions=1\n[*]\nsessions=2", 10);
  const auto alice = *directory->Find("alice");
  EXPECT_EQ(alice, *directory->Find("alice"));
  EXPECT_EQ(alice->name, "alice");
  EXPECT_EQ(alice->accounts[Quota::kSessions].limit(), 1);
  const auto bob = *directory->Find("bob"), carol = *directory->Find("carol");
  EXPECT_NE(bob, carol) << "who share a section share nothing else";
  EXPECT_EQ(bob->accounts[Quota::kSessions].limit(), 2);
  EXPECT_TRUE(bob->accounts[Quota::kSessions].TryReserve(2));
  EXPECT_EQ(carol->accounts[Quota::kSessions].used(), 0);
  bob->accounts[Quota::kSessions].Release(2);
  EXPECT_EQ(engines_, 3);
  std::vector<std::string> names;
  for (const auto& tenant : directory->All()) names.push_back(tenant->name);
  EXPECT_THAT(names, ElementsAre("alice", "bob", "carol"));
}

TEST_F(DirectoryTest, ServesOnlyWhomTheFileNames) {
  const auto directory = Directory("[alice]", 10);
  EXPECT_TRUE(directory->Find("alice").ok());
  for (const std::string_view name : {"bob", "", "*", "alice\n"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(directory->Find(name).status())) << name;
  }
  EXPECT_EQ(directory->All().size(), 1u);
}

TEST_F(DirectoryTest, ActsForWhomTheFileNames) {
  const auto directory = Directory("[front]\nacts_for = alice bob\n[root]\nacts_for = *\n[*]", 10);
  EXPECT_TRUE(directory->CheckActsFor("front", "alice").ok());
  EXPECT_TRUE(directory->CheckActsFor("front", "bob").ok());
  EXPECT_TRUE(directory->CheckActsFor("root", "anybody").ok());
  EXPECT_TRUE(directory->CheckActsFor("alice", "alice").ok()) << "everybody acts for itself";
  const std::pair<std::string_view, std::string_view> kRefused[] = {
      {"front", "carol"}, {"alice", "front"}, {"root", "not a name"}};
  for (const auto& [front, tenant] : kRefused) {
    EXPECT_TRUE(absl::IsPermissionDenied(directory->CheckActsFor(front, tenant))) << tenant;
  }
  directory->Replace(*ParseTenants("[*]", "file", {}));
  EXPECT_TRUE(absl::IsPermissionDenied(directory->CheckActsFor("front", "alice")));
}

TEST_F(DirectoryTest, ModelsAreThoseOfTheFile) {
  const auto directory = Directory("[alice]\nmodels = add team-*\n[bob]\n[local]\n[*]", 10);
  const auto alice = *directory->Find("alice");
  EXPECT_TRUE(alice->MayInfer("add") && alice->MayInfer("team-") && alice->MayInfer("team-x"));
  EXPECT_FALSE(alice->MayInfer("adder") || alice->MayInfer("team") || alice->MayInfer(""));
  EXPECT_FALSE((*directory->Find("bob"))->MayInfer("add"));
  EXPECT_TRUE((*directory->Find("local"))->MayInfer("add"));
  directory->Replace(*ParseTenants("[*]\nmodels = sub", "file", {}));
  EXPECT_FALSE(alice->MayInfer("add"));
  EXPECT_TRUE(alice->MayInfer("sub"));
}

TEST_F(DirectoryTest, ErrorsSayWhereTheQuotaIs) {
  const auto directory = Directory("[alice]\nsessions=1\n[*]", 10);
  EXPECT_EQ((*directory->Find("alice"))->accounts[Quota::kSessions].Refuse(2).message(),
            "sessions of tenant alice is limited to 1: 0 in use, 2 more asked for; raise it with "
            "sessions = VALUE below [alice] in the file of --tenants");
  EXPECT_THAT(std::string((*directory->Find("bob"))->accounts[Quota::kGraphs].Refuse(1).message()),
              HasSubstr("graphs = VALUE below [*] in the file"));
  TenantDirectory any({}, 1, [](const Accounts&) { return nullptr; }, &metrics_);
  EXPECT_THAT(std::string((*any.Find("bob"))->accounts[Quota::kGraphs].Refuse(1).message()),
              HasSubstr("raise it with --default-quota graphs=VALUE"));
}

TEST_F(DirectoryTest, DropsTheOneIdleLongest) {
  const auto directory = Directory("[*]", 2);
  const auto used = *directory->Find("used");
  for (const std::string_view name : {"a", "b", "c"}) ASSERT_TRUE(directory->Find(name).ok());
  EXPECT_EQ(directory->All().size(), 4u) << "c was in use when the last was made";
  ASSERT_TRUE(directory->Find("a").ok());
  std::weak_ptr<Tenant> a = *directory->Find("a"), b = *directory->Find("b"),
                        c = *directory->Find("c");
  ASSERT_TRUE(directory->Find("a").ok());
  const auto d = *directory->Find("d");
  EXPECT_TRUE(b.expired()) << "asked for before c and a";
  EXPECT_FALSE(a.expired());
  EXPECT_FALSE(c.expired());
  EXPECT_EQ(used, *directory->Find("used"));
}

TEST_F(DirectoryTest, ManyThreadsFindOneTenant) {
  const auto directory = Directory("[*]", 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto tenant = *directory->Find(i % 2 == 0 ? "even" : "odd");
        Account& sessions = tenant->accounts[Quota::kSessions];
        sessions.Charge(1);
        EXPECT_EQ(tenant, *directory->Find(tenant->name)) << "while somebody holds it";
        sessions.Release(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(directory->All().size(), 2u);
}

constexpr int64_t kMs = 1'000'000;

// Whoever has a tenant's share, as queues have, finds the new weight in it.
TEST_F(DirectoryTest, WhatIsReplacedHoldsForThoseInUse) {
  const auto directory =
      Directory("[a]\nweight=2\ndevice_rate=10\ndevice_burst=100\n[*]\ncompile_burst=5", 10);
  const auto a = *directory->Find("a"), b = *directory->Find("b");
  const std::shared_ptr<const Share> share = a->share;
  EXPECT_EQ(share->weight(), 2);
  auto taken = a->TakeDeviceTime(50 * kMs, clock_.Ns());
  ASSERT_TRUE(taken.ok());
  directory->Replace(
      *ParseTenants("[a]\nweight=7\ndevice_rate=20\ndevice_burst=40\n"
                    "[*]\nweight=3\ncompile_rate=0\ncompile_burst=0",
                    "file", {}));
  EXPECT_EQ(share->weight(), 7);
  EXPECT_EQ(b->share->weight(), 3);
  EXPECT_EQ(a->device_time->overdrawn(clock_.Ns()), 10);
  EXPECT_EQ(a->TakeDeviceTime(1, clock_.Ns()).status().message(),
            "device_rate of tenant a is limited to 20 ms in each second, device_burst to 40 ms: 10 "
            "ms more have been used; try again in 501 ms, or raise it with device_rate = VALUE "
            "below [a] in the file of --tenants");
  EXPECT_TRUE(absl::IsResourceExhausted(b->TakeCompileTime(clock_.Ns())));
}

TEST_F(DirectoryTest, WhoIsDroppedKeepsItsDebts) {
  const auto directory = Directory("[*]\ndevice_rate=1000\ndevice_burst=10", 0);
  std::weak_ptr<const Share> share;
  std::shared_ptr<const Share> in_a_queue;
  {
    const auto tenant = *directory->Find("t");
    auto taken = tenant->TakeDeviceTime(510 * kMs, clock_.Ns());
    ASSERT_TRUE(taken.ok());
    taken->Keep();
    tenant->compile_time->Correct(0, 70'000 * kMs);
    share = in_a_queue = tenant->share;
  }
  ASSERT_TRUE(directory->Find("other").ok());
  ASSERT_TRUE(directory->Find("another").ok());
  clock_.Advance(100 * kMs);
  const auto again = *directory->Find("t");
  EXPECT_EQ(engines_, 4) << "it had been dropped";
  EXPECT_EQ(again->device_time->overdrawn(clock_.Ns()), 400);
  EXPECT_EQ(again->TakeDeviceTime(1, clock_.Ns()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(again->share, in_a_queue) << "by which a queue knows what it owes";
}

// So that who can have many names cannot make the directory remember all of them.
TEST_F(DirectoryTest, DebtsThatAreSettledAreForgotten) {
  const auto directory = Directory("[*]", 0);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(directory->Find("t" + std::to_string(i)).ok());
    EXPECT_LE(directory->remembered(), 130u);
  }
}

}  // namespace
}  // namespace telegrad
