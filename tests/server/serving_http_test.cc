// The inference protocol over HTTP, through sockets that send any bytes: the answers to valid
// requests, and to malformed, slow, endless and contradictory ones.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "engine/net/tcp.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ServingHttpTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    Serve({});
  }
  void Serve(std::vector<std::string> more) {
    more.insert(more.end(), {"--http", "127.0.0.1:0"});
    StartServing(more);
    ASSERT_THAT(http_, StartsWith("127.0.0.1:"));
    ASSERT_TRUE(BecomesReady("add"));
  }

  UniqueFd Dial() {
    auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_TRUE(fd.ok()) << fd.status();
    fcntl(fd->get(), F_SETFL, 0);  // to wait in recv
    const timeval most{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    return *std::move(fd);
  }
  static bool Send(const UniqueFd& fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // All that comes until the server hangs up.
  static std::string Rest(const UniqueFd& fd) {
    std::string out;
    char bytes[4096];
    for (ssize_t n = 0; (n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
      out.append(bytes, static_cast<size_t>(n));
    }
    return out;
  }
  // Whether the server hangs up without a word, within the time that Dial waits.
  static bool IsHungUpOn(const UniqueFd& fd) {
    char byte;
    const ssize_t n = recv(fd.get(), &byte, 1, 0);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }
  std::string Raw(std::string_view request) {
    const UniqueFd fd = Dial();
    Send(fd, request);
    return Rest(fd);
  }
  std::string Head(std::string_view method, std::string_view path) const {
    return StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", http_, "\r\nConnection: close\r\n");
  }
  std::string Get(std::string_view path) { return Raw(Head("GET", path) + "\r\n"); }
  std::string Post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return Raw(
        StrCat(Head("POST", path), headers, "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  std::string Infer(std::string_view body, std::string_view headers = "") {
    return Post("/v2/models/add/infer", body, headers);
  }
  static std::string Body(const std::string& response) {
    const size_t at = response.find("\r\n\r\n");
    return at == std::string::npos ? "" : response.substr(at + 4);
  }
  // Of the daemon's threads, by number and name: user time in the system's ticks.
  std::map<std::pair<int, std::string>, int64_t> ProcessorTimes() const {
    std::map<std::pair<int, std::string>, int64_t> out;
    const std::string tasks = StrCat("/proc/", daemon_->pid(), "/task");
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::ifstream file(task.path() / "stat");  // proc(5): NUMBER (NAME) and fields from the third
      const std::string stat{std::istreambuf_iterator<char>(file), {}};
      const size_t open = stat.find('('), close = stat.rfind(')');
      if (close == std::string::npos) continue;  // it has ended
      std::istringstream rest(stat.substr(close + 1));
      std::string field;
      for (int i = 3; i < 14; ++i) rest >> field;
      int64_t user = 0;
      rest >> user;
      out[{std::stoi(stat), stat.substr(open + 1, close - open - 1)}] = user;
    }
    return out;
  }
  void ExpectAlive() {
    EXPECT_THAT(
        Infer(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[0,1,2,3]}]})"),
        HasSubstr("\"data\":[1,2,3,4]"));
  }
};

TEST_F(ServingHttpTest, AnswersInJson) {
  const std::string answer = Infer(
      R"({"id":"q","inputs":[{"name":"x","shape":[2,4],"datatype":"FP32",
          "data":[[0,1,2,3],[0.5,1e2,-2.25,3]]}],"outputs":[{"name":"y"}]})");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Body(answer),
            R"({"model_name":"add","model_version":"1","id":"q","outputs":[{"name":"y",)"
            R"("datatype":"FP32","shape":[2,4],"data":[1,2,3,4,1.5,101,-1.25,4]}]})");
  // Data may stand before what says how it is to be read.
  EXPECT_THAT(
      Infer(R"({"inputs":[{"data":[0,1,2,3],"name":"x","datatype":"FP32","shape":[1,4]}]})"),
      HasSubstr("\"data\":[1,2,3,4]"));
}

TEST_F(ServingHttpTest, AnswersInBinary) {
  const float in[] = {0, 1, 2, 3};
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const std::string answer =
      Infer(json + std::string(reinterpret_cast<const char*>(in), sizeof(in)),
            StrCat("Inference-Header-Content-Length: ", json.size(), "\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  const std::string body = Body(answer);
  ASSERT_GT(body.size(), 16u);
  EXPECT_THAT(answer, HasSubstr(StrCat("Inference-Header-Content-Length: ", body.size() - 16)));
  EXPECT_THAT(body, HasSubstr("\"parameters\":{\"binary_data_size\":16}"));
  float out[4];
  std::memcpy(out, body.data() + body.size() - 16, 16);
  EXPECT_THAT(out, ::testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(ServingHttpTest, TellsOfTheServerAndItsModels) {
  EXPECT_THAT(Get("/v2/health/live"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/v2/health/ready"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Body(Get("/v2")), HasSubstr("\"name\":\"telegrad\""));
  EXPECT_THAT(Get("/v2/models/add/ready"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/v2/models/add/versions/1/ready"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/v2/models/add/versions/2/ready"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/v2/models/none/ready"), StartsWith("HTTP/1.1 404"));
  EXPECT_EQ(Body(Get("/v2/models/add")),
            R"({"name":"add","versions":["1"],"platform":"onnxruntime_onnx","inputs":[{"name":"x",)"
            R"("datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"y","datatype":"FP32",)"
            R"("shape":[-1,4]}]})");
  EXPECT_THAT(Body(Get("/v2/models/add/config")), HasSubstr("\"max_batch_size\":32"));
  EXPECT_THAT(Body(Get("/v2/models/add/stats")), HasSubstr("\"execution_count\":0"));
  EXPECT_THAT(Body(Get("/v2/models/stats")), HasSubstr("\"name\":\"add\""));
  EXPECT_EQ(Body(Post("/v2/repository/index", "{}")),
            R"([{"name":"add","version":"1","state":"READY"}])");
  EXPECT_THAT(Post("/v2/repository/models/add/unload", ""), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/v2/models/add/ready"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Post("/v2/repository/models/add/load", ""), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/"), HasSubstr("<h1>Models</h1>"));
  EXPECT_THAT(Get("/page.js"), HasSubstr("text/javascript"));
}

TEST_F(ServingHttpTest, WrongJsonIsToldWithItsPlace) {
  const std::pair<std::string, std::string> bodies[] = {
      {"", "an object"},
      {"{", "a key"},
      {"[]", "an object"},
      {R"({"inputs":5})", "an array"},
      {R"({"inputs":[]} x)", "the end"},
      {R"({"inputs":[]})", "'x' is missing"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0,1,2]}]})",
       "has 12 bytes, expected 16"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0,1,2,3,4]}]})",
       "more than the 4 values"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0,1,2,"3"]}]})",
       "not a value of FP32"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP33","data":[0]}]})", "no datatype"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"BYTES","data":["a"]}]})", "BYTES"},
      {R"({"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":[1]}]})",
       "not a value of BYTES"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32"}]})", "has no data"},
      {R"({"inputs":[{"name":"x","shape":[-1,4],"datatype":"FP32","data":[0]}]})", "at least 0"},
      {R"({"inputs":[{"name":"x","shape":[9223372036854775807,4],"datatype":"FP32","data":[0]}]})",
       "input 'x'"},
      {R"({"inputs":[{"name":"x","shape":[99999999999999999999],"datatype":"FP32","data":[0]}]})",
       "a size"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0],"parameters":{"binary_data_size":4}}]})",
       "data and binary_data_size"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]})",
       "0 bytes are left"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"r"}}]})",
       "a shared_memory_region without"},
      {R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"r","shared_memory_byte_size":16}}]})",
       "takes no shared memory"},
      {"{\"id\":\"\xff\"}", "an id"},
  };
  for (const auto& [body, says] : bodies) {
    const std::string answer = Infer(body);
    EXPECT_THAT(answer, HasSubstr(says)) << body;
    EXPECT_THAT(answer, Not(StartsWith("HTTP/1.1 200"))) << body;
    EXPECT_THAT(answer, HasSubstr("{\"error\":")) << body;
  }
  EXPECT_THAT(Infer("{}", "Inference-Header-Content-Length: 5\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Infer("{}", "Inference-Header-Content-Length: -1\r\n"), StartsWith("HTTP/1.1 400"));
  ExpectAlive();
}

// Long JSON is read and written by threads for it: the server's own threads do next to nothing for
// it, and so can serve others meanwhile.
TEST_F(ServingHttpTest, LongJsonIsLeftToWorkers) {
  constexpr int kRows = 65536;
  WriteModel("long", AddModel(1), StrCat("max_batch_size: ", kRows));
  ASSERT_EQ(Load("long"), absl::OkStatus());
  ASSERT_TRUE(BecomesReady("long"));
  std::string body =
      StrCat(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)", kRows, R"(,4],"data":[)");
  for (int i = 0; i < kRows; ++i) body += i == 0 ? "0,1,2,3" : ",0,1,2,3";
  body += "]}]}";
  const auto before = ProcessorTimes();
  for (int i = 0; i < 20; ++i) {
    const std::string answer = Body(Post("/v2/models/long/infer", body));
    EXPECT_THAT(answer.substr(0, 200), HasSubstr("\"data\":[1,2,3,4,1,2"));
    EXPECT_GT(answer.size(), 8 * kRows);
  }
  int64_t http = 0, all = 0;
  for (const auto& [thread, ticks] : ProcessorTimes()) {
    const auto known = before.find(thread);
    const int64_t more = ticks - (known == before.end() ? 0 : known->second);
    all += more;
    if (thread.second.starts_with("MHD")) http += more;
  }
  EXPECT_GT(all, 5) << "hundredths of a second";
  EXPECT_LT(2 * http, all) << "of the server's own threads, and of all";
}

TEST_F(ServingHttpTest, JsonBombs) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(Infer(deep), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Infer("{\"inputs\":" + deep), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Infer("{\"other\":" + deep), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(
      Infer(R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":)" + deep + "}]}"),
      StartsWith("HTTP/1.1 400"));
  // Whole values: only their depth is wrong.
  const auto nested = [&](size_t depth) {
    return Infer(StrCat("{\"other\":", std::string(depth, '['), std::string(depth, ']'),
                        R"(,"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],)",
                        R"("data":[0,1,2,3]}]})"));
  };
  EXPECT_THAT(nested(16), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(nested(17), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(nested(1 << 20), StartsWith("HTTP/1.1 400"));
  std::string shape = "1";
  for (int i = 0; i < 100'000; ++i) shape += ",1";
  EXPECT_THAT(
      Infer(R"({"inputs":[{"name":"x","datatype":"FP32","data":[0],"shape":[)" + shape + "]}]}"),
      StartsWith("HTTP/1.1 400"));
  std::string inputs = "{}";
  for (int i = 0; i < 100'000; ++i) inputs += ",{}";
  EXPECT_THAT(Infer("{\"inputs\":[" + inputs + "]}"), Not(StartsWith("HTTP/1.1 200")));
  ExpectAlive();
}

// Another server on the way could see the end of such a request elsewhere, and what follows as a
// request of its own.
TEST_F(ServingHttpTest, RequestsOfTwoLengthsAreRefusedAndNothingBehindThemIsRead) {
  const std::string line = "POST /v2/models/add/infer HTTP/1.1\r\nHost: " + http_ + "\r\n";
  const std::string smuggled = "GET /v2/health/live HTTP/1.1\r\nHost: " + http_ + "\r\n\r\n";
  const std::string framings[] = {
      "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
      "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
      "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
      "Content-Length: 5, 6\r\n\r\nabcdef",
      "Content-Length: +5\r\n\r\nabcde",
      "Content-Length: -5\r\n\r\nabcde",
      "Content-Length: 0x5\r\n\r\nabcde",
      "Content-Length: 99999999999999999999\r\n\r\nabcde",
      "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "Host: elsewhere\r\nContent-Length: 2\r\n\r\n{}",
      "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
      "Content-Length : 5\r\n\r\nabcde",
      "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
  };
  for (const std::string& framing : framings) {
    const std::string answer = Raw(line + framing + smuggled);
    EXPECT_THAT(answer, Not(HasSubstr("HTTP/1.1 200"))) << framing;
    // Nothing behind it was taken for a request.
    EXPECT_THAT(answer, Not(HasSubstr("takes GET"))) << framing;
    const size_t first = answer.find("{\"error\"");
    if (first != std::string::npos) {
      EXPECT_EQ(answer.find("{\"error\"", first + 1), std::string::npos) << framing << answer;
    }
  }
  ExpectAlive();
}

TEST_F(ServingHttpTest, SizesAreLimited) {
  const std::string line = "POST /v2/models/add/infer HTTP/1.1\r\nHost: " + http_ + "\r\n";
  EXPECT_THAT(Raw(line + "Content-Length: 1000000000000\r\n\r\n"), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Raw(line + "X: " + std::string(1 << 20, 'x') + "\r\n\r\n"),
              Not(HasSubstr("HTTP/1.1 200")));
  std::string many;
  for (int i = 0; i < 500; ++i) StrAppend(&many, "X-", i, ": 1\r\n");
  EXPECT_THAT(Raw(line + many + "Content-Length: 0\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Get("/" + std::string(100'000, 'a')), Not(HasSubstr("HTTP/1.1 200")));
  EXPECT_THAT(Raw(Head("POST", "/v2/repository/index") + "Content-Length: 1048576\r\n\r\n"),
              StartsWith("HTTP/1.1 429"));
  // In chunks nobody knows what is to come.
  const UniqueFd fd = Dial();
  Send(fd, line + "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  int sent = 0;
  while (sent < 200 && Send(fd, chunk)) ++sent;
  EXPECT_LT(sent, 200);
  EXPECT_THAT(Raw(line + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab"),
              HasSubstr("compressed"));
  ExpectAlive();
}

TEST_F(ServingHttpTest, PathsThatLeadNowhere) {
  for (const char* const path :
       {"/v2/models/../../etc/passwd", "/v2/models/%2e%2e%2fadd/infer", "/v2/models//infer", "/v2/",
        "/v1/models/add", "/v2/models/add/versions/1/2/infer", "/v2/models/add/versions/x",
        "/v2/models/a%00dd", "/v2/repository/models/..%2f..%2fetc/load",
        "/v2/models/add/nothing"}) {
    EXPECT_THAT(Get(path), Not(HasSubstr("HTTP/1.1 200"))) << path;
    EXPECT_THAT(Post(path, "{}"), Not(HasSubstr("HTTP/1.1 200"))) << path;
  }
  // An escape makes no other path of one.
  EXPECT_THAT(Get("/v2/models/%61dd"), StartsWith("HTTP/1.1 200"));
  for (const char* const path : {"/v2/models/add%00x", "/v2/models/add%00", "/v2%2fmodels%2Fadd",
                                 "/v2/models/%2fadd", "/v2/models/add%"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404")) << path;
  }
  EXPECT_THAT(Post("/v2/repository/models/add/load", R"({"parameters":{"unload":true}})"),
              HasSubstr("'unload' is not known"));
  EXPECT_THAT(Post("/v2/repository/models/add/unload", R"({"parameters":{"config":"{}"}})"),
              HasSubstr("'config' is not known"));
  for (const char* const body : {"[]", "{", R"({"parameters":[]})", "{} x"}) {
    EXPECT_THAT(Post("/v2/repository/models/add/load", body), StartsWith("HTTP/1.1 400")) << body;
  }
  EXPECT_THAT(Post("/v2/repository/models/add/load",
                   R"({"id":"\"config\"","parameters":{"conf\u0069g":"{}"}})"),
              StartsWith("HTTP/1.1 200"));
  ExpectAlive();
}

// RFC 9110: HEAD is for whatever has GET, and other methods are told what is allowed.
TEST_F(ServingHttpTest, OtherMethodsAreToldWhichAreAllowed) {
  const std::string path = "/v2/models/add";
  const std::string head = Raw(Head("HEAD", path) + "\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr(StrCat("Content-Length: ", Body(Get(path)).size(), "\r\n")));
  EXPECT_EQ(Body(head), "");
  for (const auto& [method, at, allowed] :
       std::vector<std::array<std::string, 3>>{{"DELETE", path, "GET, HEAD"},
                                               {"POST", path, "GET, HEAD"},
                                               {"HEAD", path + "/infer", "POST"},
                                               {"GET", path + "/infer", "POST"},
                                               {"PUT", "/v2/logging", "GET, HEAD, POST"}}) {
    const std::string answer = Raw(Head(method, at) + "\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(answer, HasSubstr(StrCat("\r\nAllow: ", allowed, "\r\n"))) << method;
  }
  EXPECT_THAT(Raw(Head("GET", "/v2/nothing") + "\r\n"), StartsWith("HTTP/1.1 404"));
  ExpectAlive();
}

// A page in a browser on this machine reaches loopback, too.
TEST_F(ServingHttpTest, OtherSitesPagesAreRefused) {
  EXPECT_THAT(Raw("GET /v2 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Raw(Head("GET", "/v2") + "Origin: http://evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Raw(Head("GET", "/v2") + "Origin: http://" + http_ + "\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Raw("GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
}

class SlowHttpTest : public ServingHttpTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    Serve({"--http-idle-time", "300"});
  }
};

// Each byte comes soon after the one before, but the head never ends. So few are sent that the head
// is never too long, and whoever sends one that is gets an answer before the end.
TEST_F(SlowHttpTest, AHeadThatNeverEndsIsHungUpOn) {
  constexpr int kMostSent = 12'000;
  const UniqueFd fd = Dial();
  Send(fd, "GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: ");
  bool open = true;
  std::string answer;
  for (int sent = 0; open && sent < kMostSent; ++sent) {
    pollfd waits{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (poll(&waits, 1, /*timeout=*/5) == 0) {
      open = Send(fd, "x");
      continue;
    }
    char byte;
    const ssize_t n = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    if (n > 0) answer += byte;
    open = n > 0;
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(answer, "");
  ExpectAlive();
}

TEST_F(SlowHttpTest, ABodyThatNeverEndsIsHungUpOn) {
  const UniqueFd fd = Dial();
  Send(fd, "POST /v2/models/add/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_TRUE(IsHungUpOn(fd));
  ExpectAlive();
}

TEST_F(SlowHttpTest, AnIdleConnectionIsHungUpOn) {
  const UniqueFd fd = Dial();
  EXPECT_TRUE(IsHungUpOn(fd));
  ExpectAlive();
}

class PatientHttpTest : public ServingHttpTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    Serve({"--http-idle-time", "3600000"});
  }
};

// Who has the most connections open does not keep the others out.
TEST_F(PatientHttpTest, ConnectionsThatAskNothingMakeRoom) {
  std::vector<UniqueFd> idle;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr int kMore = 1500;  // than the server takes
  for (int i = 0; i < kMore; ++i) {
    auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    if (fd.ok()) idle.push_back(*std::move(fd));
  }
  ExpectAlive();
}

// The time to drain is that of requests over HTTP, too: one that waits in its model's queue when
// the signal comes is answered, and its connection ends with that.
TEST_F(ServingHttpTest, ARequestUnderWayIsAnsweredWhileTheServerDrains) {
  WriteModel("waits", AddModel(1),
             "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] "
             "max_queue_delay_microseconds: 3000000 "
             "default_queue_policy { max_queue_size: 1 } }");
  ASSERT_TRUE(Load("waits").ok());
  const std::string body =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[0,1,2,3]}]})";
  const UniqueFd fd = Dial();
  Send(fd, StrCat("POST /v2/models/waits/infer HTTP/1.1\r\nHost: ", http_,
                  "\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  // While it waits there is no room for another one, which alone would be a batch at once.
  const auto eight = Floats("waits", {8, 4}, std::vector<float>(32));
  while (ServingTest::Infer(eight).ok()) {
  }
  // No connection of gRPC is left that the daemon would wait for.
  stub_ = nullptr;
  connection_ = nullptr;
  daemon_->Signal(SIGTERM);
  const std::string answer = Rest(fd);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\"data\":[1,2,3,4]"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

// A request whose caller has hung up is not run any more, and its place in the queue is free.
TEST_F(SlowHttpTest, ARequestThatNobodyWaitsForIsDropped) {
  WriteModel("waits", AddModel(1),
             "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] "
             "max_queue_delay_microseconds: 86400000000 "
             "default_queue_policy { max_queue_size: 1 } }");
  ASSERT_TRUE(Load("waits").ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto waits_until = [&](bool served) {
    // Alone it is a batch at once.
    const auto eight = Floats("waits", {8, 4}, std::vector<float>(32));
    while (ServingTest::Infer(eight).ok() != served) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  };
  const std::string body =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[0,1,2,3]}]})";
  uint64_t before = 0;
  {
    const UniqueFd fd = Dial();
    Send(fd, StrCat("POST /v2/models/waits/infer HTTP/1.1\r\nHost: ", http_,
                    "\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    ASSERT_TRUE(waits_until(false));
    before = Statistics("waits").inference_count();
  }
  ASSERT_TRUE(waits_until(true));
  EXPECT_EQ(Statistics("waits").inference_count(), before + 8);
  ExpectAlive();
}

}  // namespace
}  // namespace telegrad
