// What the clients of a soak do over and over: each asks once, compares what comes with a formula,
// and notes how it ended.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/unique_fd.h"
#include "engine/ir/content_hash.h"
#include "tests/soak/soak_fixture.h"
#include "tests/soak/soak_outcomes.h"

namespace telegrad {

class SoakClients : public SoakFixture {
 protected:
  using Random = std::mt19937_64;

  // What each client does over and over.
  void InferOnce(Random& random, const std::string& token) {
    const Served& model = kServed[random() % std::size(kServed)];
    const auto x = Some(random, model.ensemble ? 1 + random() % 2 : 1 + random() % 6);
    const auto answer = Answer(token, Request(model, x));
    if (!answer.ok()) return (void)Fail(model.name, answer.status());
    Compare(model.name, Values<float>(*answer), model.factor, model.addend, x);
  }
  void HttpOnce(Random& random, const std::string& token) {
    const Served& model = kServed[random() % std::size(kServed)];
    const auto x = Some(random, 1);
    std::string text;
    for (const float value : x) StrAppend(&text, text.empty() ? "" : ",", value);
    const std::string answer =
        Http(token, "POST", StrCat("/v2/models/", model.name, "/infer"),
             StrCat(R"({"inputs":[{"name":")", model.ensemble ? "in" : "x",
                    R"(","datatype":"FP32","shape":)", model.rows ? "[1,4]" : "[4]", R"(,"data":[)",
                    text, "]}]}"));
    const size_t body = answer.find("\r\n\r\n"), data = answer.find("\"data\":[");
    if (!answer.starts_with("HTTP/1.1 200")) {
      const bool unavailable = answer.starts_with("HTTP/1.1 503");
      const std::string says = body == answer.npos ? answer : answer.substr(body + 4);
      return (void)Fail(StrCat(model.name, " over HTTP"),
                        unavailable ? absl::UnavailableError(says) : absl::UnknownError(answer));
    }
    std::vector<float> y;
    const char* at = data == answer.npos ? "" : answer.c_str() + data + 8;
    for (char* end = nullptr; y.size() < x.size(); at = end + 1) {
      y.push_back(std::strtof(at, &end));
      if (end == at || *end != ',') break;
    }
    Compare(StrCat(model.name, " over HTTP"), y, model.factor, model.addend, x);
  }
  // Requests ahead of their answers, which come in order.
  void StreamOnce(Random& random, const std::string& token) {
    grpc::ClientContext context;
    As(&context, token);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto stream = stub_->ModelStreamInfer(&context);
    std::vector<std::pair<const Served*, std::vector<float>>> asked;
    for (int i = 0; i < 8; ++i) {
      const Served& model = kServed[random() % std::size(kServed)];
      asked.emplace_back(&model, Some(random, 1));
      auto request = Request(model, asked.back().second);
      request.set_id(std::to_string(i));
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    inference::ModelStreamInferResponse response;
    for (size_t i = 0; stream->Read(&response); ++i) {
      if (i >= asked.size()) return outcomes_.Wrong("an answer too many on a stream");
      const auto& [model, x] = asked[i];
      const std::string what = StrCat(model->name, " on a stream");
      if (response.infer_response().id() != std::to_string(i)) {
        return outcomes_.Wrong(StrCat(what, " out of order"));
      }
      if (!response.error_message().empty()) {  // which has no code
        Fail(what, absl::UnavailableError(response.error_message()));
        continue;
      }
      Compare(what, Values<float>(response.infer_response()), model->factor, model->addend, x);
    }
    const absl::Status end = FromGrpc(stream->Finish());
    if (!end.ok()) Fail("a stream", end);
  }
  void SequenceOnce(Random& random, const std::string& token, int64_t id) {
    const uint64_t length = 1 + random() % 12;
    float sum = 0;
    for (uint64_t i = 0; i < length; ++i) {
      const auto x = static_cast<float>(random() % 1000);
      sum += x;
      auto request = Floats("sum", {1, 1}, {x});
      auto& parameters = *request.mutable_parameters();
      parameters["sequence_id"].set_int64_param(id);
      if (i == 0) parameters["sequence_start"].set_bool_param(true);
      if (i + 1 == length) parameters["sequence_end"].set_bool_param(true);
      const auto answer = Answer(token, request);
      if (!answer.ok()) return (void)Fail("sum", answer.status());  // that ends the sequence
      Compare("sum", Values<float>(*answer), 1, 0, {sum});
    }
  }
  void SharedOnce(Random& random, const std::string& token, const std::string& key) {
    const UniqueFd fd(shm_open(key.c_str(), O_CREAT | O_RDWR, 0600));
    const auto x = Some(random, 2);
    const size_t bytes = x.size() * sizeof(float);
    ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(2 * bytes)), 0);
    ASSERT_EQ(pwrite(fd.get(), x.data(), bytes, 0), static_cast<ssize_t>(bytes));
    absl::Status status = Region(token, key, 2 * bytes);
    if (!status.ok()) return (void)Fail("a region", status);
    const Served& model = kServed[random() % 2];
    auto request = Request(model, x);
    request.clear_raw_input_contents();
    InRegion(bytes, 0, request.mutable_inputs(0));
    request.add_outputs()->set_name("y");
    InRegion(bytes, bytes, request.mutable_outputs(0));
    const auto answer = Answer(token, request);
    if (answer.ok()) {
      std::vector<float> y(x.size());
      ASSERT_EQ(pread(fd.get(), y.data(), bytes, static_cast<off_t>(bytes)),
                static_cast<ssize_t>(bytes));
      Compare(StrCat(model.name, " in shared memory"), y, model.factor, model.addend, x);
    } else {
      Fail(StrCat(model.name, " in shared memory"), answer.status());
    }
    status = Region(token, "", 0);
    if (!status.ok()) Fail("the end of a region", status);
  }
  // Each load of `moving` has another addend: an answer is of one that was served meanwhile.
  void MovingOnce(Random& random, const std::string& token) {
    const int64_t least = moving_loaded_;
    const auto x = std::vector<float>(4, static_cast<float>(random() % 4));
    const auto answer = Answer(token, Floats("moving", {1, 4}, x));
    if (!answer.ok()) return (void)Fail("moving", answer.status());
    const float addend = Values<float>(*answer).at(0) - x[0];
    if (addend < static_cast<float>(least) || addend > static_cast<float>(moving_written_)) {
      return outcomes_.Wrong(
          StrCat("moving: added ", addend, ", expected ", least, " to ", moving_written_.load()));
    }
    Compare("moving", Values<float>(*answer), 1, addend, x);
  }
  void TurnOnce(Random& random, const std::string& token) {
    const uint64_t i = random() % kTurns;
    const auto x = Some(random, 1 + random() % 4);
    const auto answer = Answer(token, Floats(StrCat("turn", i), {std::ssize(x) / 4, 4}, x));
    if (!answer.ok()) return (void)Fail(StrCat("turn", i), answer.status());
    Compare("turn", Values<float>(*answer), 1, static_cast<float>(10 + i), x);
  }
  void LoadOnce(Random& random) {
    const uint64_t i = random() % (kTurns + 2);
    absl::Status status;
    if (i < kTurns) {
      const bool load = random() % 2 == 0;
      status = LoadAs(token_, StrCat("turn", i), load);
    } else {
      const int64_t addend = ++moving_written_;
      WriteMoving(addend);
      status = LoadAs(token_, "moving", true);
      if (status.ok()) moving_loaded_ = addend;
    }
    if (!status.ok()) return (void)Fail("a load", status);
    outcomes_.Answered();
    ++loads_;
  }
  // A session counts from 0; the runs behind one that has failed fail, and so does the read.
  void CountOnce(Random& random, const std::shared_ptr<Connection>& connection) {
    const char* const device = random() % 2 == 0 ? "CPU:0" : "back/CPU:0";
    const auto session = connection->OpenSession();
    if (!session.ok()) return (void)Fail("a session", session.status());
    const uint64_t runs = 1 + random() % 50;
    const int32_t zero = 0;
    int32_t count = -1;
    const uint64_t handles[] = {1};
    (*session)->Alloc(1, 4, device);
    (*session)->WriteCopy(1, 0, std::as_bytes(std::span(&zero, 1)));
    const auto put = (*session)->Put(increment_.root());
    std::vector<Future<RunInfo>> pending;
    for (uint64_t i = 0; i < runs; ++i) {
      pending.push_back((*session)->Run(ContentHash(increment_.root()), handles));
    }
    const auto read = (*session)->Read(1, 0, std::as_writable_bytes(std::span(&count, 1)));
    uint64_t failed = 0;
    for (const auto& run : pending) {
      const absl::Status status = run.Get().status();
      if (!status.ok()) {
        if (++failed == 1) Fail(StrCat("a run on ", device), status);
      } else if (failed > 0) {
        outcomes_.Wrong("a run ended well that needs one that has failed");
      }
    }
    const absl::Status status = read.Get().status();
    outcomes_.Operations(runs + 4);
    if (status.ok() && (failed > 0 || count != static_cast<int32_t>(runs))) {
      return outcomes_.Wrong(StrCat(runs, " runs have counted to ", count));
    }
    if (!status.ok()) return (void)Fail(StrCat("a read of ", device), status);
    outcomes_.Answered();
  }
  // A tenant that asks for more than its quota is refused, and gets what is within it.
  void QuotaOnce(Random&, const std::shared_ptr<Connection>& connection) {
    const auto session = connection->OpenSession();
    if (!session.ok()) return (void)Fail("carol", session.status());
    (*session)->Alloc(1, 2 << 20, "CPU:0");
    const absl::Status status = (*session)->Sync().Get().status();
    const absl::Status refused = (*session)->status();
    outcomes_.Operations(2);
    if (status.ok() && refused.ok()) return outcomes_.Wrong("2 MiB for a tenant of 1 MiB");
    Fail("carol: an allocation over the quota", refused.ok() ? status : refused);
  }

  static std::vector<float> Some(Random& random, uint64_t rows) {
    std::vector<float> x(rows * 4);
    for (float& value : x) value = static_cast<float>(1 + random() % 64);
    return x;
  }
  static inference::ModelInferRequest Request(const Served& model, const std::vector<float>& x) {
    const Shape shape = model.rows ? Shape{std::ssize(x) / 4, 4} : Shape{std::ssize(x)};
    auto request = Floats(model.name, shape, x);
    if (model.ensemble) request.mutable_inputs(0)->set_name("in");
    return request;
  }
  void Compare(const std::string& what, const std::vector<float>& y, float factor, float addend,
               const std::vector<float>& x) {
    bool equal = x.size() == y.size();
    for (size_t i = 0; equal && i < x.size(); ++i) equal = y[i] == factor * x[i] + addend;
    if (equal) return outcomes_.Answered();
    outcomes_.Wrong(StrCat(what, ": ", y.empty() ? -1 : y[0], " of ", x[0]));
  }
  bool Fail(const std::string& what, const absl::Status& status) {
    return outcomes_.Failed(what, status);
  }
  template <typename Tensor>
  static void InRegion(size_t bytes, size_t offset, Tensor* tensor) {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"].set_string_param("soak");
    parameters["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(bytes));
    parameters["shared_memory_offset"].set_int64_param(static_cast<int64_t>(offset));
  }
  // Registers it, or, where the key is empty, takes it back.
  absl::Status Region(const std::string& token, const std::string& key, size_t bytes) {
    grpc::ClientContext context;
    As(&context, token);
    if (key.empty()) {
      inference::SystemSharedMemoryUnregisterRequest request;
      inference::SystemSharedMemoryUnregisterResponse response;
      request.set_name("soak");
      return FromGrpc(stub_->SystemSharedMemoryUnregister(&context, request, &response));
    }
    inference::SystemSharedMemoryRegisterRequest request;
    inference::SystemSharedMemoryRegisterResponse response;
    request.set_name("soak");
    request.set_key(key);
    request.set_byte_size(bytes);
    return FromGrpc(stub_->SystemSharedMemoryRegister(&context, request, &response));
  }
  int RegionsOf(const std::string& token) {
    grpc::ClientContext context;
    As(&context, token);
    inference::SystemSharedMemoryStatusResponse response;
    EXPECT_TRUE(stub_->SystemSharedMemoryStatus(&context, {}, &response).ok());
    return response.regions_size();
  }
  std::vector<std::string> Index() {
    grpc::ClientContext context;
    As(&context, token_);
    inference::RepositoryIndexResponse index;
    EXPECT_TRUE(stub_->RepositoryIndex(&context, {}, &index).ok());
    std::vector<std::string> out;
    for (const auto& row : index.models()) out.push_back(row.name());
    return out;
  }

  // x becomes x + 1.
  static FrozenGraph Increment() {
    Graph g;
    const UOp x = g.Param(0, DType::kInt32, Shape{1});
    const UOp sum = g.Make(Op::kAdd, {x, g.Const(DType::kInt32, 1)});
    return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, sum})}));
  }

  const FrozenGraph increment_ = Increment();
  testing::Outcomes outcomes_;
  // The newest addend of `moving` that a load may have taken, and the newest that one has.
  std::atomic<int64_t> moving_written_ = 1, moving_loaded_ = 1;
  std::atomic<uint64_t> loads_ = 0;
};

}  // namespace telegrad
