// Models that the real daemon imports: what a client gets is what it would have made itself, and
// nothing that a file says does harm.
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "client/cc/remote_import.h"
#include "client/cc/remote_plan.h"
#include "engine/frontend/onnx/test_model.h"
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using onnx::test::ModelWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Load(std::string_view path) {
  std::ifstream in(StrCat("tests/data/onnx/", path), std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  EXPECT_TRUE(in.good()) << path;
  return out.str();
}

std::span<const std::byte> Span(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

class ImportTest : public DaemonTest {
 protected:
  void Start(std::vector<std::string> more) {
    DaemonTest::Start(std::move(more));
    session_ = Session();
  }
  void SetUp() override { Start({}); }

  absl::StatusOr<RemoteModel> Import(const std::string& file,
                                     const RemoteImportOptions& options = {}) {
    return session_->Import(Span(file), options).Get();
  }
  // By way of a buffer.
  absl::StatusOr<RemoteModel> ImportUploaded(const std::string& file,
                                             const RemoteImportOptions& options = {}) {
    const uint64_t handle = session_->NewHandle();
    session_->Alloc(handle, static_cast<int64_t>(file.size()) + 10);
    session_->WriteCopy(handle, 0, Span(file));
    const auto model = session_->Import(handle, static_cast<int64_t>(file.size()), options);
    session_->Free(handle);
    return model.Get();
  }
  absl::StatusOr<std::vector<HostTensor>> Run(const RemoteModel& model,
                                              const std::vector<HostTensor>& inputs) {
    const auto plan = RemotePlan::Create(session_.get(), model);
    std::vector<HostTensor> out;
    size_t next = 0;
    for (const auto& value : model.slots) {
      if (value.slot.role != SlotRole::kInput) continue;
      TG_RETURN_IF_ERROR(plan->Set(value.slot.name, inputs[next++]));
    }
    plan->Run();
    for (const auto& value : model.slots) {
      if (value.slot.role != SlotRole::kOutput) continue;
      TG_ASSIGN_OR_RETURN(out.emplace_back(), plan->Read(value.slot.name));
    }
    return out;
  }
  std::pair<double, double> Owned() {
    EXPECT_TRUE(session_->Sync().Get().ok() || !session_->TakeStatus().ok());
    return {Stat("telegrad_buffers"), Stat("telegrad_buffer_bytes")};
  }

  std::unique_ptr<RemoteSession> session_;
};

// y = x * w + b, w and b in the two forms that a file has weights in.
std::string TwoWeights() {
  std::string typed;  // float_data in place of raw_data
  onnx::PutVarintField(onnx::field::kDims, 3, &typed);
  onnx::PutVarintField(onnx::field::kDataType, Info(DType::kFloat32).onnx, &typed);
  onnx::PutBytesField(onnx::field::kTensorName, "b", &typed);
  for (const float f : {1.0f, 2.0f, 3.0f}) onnx::PutFloatField(onnx::field::kFloatData, f, &typed);
  const std::string rest = ModelWriter()
                               .Input("x", DType::kFloat32, {-1, 3})
                               .Initializer("w", HostTensor::Of<float>({3}, {10, 20, 30}))
                               .Node("Mul", {"x", "w"}, {"p"})
                               .Node("Add", {"p", "b"}, {"y"})
                               .Output("y")
                               .Output("x")
                               .File(13);
  std::string graph;
  onnx::PutBytesField(onnx::field::kInitializer, typed, &graph);
  onnx::ProtoReader reader(rest);
  onnx::Field field;
  std::string out;
  while (reader.Next(&field)) {
    if (field.number == onnx::field::kGraph) {
      onnx::PutBytesField(field.number, std::string(field.bytes) + graph, &out);
    } else if (field.type == onnx::WireType::kBytes) {
      onnx::PutBytesField(field.number, field.bytes, &out);
    } else {
      onnx::PutVarintField(field.number, field.value, &out);
    }
  }
  return out;
}

TEST_F(ImportTest, TheKnownModelsGiveTheKnownResults) {
  for (const std::string folder : {"mnist_8/", "super_resolution_10/"}) {
    SCOPED_TRACE(folder);
    const std::string file = Load(folder + "model.onnx");
    const auto input = onnx::ReadTensorFile(Load(folder + "test_data_set_0/input_0.pb"));
    const auto want = onnx::ReadTensorFile(Load(folder + "test_data_set_0/output_0.pb"));
    ASSERT_TRUE(input.ok() && want.ok());
    RemoteImportOptions options{.compile = true};
    if (folder[0] == 's') options.model.dims["batch_size"] = 1;
    for (const bool uploaded : {false, true}) {
      const auto model = uploaded ? ImportUploaded(file, options) : Import(file, options);
      ASSERT_TRUE(model.ok()) << model.status();
      const auto got = Run(*model, {*input});
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(got->size(), 1u);
      ASSERT_EQ((*got)[0].shape, want->shape);
      const std::vector<double> a = (*got)[0].AsDoubles(), b = want->AsDoubles();
      for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3 + 1e-3 * std::abs(b[i]));
    }
    EXPECT_EQ(Stat("telegrad_runs_cached_total"), Stat("telegrad_runs_total")) << "as asked";
  }
}

TEST_F(ImportTest, IsWhatTheClientWouldHaveMade) {
  const std::string file = TwoWeights();
  RemoteImportOptions options;
  options.model.dims["N"] = 2;
  const auto here = ImportOnnx(file, options.model);
  ASSERT_TRUE(here.ok()) << here.status();
  const auto model = Import(file, options);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hash, ContentHash(here->plan.graph.root()));
  EXPECT_EQ(model->hash, *session_->Put(here->plan.graph.root()).Get());
  ASSERT_EQ(model->slots.size(), here->plan.slots.size());
  for (size_t i = 0; i < model->slots.size(); ++i) {
    const Slot &a = model->slots[i].slot, &b = here->plan.slots[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.role, b.role);
    EXPECT_EQ(model->slots[i].handle != 0, a.role == SlotRole::kState);
    ASSERT_EQ(model->slots[i].names.size(), 1u);
    EXPECT_EQ(model->slots[i].names[0], a.name == "x.out" ? "x" : a.name);
  }
  const auto got = Run(*model, {HostTensor::Of<float>({2, 3}, {1, 1, 1, 2, 2, 2})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].Values<float>(), ElementsAre(11, 22, 33, 21, 42, 63));
  EXPECT_THAT((*got)[1].Values<float>(), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_EQ(Stat("telegrad_graphs"), 1);
  // Another size is another graph, with weights of its own.
  options.model.dims.clear();
  options.model.input_shapes["x"] = {1, 3};
  const auto other = ImportUploaded(file, options);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->hash, model->hash);
  const auto row = Run(*other, {HostTensor::Of<float>({1, 3}, {1, 2, 3})});
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_THAT((*row)[0].Values<float>(), ElementsAre(11, 42, 93));
}

// Beyond what one message may hold: it goes through a buffer, which is freed again.
// Of an answer that says them, where each run decides their shapes: what is there of them.
std::vector<HostTensor> AsRun(const RemoteModel& model, const std::vector<HostTensor>& slots) {
  std::map<int, HostTensor> by_slot;
  size_t next = 0;
  for (size_t i = 0; i < model.slots.size(); ++i) {
    if (model.slots[i].slot.role == SlotRole::kOutput) by_slot[static_cast<int>(i)] = slots[next++];
  }
  std::vector<HostTensor> out;
  for (const OnnxValue& value : model.outputs) {
    out.push_back(by_slot[value.slot]);
    if (value.shape_slot < 0) continue;
    auto cut = Cut(out.back(), by_slot[value.shape_slot].Values<int64_t>());
    EXPECT_TRUE(cut.ok()) << cut.status();
    if (cut.ok()) out.back() = *std::move(cut);
  }
  return out;
}

TEST_F(ImportTest, ARunDecidesTheShapeOfAResult) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {5})
                               .Node("NonZero", {"x"}, {"at"})
                               .Node("Neg", {"x"}, {"y"})
                               .Output("at")
                               .Output("y")
                               .File(13);
  const auto model = Import(file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->guards.empty());
  ASSERT_EQ(model->outputs.size(), 2u);
  EXPECT_GE(model->outputs[0].shape_slot, 0);
  EXPECT_LT(model->outputs[1].shape_slot, 0);
  for (const auto& [values, want] :
       std::vector<std::pair<std::vector<float>, std::vector<int64_t>>>{
           {{0, 1, 0, 2, 3}, {1, 3, 4}},
           {{0, 0, 0, 0, 0}, {}},
           {{1, 1, 1, 1, 1}, {0, 1, 2, 3, 4}}}) {
    const auto slots = Run(*model, {HostTensor::Of<float>({5}, values)});
    ASSERT_TRUE(slots.ok()) << slots.status();
    const auto got = AsRun(*model, *slots);
    EXPECT_EQ(got[0].Values<int64_t>(), want);
    EXPECT_THAT(got[1].shape, ElementsAre(5));
  }
}

TEST_F(ImportTest, ValuesThatDecideAShapeComeWithTheModel) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {6})
                               .Input("to", DType::kInt64, {2})
                               .Node("Reshape", {"x", "to"}, {"y"})
                               .Output("y")
                               .File(13);
  const absl::Status without = Import(file).status();
  EXPECT_EQ(without.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(without.ToString(), HasSubstr("'to'"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 3}, {3, 2}}) {
    RemoteImportOptions options;
    const HostTensor to = HostTensor::Of<int64_t>({2}, shape);
    options.model.values["to"] = std::make_shared<const onnx::OnnxData>(
        onnx::OnnxData{.kind = onnx::OnnxData::Kind::kTensor, .tensor = to});
    const auto model = Import(file, options);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(model->guards, ElementsAre("to"));
    const auto got = Run(*model, {HostTensor::Of<float>({6}, {1, 2, 3, 4, 5, 6}), to});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].shape, Shape(shape));
  }
  RemoteImportOptions options;
  options.model.values["nobody"] = std::make_shared<const onnx::OnnxData>();
  EXPECT_THAT(Import(file, options).status().ToString(), HasSubstr("no input 'nobody'"));
  // Values that are none, or not the input's.
  for (const HostTensor& bad :
       {HostTensor{DType::kInt64, {2}, "abc"}, HostTensor{DType::kInt64, {-1}, ""},
        HostTensor{DType::kInt64, {int64_t{1} << 40, int64_t{1} << 40}, ""},
        HostTensor::Of<float>({2}, {2, 3}), HostTensor::Of<int64_t>({2}, {4, 2})}) {
    RemoteImportOptions given;
    given.model.values["to"] = std::make_shared<const onnx::OnnxData>(
        onnx::OnnxData{.kind = onnx::OnnxData::Kind::kTensor, .tensor = bad});
    EXPECT_EQ(Import(file, given).status().code(), absl::StatusCode::kInvalidArgument)
        << Import(file, given).status();
  }
}

TEST_F(ImportTest, SequencesAndStringsAreInputsAndOutputs) {
  const std::string file =
      ModelWriter()
          .StringInput("words", {2})
          .Input("x", DType::kFloat32, {4})
          .Node("Identity", {"words"}, {"same"})
          .Node("SplitToSequence", {"x"}, {"parts"}, {{"keepdims", int64_t{1}}})
          .Output("same")
          .Output("parts")
          .File(14);
  EXPECT_EQ(Import(file).status().code(), absl::StatusCode::kUnimplemented);
  RemoteImportOptions options;
  options.model.values["words"] = std::make_shared<const onnx::OnnxData>(
      onnx::OnnxData{.kind = onnx::OnnxData::Kind::kStrings, .strings = {{2}, {"one", "two"}}});
  const auto model = Import(file, options);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->guards, ElementsAre("words"));
  ASSERT_EQ(model->outputs.size(), 2u);
  ASSERT_NE(model->outputs[0].fixed, nullptr);
  EXPECT_THAT(model->outputs[0].fixed->strings.values, ElementsAre("one", "two"));
  EXPECT_EQ(model->outputs[1].elements.size(), 4u);
  const auto got = Run(*model, {HostTensor::Of<float>({4}, {1, 2, 3, 4})});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), 4u);
  EXPECT_THAT((*got)[2].Values<float>(), ElementsAre(3));
}

TEST_F(ImportTest, AFileOfMoreThanAMessage) {
  HostTensor w{DType::kFloat32, {5000, 5000}, std::string(100'000'000, '\0')};
  for (int i = 0; i < 5000; ++i) {
    const auto f = static_cast<float>(i);
    std::memcpy(w.bytes.data() + int64_t{i} * 5001 * 4, &f, 4);  // on the diagonal
  }
  const auto file = std::make_shared<const std::string>(ModelWriter()
                                                            .Input("x", DType::kFloat32, {1, 5000})
                                                            .Initializer("w", w)
                                                            .Node("MatMul", {"x", "w"}, {"y"})
                                                            .Output("y")
                                                            .File(13));
  const auto model = session_->Import(Span(*file), {}, file).Get();
  ASSERT_TRUE(model.ok()) << model.status();
  const HostTensor ones = HostTensor::Of<float>({1, 5000}, std::vector<float>(5000, 1.0f));
  const auto got = Run(*model, {ones});
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<float> y = (*got)[0].Values<float>();
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(y[i], static_cast<float>(i));
  EXPECT_EQ(Owned(), std::pair(3.0, 100'000'000.0 + 2 * 20'000)) << "weight, input and output";
  EXPECT_TRUE(session_->status().ok()) << session_->status();
}

TEST_F(ImportTest, HostileFilesEndInAnError) {
  const auto one = [](std::string_view op, const onnx::test::Attributes& attributes = {}) {
    return ModelWriter()
        .Input("x", DType::kFloat32, {2, 3})
        .Node(op, {"x"}, {"y"}, attributes)
        .Output("y");
  };
  const auto file_of = [](std::string graph) {  // with the output "y"
    std::string version, output, out;
    onnx::PutBytesField(onnx::field::kValueName, "y", &output);
    onnx::PutBytesField(onnx::field::kGraphOutput, output, &graph);
    onnx::PutVarintField(onnx::field::kOpsetVersion, 13, &version);
    onnx::PutBytesField(onnx::field::kOpsetImport, version, &out);
    onnx::PutBytesField(onnx::field::kGraph, graph, &out);
    return out;
  };
  const auto initializer = [&](std::string tensor) {
    std::string graph, node;
    onnx::PutBytesField(onnx::field::kTensorName, "w", &tensor);
    onnx::PutBytesField(onnx::field::kInitializer, tensor, &graph);
    onnx::PutBytesField(onnx::field::kNodeInput, "w", &node);
    onnx::PutBytesField(onnx::field::kNodeOutput, "y", &node);
    onnx::PutBytesField(onnx::field::kOpType, "Relu", &node);
    onnx::PutBytesField(onnx::field::kNode, node, &graph);
    return file_of(graph);
  };
  const auto tensor = [](const std::vector<int64_t>& dims, bool raw) {
    std::string out;
    for (const int64_t d : dims) {
      onnx::PutVarintField(onnx::field::kDims, static_cast<uint64_t>(d), &out);
    }
    onnx::PutVarintField(onnx::field::kDataType, 1, &out);
    if (raw) onnx::PutBytesField(onnx::field::kRawData, "1234", &out);
    return out;
  };
  // Content that is said to lie in a file, here one that exists.
  std::string external = tensor({1, 2}, false), location;
  onnx::PutBytesField(1, "location", &location);
  onnx::PutBytesField(2, "/proc/self/environ", &location);
  onnx::PutBytesField(onnx::field::kExternalData, location, &external);
  onnx::PutVarintField(onnx::field::kDataLocation, 1, &external);
  // Graphs in attributes of nodes of graphs, 20,000 deep.
  std::string nested;
  for (int i = 0; i < 20'000; ++i) {
    std::string attribute, node;
    onnx::PutBytesField(6 /* AttributeProto.g */, nested, &attribute);
    onnx::PutBytesField(onnx::field::kNodeAttribute, attribute, &node);
    nested.clear();
    onnx::PutBytesField(onnx::field::kNode, node, &nested);
  }
  ModelWriter wide = one("Relu");
  for (int i = 0; i < 17'000; ++i) wide.Input(StrCat("in", i), DType::kFloat32, {1});
  ModelWriter named = one("Relu");
  for (int i = 0; i < 4000; ++i) {
    named.Input(std::string(4000, 'n') + StrCat(i), DType::kFloat32, {1});
  }
  std::string parts;  // two bytes in the file each
  for (int i = 0; i < 1'100'000; ++i) parts += std::string("\x0a\x00", 2);
  std::string many;
  onnx::PutBytesField(onnx::field::kGraph, parts, &many);

  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  constexpr auto kMuch = absl::StatusCode::kResourceExhausted;
  const struct {
    std::string file;
    absl::StatusCode code;
    std::string words;
  } kCases[] = {
      {"hello", kBad, "ONNX"},
      {initializer(tensor({int64_t{1} << 40, int64_t{1} << 40}, true)), kBad, "elements"},
      {initializer(tensor({-5}, true)), kBad, "w"},
      {initializer(tensor({int64_t{1} << 40}, true)), kBad, "needs 4398046511104 bytes, got 4"},
      {initializer(tensor({int64_t{1} << 40}, false)), kBad, "needs 4398046511104 bytes, got 0"},
      {initializer(external), kUnknown, "in another file"},
      {file_of(nested), kMuch, "nested deeper than"},
      {wide.File(13), kBad, "slot"},
      {named.File(13), kMuch, "names of the model"},
      {many, kMuch, "parts"},
      {ModelWriter()
           .Input(std::string(5000, 'x'), DType::kFloat32, {1})
           .Output(std::string(5000, 'x'))
           .File(13),
       kMuch, "5000 bytes"},
      {ModelWriter().Input("\xff", DType::kFloat32, {1}).Output("\xff").File(13), kBad, "UTF-8"},
      {one(std::string(10'000'000, 'O')).File(13), kUnknown, "OOO"},
      {one("\xff\xfe").File(13), kUnknown, "??"},
      {ModelWriter()
           .Input("x", DType::kFloat32, {int64_t{1} << 24, int64_t{1} << 24})
           .Node("Relu", {"x"}, {"y"})
           .Output("y")
           .File(13),
       absl::StatusCode::kOk, ""},  // of no weights; its inputs are the client's to allocate
  };
  const auto before = Owned();
  for (const auto& [file, code, words] : kCases) {
    for (const bool uploaded : {false, true}) {
      const absl::Status status = (uploaded ? ImportUploaded(file) : Import(file)).status();
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(status.ToString(), HasSubstr(words));
      EXPECT_LT(status.message().size(), 5000u);
      EXPECT_EQ(Owned(), before) << status;
    }
  }
  RemoteImportOptions options{.format = "savedmodel"};
  EXPECT_THAT(Import("", options).status().ToString(), HasSubstr("expected data or a handle"));
  EXPECT_THAT(Import("x", options).status().ToString(), HasSubstr("'savedmodel', only onnx"));
  options = {.device = "GPU:1"};
  EXPECT_TRUE(absl::IsNotFound(Import(TwoWeights(), options).status()));
  options = {};
  options.model.dims["M"] = 1;
  EXPECT_THAT(Import(TwoWeights(), options).status().ToString(), HasSubstr("'M'"));
  EXPECT_TRUE(Import(Load("mnist_8/model.onnx")).ok()) << "the session goes on";
}

TEST_F(ImportTest, DamagedFilesLeaveNothing) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string file = Load("mnist_8/model.onnx");
  const auto before = Owned();
  int accepted = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bad = file;
    if (round % 4 == 0) bad.resize(1 + random() % bad.size());
    for (uint64_t i = 0; i < random() % 4; ++i) {
      const size_t at = random() % std::min<size_t>(bad.size(), 1500);
      bad[random() % 2 == 0 ? at : bad.size() - 1 - at] ^= static_cast<char>(1 << random() % 8);
    }
    const auto model = round % 2 == 0 ? Import(bad) : ImportUploaded(bad);
    if (!model.ok()) continue;
    ++accepted;
    std::vector<uint64_t> weights;
    for (const auto& value : model->slots) {
      if (value.handle != 0) weights.push_back(value.handle);
    }
    session_->Free(weights);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 300);
  EXPECT_EQ(Owned(), before);
}

TEST_F(ImportTest, SpendsItsBudget) {
  const std::string file = Load("mnist_8/model.onnx");
  for (const auto& [flag, words] :
       {std::pair("--job-nodes=20", "20 nodes"), {"--job-bytes=20000", "20000 bytes of memory"}}) {
    Start({flag});
    const absl::Status status = Import(file).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(words));
    EXPECT_EQ(Owned(), std::pair(0.0, 0.0));
  }
}

TEST_F(ImportTest, WeightsCountLikeOtherBuffers) {
  Start({"--session-bytes", "1000"});
  const std::string file =
      ModelWriter()
          .Input("x", DType::kFloat32, {200})
          .Initializer("w", HostTensor{DType::kFloat32, {200}, std::string(800, '\0')})
          .Initializer("v", HostTensor{DType::kFloat32, {200}, std::string(800, '\0')})
          .Node("Mul", {"x", "w"}, {"p"})
          .Node("Add", {"p", "v"}, {"y"})
          .Output("y")
          .File(13);
  const absl::Status status = Import(file).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("weight 'v'"));
  EXPECT_EQ(Owned(), std::pair(0.0, 0.0));
  EXPECT_EQ(Stat("telegrad_graphs"), 0);
}

}  // namespace
}  // namespace telegrad
