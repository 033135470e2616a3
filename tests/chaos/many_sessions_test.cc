// What a session costs the daemon while it does nothing, and what it leaves behind: by the resident
// memory of its process.
//
// TELEGRAD_CHAOS_CYCLES is the number of sessions that come and go; run.sh does 100,000.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "engine/base/sanitizers.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

class ManySessionsTest : public DaemonTest {
 protected:
  int64_t Resident() const {
    std::ifstream statm(StrCat("/proc/", daemon_->pid(), "/statm"));
    int64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }
  std::unique_ptr<RemoteSession> Open(bool resumable) {
    auto session = *connection_->OpenSession({.resumable = resumable});
    EXPECT_TRUE(session->Sync().Get().ok()) << session->status();
    return session;
  }
};

TEST_F(ManySessionsTest, IdleSessionsAreSmall) {
  constexpr int kSessions = 1000;
  Open(true);
  const int64_t before = Resident();
  std::vector<std::unique_ptr<RemoteSession>> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(Open(i % 2 == 0));
  const int64_t each = (Resident() - before) / kSessions;
  EXPECT_EQ(Stat("telegrad_sessions"), kSessions);
  EXPECT_LT(each, 64 << 10);
  std::printf("%lld bytes for each of %d idle sessions\n", static_cast<long long>(each), kSessions);
  sessions.clear();
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
}

TEST_F(ManySessionsTest, ComingAndGoingLeavesNothing) {
  const char* const text = std::getenv("TELEGRAD_CHAOS_CYCLES");
  const int cycles = text == nullptr ? 3000 : std::atoi(text);
  int64_t before = 0;
  for (int i = 0; i < cycles; ++i) {
    if (i == 1000) before = Resident();  // what is kept for reuse is there by now
    const auto session = Open(i % 2 == 0);
    session->Alloc(1, 4096);
  }
  const int64_t grown = Resident() - before;
  // AddressSanitizer keeps what was freed, to find later uses of it.
  if (!kAddressSanitizer) EXPECT_LT(grown, 4 << 20);
  std::printf("%d sessions opened and closed: %lld bytes more\n", cycles,
              static_cast<long long>(grown));
  EXPECT_GE(Stat("telegrad_sessions_opened_total"), cycles);
  for (const char* name : {"telegrad_sessions", "telegrad_buffers", "telegrad_buffer_bytes",
                           "telegrad_staged_bytes", "telegrad_device_memory_used_bytes"}) {
    EXPECT_TRUE(BecomesZero(name)) << name;
  }
}

}  // namespace
}  // namespace telegrad
