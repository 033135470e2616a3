// In place of the metrics page, where its library is not linked (TELEGRAD_STATIC).
#include "server/admin/exporter.h"

namespace telegrad {

struct MetricsExporter::Impl {};

MetricsExporter::MetricsExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsExporter::~MetricsExporter() = default;

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string&,
                                                                        Metrics*) {
  return absl::UnimplementedError("this build of telegradd has no metrics page");
}

int MetricsExporter::port() const { return 0; }

}  // namespace telegrad
