#include "engine/tools/search_pieces.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/execution/device_measure.h"
#include "engine/lowering/choose/search.h"

namespace telegrad {
namespace {

std::vector<int32_t> WeightsOf(const Piece& piece) {
  std::vector<int32_t> weights;
  for (size_t i = 0; i < piece.arguments.size(); ++i) {
    if (piece.arguments[i].weight) weights.push_back(static_cast<int32_t>(i));
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::string> SearchPieces(const std::vector<Piece>& pieces, const Target& target,
                                         double seconds, const OpenDevice& open, Budget* budget) {
  if (!open) return FailedPrecondition("--search: this program has no device to measure on");
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, open(target));
  std::string out;
  double logarithms = 0;
  for (const Piece& piece : pieces) {
    if (piece.levels != kKernelLevel || piece.program != nullptr) {
      return InvalidArgument("--search: ", piece.name,
                             " is not a kernel; --passes=schedule makes kernels of a tensor graph");
    }
    if (isatty(STDERR_FILENO) == 1) {  // a search is long, and prints nothing before its end
      const auto left = static_cast<double>(&pieces.back() - &piece + 1);
      absl::FPrintF(stderr, "searching for faster moves of %s; about %.0f s left\n", piece.name,
                    left * seconds);
    }
    DeviceMeasure measure(*device, CompileInProcess());
    SearchOptions options;
    options.seconds = seconds;
    TG_ASSIGN_OR_RETURN(const SearchResult found,
                        SearchMoves(Freeze(piece.root), device->target(), WeightsOf(piece), measure,
                                    options, budget));
    const double ratio = found.heuristic_seconds / found.best_seconds;
    logarithms += std::log(ratio);
    absl::StrAppendFormat(&out,
                          "%s: heuristic %.3f ms, best %.3f ms, %.2f times as fast, %d programs in "
                          "%d rounds\nmoves: %s\n",
                          piece.name, found.heuristic_seconds * 1e3, found.best_seconds * 1e3,
                          ratio, found.measured, found.rounds, Print(found.best));
  }
  if (pieces.size() > 1) {
    absl::StrAppendFormat(&out, "geometric mean of %d kernels: %.2f times as fast\n", pieces.size(),
                          std::exp(logarithms / static_cast<double>(pieces.size())));
  }
  return out;
}

}  // namespace telegrad
