// Two daemons for a soak: the one in front has models, tenants, worker processes and a remote
// device, "back/CPU:0", of the other one, which may be killed and started again.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/ensemble_config.h"
#include "tests/server/served_models.h"
#include "tests/server/serving_tenants_fixture.h"
#include "tests/soak/soak_accounts.h"

namespace telegrad {

// Values of the models, as formulas: each element of an answer is of its element of the request.
struct Served {
  const char* name;
  float factor, addend;
  bool ensemble = false;  // its tensors are named "in" and "out", else "x" and "y"
  bool rows = true;       // of shape [rows, 4], else [4 * rows]
};
inline constexpr Served kServed[] = {
    {"near", 1, 1},                   // on CPU:0, in batches
    {"both", 1, 2},                   // on both devices, two batches at a time on each
    {"far", 1, 3},                    // on the remote device alone
    {"answers", 1, 4},                // whose answers are kept
    {"joined", 2, 1, true},           // near and scale as one graph: 2 * (x + 1) - 1
    {"separate", 1, 5, true, false},  // some and plus, one by one, of values that are not 0
};

class SoakFixture : public ServingTenantsTest {
 protected:
  static constexpr int kTurns = 3;  // turn0, ...: y = x + 10 + number, loaded and unloaded in turn

  void SetUp() override {
    // Blocks that threads keep for themselves count as given out in telegrad_heap_bytes: up to 230
    // kB a thread, more the longer it runs. The daemons inherit this.
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    StartBack();
    ServingTenantsTest::SetUp();
    if (HasFatalFailure()) return;
    WriteTenants(1);
    front_admin_ = Admin(StrCat("unix:", keys_.path().string(), "/front"));
    ASSERT_TRUE(AdminClient(front_admin_).Reload().ok());
  }
  void TearDown() override {
    for (const std::string& key : keys_of_memory_) shm_unlink(key.c_str());
  }

  std::vector<std::string> More() const override {
    // Small caches: they are full before memory is compared.
    return {"--admin-listen",
            StrCat("unix:", keys_.path().string(), "/front"),
            "--isolate",
            "tenant",
            "--remote",
            StrCat("back=127.0.0.1:", back_port_),
            "--remote-grace",
            "1000",
            "--remote-wait",
            "2000",
            "--models-response-cache",
            "262144",
            "--models-shared-memory",
            Prefix(),
            "--cuda-devices",
            "0",
            "--executables",
            "16",
            "--kernels",
            "24",
            "--schedule-bytes",
            "262144"};
  }
  static std::string Prefix() { return StrCat("soak", getpid(), "-"); }
  std::string Key(const std::string& tenant, const std::string& rest) {
    keys_of_memory_.push_back(StrCat("/", Prefix(), tenant, "@", rest));
    return keys_of_memory_.back();
  }

  void WriteMore() override {
    const std::string batches =
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] "
        "max_queue_delay_microseconds: 500 } ";
    const std::string on_both = "instance_group { devices: [ 'CPU:0', 'back/CPU:0' ] count: 2 } ";
    WriteModel("near", AddModel(1), batches);
    WriteModel("both", AddModel(2), batches + on_both);
    WriteModel("far", AddModel(3), batches + "instance_group { devices: 'back/CPU:0' }");
    WriteModel("answers", AddModel(4), batches + "response_cache { enable: true }");
    WriteModel("scale", ScaleModel(1), batches);
    WriteEnsemble("joined", "max_batch_size: 8", "4",
                  Step("near", "in", "t") + Step("scale", "t", "out"));
    // How many values `some` has is known after its run: the steps are run one by one.
    WriteEnsemble("separate", "", "-1", Step("some", "in", "t") + Step("plus", "t", "out"));
    WriteModel("some", SomeModel(), "max_batch_size: 0");
    WriteModel("plus", AddModel(5, {-1}), "max_batch_size: 0 " + on_both);
    WriteModel("sum", SumModel(),
               "max_batch_size: 4 sequence_batching { direct { } "
               "max_sequence_idle_microseconds: 3600000000 control_input { name: 'start' control "
               "{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } state { input_name: "
               "'sum_in' output_name: 'sum_out' data_type: TYPE_FP32 dims: 1 } }");
    for (int i = 0; i < kTurns; ++i) WriteTurn(i);
    WriteMoving(1);
  }
  void WriteTurn(int i) {
    WriteModel(StrCat("turn", i), AddModel(static_cast<float>(10 + i)),
               StrCat("max_batch_size: 4 instance_group { devices: '",
                      i % 2 == 0 ? "CPU:0" : "back/CPU:0", "' } "));
  }
  // y = x + `addend`, which grows each time that the model is loaded.
  void WriteMoving(int64_t addend) {
    WriteModel("moving", AddModel(static_cast<float>(addend)),
               "max_batch_size: 4 response_cache { enable: true }");
  }

  // Weights and quotas, of which the first changes at each reload.
  void WriteTenants(uint64_t weight) {
    const auto next = keys_.path() / "tenants.next";
    std::ofstream(next) << "[alice]\nmodels = *\ngraphs = 24\nweight = " << weight % 5 + 1
                        << "\n[bob]\nmodels = *\ngraphs = 24\nhost_staging = 16MiB\n"
                           "[carol]\ndevice_memory = 1MiB\nsessions = 4\n[ops]\nmodels = *\n";
    std::filesystem::rename(next, keys_.path() / "tenants");
  }
  std::string TokenFile(const std::string& tenant) {
    const std::string path = (keys_.path() / (tenant + ".token")).string();
    std::ofstream(path) << Token(tenant);
    return path;
  }

  void StartBack() {
    back_ = std::make_unique<testing::Process>(
        TELEGRADD, std::vector<std::string>{
                       "--listen", StrCat("127.0.0.1:", back_port_), "--cuda-devices", "0",
                       "--cpu-memory", "536870912", "--log-level", "off", "--isolate", "device",
                       "--executables", "16", "--kernels", "24", "--schedule-bytes", "262144",
                       "--admin-listen", StrCat("unix:", keys_.path().string(), "/back")});
    const std::string address = back_->Line("listening on 127.0.0.1:");
    ASSERT_NE(address, "") << back_->Wait().text;
    back_port_ = std::stoi(address);  // the same again after it was killed
    back_->ReadOn();
    back_admin_ = Admin(StrCat("unix:", keys_.path().string(), "/back"));
  }
  std::shared_ptr<Connection> Admin(const std::string& address) const {
    ConnectOptions options;
    options.credentials.token = Token("ops", /*admin=*/true);
    auto connection = Connection::Connect(address, options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *connection : nullptr;
  }
  std::shared_ptr<Connection> ConnectAs(const std::string& tenant) const {
    ConnectOptions options;
    options.credentials.token = Token(tenant);
    auto connection = Connection::Connect(address_, options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *connection : nullptr;
  }

  absl::Status LoadAs(const std::string& token, const std::string& model, bool load) {
    grpc::ClientContext context;
    As(&context, token);
    if (load) {
      inference::RepositoryModelLoadRequest request;
      inference::RepositoryModelLoadResponse response;
      request.set_model_name(model);
      return FromGrpc(stub_->RepositoryModelLoad(&context, request, &response));
    }
    inference::RepositoryModelUnloadRequest request;
    inference::RepositoryModelUnloadResponse response;
    request.set_model_name(model);
    return FromGrpc(stub_->RepositoryModelUnload(&context, request, &response));
  }
  absl::StatusOr<inference::ModelInferResponse> Answer(
      const std::string& token, const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    As(&context, token);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    inference::ModelInferResponse response;
    TG_RETURN_IF_ERROR(FromGrpc(stub_->ModelInfer(&context, request, &response)));
    return response;
  }

  // y = x + the sum of the x before.
  static std::string SumModel() {
    const Shape shape{-1, 1};
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, shape)
        .Input("sum_in", DType::kFloat32, shape)
        .Input("start", DType::kFloat32, shape)
        .Output("y", DType::kFloat32, shape)
        .Output("sum_out", DType::kFloat32, shape)
        .Output("started", DType::kFloat32, shape)
        .Node("Add", {"x", "sum_in"}, {"y"})
        .Node("Identity", {"y"}, {"sum_out"})
        .Node("Identity", {"start"}, {"started"})
        .File(13);
  }
  void WriteEnsemble(const std::string& name, const std::string& batch, const std::string& dims,
                     const std::string& steps) {
    WriteFile(std::filesystem::path(name) / "config.pbtxt",
              EnsembleConfig("TYPE_FP32", dims, steps, batch));
    std::filesystem::create_directories(models_.path() / name / "1");
  }

  int back_port_ = 0;
  std::unique_ptr<testing::Process> back_;
  std::shared_ptr<Connection> front_admin_, back_admin_;
  std::vector<std::string> keys_of_memory_;
};

}  // namespace telegrad
