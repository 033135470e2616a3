#include "server/service/late_reads.h"

#include <utility>

namespace telegrad {
namespace {

thread_local LateReads* late_of_thread = nullptr;

}  // namespace

LateReads::LateReads() { late_of_thread = this; }

LateReads::~LateReads() { late_of_thread = nullptr; }

bool LateReads::PutOff(std::weak_ptr<Reader> reader, int64_t until_ns) {
  if (late_of_thread == nullptr) return false;
  late_of_thread->late_.push_back({std::move(reader), until_ns});
  return true;
}

// Nobody is woken for what has begun meanwhile, which is nearly all.
int64_t LateReads::FirstNs() {
  for (; !late_.empty(); late_.pop_front()) {
    const std::shared_ptr<Reader> reader = late_.front().reader.lock();
    if (reader != nullptr && reader->IsLate(late_.front().until_ns)) return late_.front().until_ns;
  }
  return INT64_MAX;
}

void LateReads::Begin(int64_t now_ns) {
  while (!late_.empty() && late_.front().until_ns <= now_ns) {
    const Late late = std::move(late_.front());
    late_.pop_front();
    if (const std::shared_ptr<Reader> reader = late.reader.lock()) reader->ReadNow(late.until_ns);
  }
}

}  // namespace telegrad
