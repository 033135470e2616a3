// The tables of what instructions mean. A row gives the names that an instruction has on the
// targets, without the suffix of its encoding, and one meaning that serves all of them.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "tests/fakes/amd/code.h"
#include "tests/fakes/amd/text.h"

namespace fakeamd {

struct Row;
class Decoder;

// Reads the operands of an instruction; false, with an error in the decoder, for a form that is not
// understood.
using Decode = bool (*)(Decoder& decoder, const Row& row);

struct Row {
  std::string_view names;  // one or several, with | between them
  Execute execute = nullptr;
  Decode decode = nullptr;
  std::array<Type, 2> result = {};
  std::array<Type, 5> source = {};
  uint32_t value = 0;  // what else the family's decode function or execution need
};

// Flags in `value` of vector arithmetic.
enum RowFlag : uint32_t {
  kAccumulates = 1,      // the result is a source too, the last one
  kReadsVcc = 2,         // the last source is vcc
  kPassesUndefined = 4,  // a copy: undefined bits are copied and are no error
  kSaturates = 8,        // clamp has a meaning for these integers
  // An undefined upper word of the last source makes that of the result, and its carry, undefined.
  kPassesHigh = 128,
  kComparesExec = 16,  // the result is also, or only, the mask of active lanes
};

std::span<const Row> IntegerRows();
std::span<const Row> BitRows();
std::span<const Row> FloatRows();
std::span<const Row> TranscendentalRows();
std::span<const Row> DivideRows();
std::span<const Row> CompareRows();
std::span<const Row> ConvertRows();
std::span<const Row> HalfRows();
std::span<const Row> PackedRows();
std::span<const Row> PackedMoveRows();
std::span<const Row> LaneRows();
std::span<const Row> ScalarRows();
std::span<const Row> ScalarConstantRows();
std::span<const Row> MaskRows();
std::span<const Row> ScalarFloatRows();
std::span<const Row> ScalarFmacRows();
std::span<const Row> ControlRows();
std::span<const Row> ScalarMemoryRows();
std::span<const Row> GlobalRows();
std::span<const Row> AtomicRows();
std::span<const Row> LocalRows();
std::span<const Row> ExchangeRows();
std::span<const Row> MatrixRows();

// The row of a mnemonic without suffix; null if there is none.
const Row* FindRow(std::string_view name);

}  // namespace fakeamd
