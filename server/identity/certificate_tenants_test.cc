// Tenants of certificates: by Telegrad's own URIs, by the file of names, and none where names
// contradict each other.
#include "server/identity/certificate_tenants.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(CertificateTenantsTest, OurUris) {
  const auto tenants = *CertificateTenants::Open("");
  const auto find = [&](std::vector<CertificateName> names) { return tenants->Find(names); };
  EXPECT_EQ(find({{"uri", "telegrad://tenant/a.b"}})->tenant, "a.b");
  EXPECT_FALSE(find({{"uri", "telegrad://tenant/a"}})->admin);
  EXPECT_TRUE(find({{"dns", "x"}, {"uri", "telegrad://tenant/a/admin"}})->admin);
  for (const char* bad : {"telegrad://tenant/", "telegrad://tenant/a/", "telegrad://tenant/a/b",
                          "telegrad://tenant/a/admin/", "telegrad://tenant//admin",
                          "telegrad://tenant/a?b", "Telegrad://tenant/a", "https://tenant/a"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(find({{"uri", bad}}).status())) << bad;
  }
  EXPECT_FALSE(find({{"dns", "telegrad://tenant/a"}}).ok()) << "of another kind";
  EXPECT_FALSE(find({}).ok());
}

TEST(CertificateTenantsTest, Files) {
  const auto rows = CertificateTenants::Parse(
      "# names\n\nuri:spiffe://x/y  research\r\n email:ann@x\tops admin\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->at("uri:spiffe://x/y").tenant, "research");
  EXPECT_TRUE(rows->at("email:ann@x").admin);
  for (const auto& [text, why] : {std::pair("x", "line 1: \"x\"; expected uri:"),
                                  {"\nip:1.2.3.4 a", "line 2: \"ip:1.2.3.4\"; expected uri:"},
                                  {"dns:", "expected uri:"},
                                  {"dns:x", "expected the name of a tenant"},
                                  {"dns:x /", "expected the name of a tenant"},
                                  {"dns:x a root", "expected nothing or \"admin\""},
                                  {"dns:x a admin b", "expected nothing or \"admin\""},
                                  {"dns:x a\ndns:x b", "line 2: there are two lines for dns:x"}}) {
    EXPECT_THAT(std::string(CertificateTenants::Parse(text).status().message()), HasSubstr(why));
  }
  EXPECT_THAT(std::string(CertificateTenants::Open("/dev/null/none").status().message()),
              HasSubstr("/dev/null/none: "));
}

TEST(CertificateTenantsTest, NamesThatContradictAreNobody) {
  const auto tenants = *CertificateTenants::Open("");
  const std::vector<CertificateName> two = {{"uri", "telegrad://tenant/a"},
                                            {"uri", "telegrad://tenant/b"}};
  EXPECT_THAT(std::string(tenants->Find(two).status().message()),
              HasSubstr("belong to different tenants"));
  const std::vector<CertificateName> same = {{"uri", "telegrad://tenant/a"},
                                             {"uri", "telegrad://tenant/a"}};
  EXPECT_TRUE(tenants->Find(same).ok());
}

}  // namespace
}  // namespace telegrad
