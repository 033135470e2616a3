// All tables of instructions in one hash table, by every name that a row has.
#include "tests/fakes/amd/row.h"

#include <string>
#include <unordered_map>

namespace fakeamd {
namespace {

using Table = std::unordered_map<std::string_view, const Row*>;

Table MakeTable() {
  Table table;
  const std::span<const Row> families[] = {
      IntegerRows(),        BitRows(),          FloatRows(),       TranscendentalRows(),
      DivideRows(),         CompareRows(),      ConvertRows(),     HalfRows(),
      PackedRows(),         PackedMoveRows(),   LaneRows(),        ScalarRows(),
      ScalarConstantRows(), MaskRows(),         ScalarFloatRows(), ScalarFmacRows(),
      ControlRows(),        ScalarMemoryRows(), GlobalRows(),      AtomicRows(),
      LocalRows(),          ExchangeRows(),     MatrixRows(),
  };
  for (const std::span<const Row> rows : families) {
    for (const Row& row : rows) {
      std::string_view names = row.names;
      while (!names.empty()) {
        const size_t end = names.find('|');
        table.emplace(names.substr(0, end), &row);
        names = end == std::string_view::npos ? "" : names.substr(end + 1);
      }
    }
  }
  return table;
}

}  // namespace

const Row* FindRow(std::string_view name) {
  static const Table table = MakeTable();
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace fakeamd
