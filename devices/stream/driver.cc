// Where what all GPUs of a driver share begins and ends.
#include "devices/stream/driver.h"

#include "devices/stream/queue_table.h"

namespace telegrad::stream {

Driver::Driver() : queues_(std::make_unique<QueueTable>()) {}
Driver::~Driver() = default;

}  // namespace telegrad::stream
