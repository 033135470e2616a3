// The kind of an instruction is decided by how its text begins and what else is in it.
#include "tests/fakes/cuda/ptx/counts.h"

namespace fakecuda {
namespace {

struct KindRow {
  std::string_view begin;
  std::string_view within;  // also has this
  InstructionKind kind;
};

// The first that fits.
constexpr KindRow kKindRows[] = {
    {"mma.", "", InstructionKind::matrix_instructions},
    {"ldmatrix.", "", InstructionKind::shared_loads},
    {"ld.", ".shared", InstructionKind::shared_loads},
    {"st.", ".shared", InstructionKind::shared_stores},
    {"ld.", ".global", InstructionKind::global_loads},
    {"st.", ".global", InstructionKind::global_stores},
    {"cp.async.commit_group", "", InstructionKind::waits},
    {"cp.async.wait", "", InstructionKind::waits},
    {"cp.async", "", InstructionKind::async_copies},
    {"bar", "", InstructionKind::waits},
    {"bra", "", InstructionKind::branches},
    {"brx", "", InstructionKind::branches},
    {"ret", "", InstructionKind::branches},
    {"exit", "", InstructionKind::branches},
};

}  // namespace

InstructionKind KindOf(std::string_view opcode) {
  for (const KindRow& row : kKindRows) {
    if (opcode.starts_with(row.begin) && opcode.find(row.within) != std::string_view::npos) {
      return row.kind;
    }
  }
  return InstructionKind::other_instructions;
}

}  // namespace fakecuda
