// A pattern goes from memory of one GPU to that of the other by the calls that a copy of the first
// takes, which is then read back there on its own; and another one the other way. The memory is the
// library's, which peers reach once access is enabled; that of the arena is mapped for peers only
// when the table of peers has them.
#include "devices/stream/peer_path.h"

#include <chrono>
#include <thread>
#include <utility>

#include "devices/api/spin.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr size_t kPatternBytes = 256 << 10;  // many pages
// After which a copy is taken to be stuck, as it may be where an IOMMU is in the way.
constexpr std::chrono::seconds kCopyLimit{10};
// A driver has no wait for a stream that ends by itself, so a copy that outlasts spinning is asked
// for again and again: this seldom, because each question takes the driver's lock.
constexpr std::chrono::microseconds kAskAgain{50};

// A word of a pattern differs from its neighbours and from those of other patterns.
void FillPattern(uint32_t number, uint8_t* bytes) {
  for (size_t i = 0; i < kPatternBytes; ++i) {
    const auto word = static_cast<uint32_t>(i / 4 + 1) * 2654435761u + number * 0x9E3779B9u;
    bytes[i] = static_cast<uint8_t>(word >> (8 * (i % 4)));
  }
}

// Pinned memory for a pattern and for what arrives.
class Patterns {
 public:
  explicit Patterns(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~Patterns() {
    if (at_ == nullptr) return;
    context_->ReleaseUnlocked([&] { context_->calls().host_free(at_); });
  }
  Patterns(const Patterns&) = delete;
  Patterns& operator=(const Patterns&) = delete;

  absl::Status Allocate() {
    TG_RETURN_IF_ERROR(context_->Enter());
    return TG_STREAM(*context_, host_allocate, &at_, 2 * kPatternBytes, kPortable);
  }
  uint8_t* sent() const { return static_cast<uint8_t*>(at_); }
  uint8_t* arrived() const { return sent() + kPatternBytes; }

 private:
  const std::shared_ptr<Context> context_;
  void* at_ = nullptr;
};

// One of the two GPUs: memory for a pattern, and a stream.
class End {
 public:
  explicit End(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~End() {
    stream_ = nullptr;
    if (address_ == 0) return;
    context_->ReleaseUnlocked([&] { context_->calls().memory_free(address_); });
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  absl::Status Allocate() {
    TG_ASSIGN_OR_RETURN(stream_, Stream::Create(context_));
    return TG_STREAM(*context_, memory_allocate, &address_, kPatternBytes);
  }
  absl::Status Put(const uint8_t* bytes) {
    TG_RETURN_IF_ERROR(context_->Enter());
    TG_RETURN_IF_ERROR(
        TG_STREAM(*context_, copy_from_host, address_, bytes, kPatternBytes, stream_->handle()));
    return Await();
  }
  absl::Status Get(uint8_t* bytes) {
    TG_RETURN_IF_ERROR(context_->Enter());
    TG_RETURN_IF_ERROR(
        TG_STREAM(*context_, copy_to_host, bytes, address_, kPatternBytes, stream_->handle()));
    return Await();
  }
  // From one end to another, on the stream of this one.
  absl::Status CopyAcross(const End& to, const End& from) {
    TG_RETURN_IF_ERROR(context_->Enter());
    TG_RETURN_IF_ERROR(context_->Check(
        context_->driver().CopyAcross(to.place(), from.place(), kPatternBytes, stream_->handle())));
    return Await();
  }
  // What a copy that is stuck may still write is nobody's again.
  void Abandon() { address_ = 0; }

 private:
  Place place() const { return {context_->device(), context_->handle(), address_}; }
  // Of what never ends, the GPU is lost.
  absl::Status Await() {
    const auto limit = std::chrono::steady_clock::now() + kCopyLimit;
    Result result = kSuccess;
    const auto ended = [&] {
      result = context_->calls().stream_query(stream_->handle());
      return result != kNotReady;
    };
    bool done = SpinUntil(ended);
    while (!done && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(kAskAgain);
      done = ended();
    }
    if (done) return context_->Check(context_->calls().stream_query.name, result);
    context_->Fail(
        absl::UnavailableError(StrCat(context_->title(),
                                      " is stuck and takes no more work: a copy between GPUs "
                                      "did not end within 10 seconds")),
        /*stuck=*/true);
    return context_->health();
  }

  const std::shared_ptr<Context> context_;
  std::unique_ptr<Stream> stream_;
  Address address_ = 0;
};

// Of the copies of `device`, to memory of the peer and from there. DATA_LOSS if other bytes arrive.
absl::Status TryCopies(const std::shared_ptr<Context>& device,
                       const std::shared_ptr<Context>& peer) {
  Patterns patterns(device);
  TG_RETURN_IF_ERROR(patterns.Allocate());
  // The stream of `here`, with the copies between the two, ends first.
  End there(peer), here(device);
  TG_RETURN_IF_ERROR(here.Allocate());
  TG_RETURN_IF_ERROR(there.Allocate());
  const auto send = [&](End& to, End& from, uint32_t number) -> absl::Status {
    FillPattern(number, patterns.sent());
    TG_RETURN_IF_ERROR(from.Put(patterns.sent()));
    for (size_t i = 0; i < kPatternBytes; ++i) {
      patterns.arrived()[i] = static_cast<uint8_t>(~patterns.sent()[i]);
    }
    TG_RETURN_IF_ERROR(to.Put(patterns.arrived()));
    TG_RETURN_IF_ERROR(here.CopyAcross(to, from));
    TG_RETURN_IF_ERROR(to.Get(patterns.arrived()));
    size_t wrong = 0;
    for (size_t i = 0; i < kPatternBytes; ++i) {
      wrong += patterns.arrived()[i] != patterns.sent()[i] ? 1 : 0;
    }
    if (wrong == 0) return absl::OkStatus();
    return absl::DataLossError(StrCat("of ", kPatternBytes, " bytes that ", device->name(),
                                      " copied ", &to == &there ? "to " : "from ", peer->name(),
                                      ", ", wrong, " arrived changed"));
  };
  absl::Status status = send(there, here, 1);
  if (status.ok()) status = send(here, there, 2);
  if (device->stuck() || peer->stuck()) {
    here.Abandon();
    there.Abandon();
  }
  return status;
}

}  // namespace

void ConnectPeers(const PeerSwitch& access, const std::shared_ptr<Context>& a,
                  const std::shared_ptr<Context>& b, const std::function<void(std::string)>& note) {
  // Neither is closed meanwhile.
  const auto use_of_a = a->UseByPeer(), use_of_b = b->UseByPeer();
  if (!use_of_a.ok() || !use_of_b.ok()) return;
  struct Way {
    const std::shared_ptr<Context>& device;
    const std::shared_ptr<Context>& peer;
    bool direct = false;
  } ways[] = {{a, b}, {b, a}};
  const auto say = [&](const Way& way, std::string_view what, const absl::Status& why) {
    note(StrCat("copies between ", way.device->name(), " and ", way.peer->name(), what,
                ToStd(why.message())));
  };
  for (Way& way : ways) {
    const absl::StatusOr<bool> direct = access.enable(*way.device, *way.peer);
    way.direct = direct.ok() && *direct;
    if (!direct.ok()) say(way, " go through the host: ", direct.status());
  }
  const auto try_both = [&] {
    absl::Status status = TryCopies(a, b);
    return status.ok() ? TryCopies(b, a) : status;
  };
  absl::Status arrived = try_both();
  // The driver may take either way for a copy of either: what fails one is used by none.
  // Nor is one used that could not be tried, for want of memory or because a call was refused.
  const bool stuck = a->stuck() || b->stuck();
  if (!arrived.ok() && (ways[0].direct || ways[1].direct)) {
    say(ways[0], " go through the host: ", arrived);
    for (Way& way : ways) {
      if (way.direct) access.disable(*way.device, *way.peer).IgnoreError();
      way.direct = false;
    }
    if (!stuck) arrived = try_both();
  }
  if (!arrived.ok()) say(ways[0], " are two, to the host and from there: ", arrived);
  for (const Way& way : ways) {
    way.device->driver().peers()->Set(way.device->device(), way.peer->device(),
                                      way.direct     ? PeerPath::kDirect
                                      : arrived.ok() ? PeerPath::kThroughHost
                                                     : PeerPath::kNone);
  }
}

}  // namespace telegrad::stream
