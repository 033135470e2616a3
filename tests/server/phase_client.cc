// A client that does one thing over and over until it is killed, and writes a line for each time.
//
// Usage: phase_client ADDRESS idle|upload|put|run|download|resumable
#include <cstdio>
#include <string_view>

#include "client/cc/connection.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "tests/server/double_graph.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

constexpr uint64_t kBytes = 1 << 20;

int Main(const std::string& address, std::string_view phase) {
  const auto connection = Connection::Connect(address);
  if (!connection.ok()) return 1;
  v1::Open open;
  open.set_resumable(phase == "resumable");
  open.set_lease_ms(1000);
  RawSession session((*connection)->channel(), open);
  for (const uint64_t handle : {1, 2}) {
    if (!session.Ask(AllocRequest(handle, kBytes)).ok()) return 1;
  }
  const FrozenGraph doubled = DoubleGraph(kBytes / 4);
  if (!session.Ask(PutRequest(GraphBytes(doubled.root()))).ok()) return 1;
  for (int64_t i = 0;; ++i) {
    if (phase == "idle") {
      // Nothing is under way.
    } else if (phase == "upload") {
      session.Send(WriteRequest(1, 0, std::string(kBytes, 'u')));
    } else if (phase == "put") {
      v1::ExecuteRequest put = PutRequest(GraphBytes(DoubleGraph(100 + i).root()));
      put.mutable_put()->set_compile(true);
      session.Send(std::move(put));
    } else if (phase == "download") {
      session.Send(ReadRequest(1, 0, kBytes));
    } else {
      v1::ExecuteRequest run = RunRequest(std::string(ContentHash(doubled.root()).view()), {1, 2});
      run.mutable_run()->set_quiet(true);
      session.Send(std::move(run));
    }
    std::printf("%s %lld\n", std::string(phase).c_str(), static_cast<long long>(i));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return argc == 3 ? telegrad::Main(argv[1], argv[2]) : 2; }
