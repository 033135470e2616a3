// The smallest whole program: fits a line to points. One plan holds the model, its gradients and
// the optimizer; weights stay on the daemon between its runs.
#include "client/examples/example.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::examples {
namespace {

absl::Status Run(const Flags& flags) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {4, 1}, "x"), y = b.Param(DType::kFloat32, {4, 1}, "y");
  const nn::Linear line(&b, "line", 1, 1);
  const Tensor loss = line(x).MseLoss(y);
  optim::Sgd(&b, b.trainable(), Gradients(loss, b.trainable()), {.lr = 0.1});
  b.Output(loss, "loss");
  TG_ASSIGN_OR_RETURN(const Plan step, b.Finish());  // the first error of all of the above

  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  RemoteState state(session.get());
  TG_ASSIGN_OR_RETURN(const auto remote, RemotePlan::Create(session.get(), &state, step));
  TG_RETURN_IF_ERROR(remote->Set("x", HostTensor::Of<float>({4, 1}, {0, 1, 2, 3})));
  TG_RETURN_IF_ERROR(remote->Set("y", HostTensor::Of<float>({4, 1}, {1, 3, 5, 7})));
  for (int i = 0; i < 200; ++i) remote->Run();  // enqueued, not waited for
  TG_ASSIGN_OR_RETURN(const HostTensor weight, remote->Read("line.weight"));
  TG_ASSIGN_OR_RETURN(const HostTensor bias, remote->Read("line.bias"));
  std::printf("y = %.3f x + %.3f\n", weight.AsDoubles()[0], bias.AsDoubles()[0]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad::examples

int main(int argc, char** argv) {
  return telegrad::examples::Main(argc, argv, "Fits a line to four points.", {},
                                  &telegrad::examples::Run);
}
