// The operations of a submission's commands: a run for a launch, a write, a read or a copy for a
// copy, each with what takes its answer.
#include <utility>

#include "client/cc/lent_memory.h"
#include "devices/api/host_memory.h"
#include "devices/remote/remote_copy.h"
#include "devices/remote/remote_items.h"
#include "devices/remote/remote_link.h"
#include "engine/base/status.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Its event begins now.
void RemoteLink::Describe(Item& item, size_t i) {
  if (item.trace != nullptr && item.trace->detailed()) item.events[i] = item.commands->Describe(i);
  item.events[i].begin_ns = SteadyNs();
}

void RemoteLink::Item::OnRun(uint64_t command, const absl::StatusOr<RunInfo>& info) {
  const std::shared_ptr<RemoteLink> keep = link;  // which the end of this item lets go of
  keep->OnEnded({.item = shared_from_this(),
                 .command = command,
                 .status = info.status(),
                 .info = info.ok() ? *info : RunInfo()});
}

void RemoteLink::PostLaunch(const ItemRef& item, size_t i) {
  const Launch& launch = item->commands->commands()[i].launch;
  const auto program = std::static_pointer_cast<const RemoteProgram>(launch.program);
  Describe(*item, i);
  if (program->generation() != item->generation) {  // not sent in this session, or dropped there
    program->SetGeneration(item->generation);
    Send([program](RemoteSession* session) {
      if (session != nullptr) session->PutTold(program->graph(), {});
    });
  }
  const bool trace = item->trace != nullptr && item->trace->detailed() && traced_ == nullptr;
  if (trace) traced_ = item.get();
  ++item->open;
  item->answered = true;
  if (item->link == nullptr) item->link = shared_from_this();
  Send([item, i, program, trace](RemoteSession* session) {
    if (session == nullptr) return item->OnRun(i, absl::UnavailableError(""));
    // Nobody waits for it any more, and what it would have written is poisoned.
    if (item->abandoned) return item->OnRun(i, absl::CancelledError(""));
    absl::InlinedVector<uint64_t, 8> handles, offsets;
    const Launch& run = item->commands->commands()[i].launch;
    std::vector<VarValue> variables;
    for (const Launch::Argument& argument : run.arguments) {
      if (!argument.is_buffer()) {
        variables.push_back(
            {run.variables[variables.size()], static_cast<int64_t>(argument.bits(item->scalars))});
        continue;
      }
      const auto [binding, offset] = argument.part();
      const BufferView& view = item->bindings[binding];
      handles.push_back(AsRemote(view)->handle());
      offsets.push_back(static_cast<uint64_t>(view.offset + offset));
    }
    const uint64_t number = session->RunTold(
        program->hash(), {handles, offsets, variables, program->devices(), trace}, item, i);
    if (item->first_operation == 0) item->first_operation = number;
    item->last_operation = number;
  });
}

// First a read, and a write once that has ended: whatever waits for the copy waits here meanwhile.
RemoteLink::Step RemoteLink::CopyByWayOfHost(const ItemRef& item, size_t i) {
  const CopyBytes& copy = item->commands->commands()[i].copy;
  BufferView& host = item->by_way[i];
  if (host.memory == nullptr) {
    auto memory = AllocHostMemory(copy.length);
    if (!memory.ok()) {
      item->first_failed = i;
      Fail(*item, memory.status());
      return Step::kSent;
    }
    host = {*std::move(memory), 0, copy.length};
    BufferView from = item->bindings[copy.from.binding];
    from.offset += copy.from.offset;
    PostCopy(item, i, host, from);
  }
  if (MustWaitForRead(host, 0, copy.length)) return Step::kBlocked;
  if (item->first_failed != SIZE_MAX) return Step::kSent;  // there is nothing to write
  BufferView to = item->bindings[copy.to.binding];
  to.offset += copy.to.offset;
  PostCopy(item, i, to, host);
  return Step::kSent;
}

// What is sent behind it is not before both servers know of it.
RemoteLink::Step RemoteLink::CopyBetweenServers(const ItemRef& item, size_t i) {
  std::shared_ptr<RemoteCopy>& copy = item->copies[i];
  if (copy != nullptr) return copy->posted() ? Step::kSent : Step::kBlocked;
  const CopyBytes& command = item->commands->commands()[i].copy;
  const auto end = [&](const BoundPart& part) {
    const BufferView& view = item->bindings[part.binding];
    const RemoteMemory* remote = AsRemote(view);
    return RemoteCopy::End{remote->shared_link(), remote->generation(), remote->handle(),
                           view.offset + part.offset};
  };
  ++item->open;
  item->answered = true;
  copy = std::make_shared<RemoteCopy>(
      end(command.from), end(command.to), command.length,
      [self = shared_from_this()] { self->Enter([] {}); },
      [self = shared_from_this(), item, i](const absl::Status& status) {
        self->OnEnded({.item = item, .command = i, .status = status});
      });
  later_.push_back([copy] { copy->Start(); });
  return Step::kBlocked;
}

void RemoteLink::CancelCopies(const Item& item, const absl::Status& why) {
  for (const auto& [command, copy] : item.copies) {
    later_.push_back([copy, why] { copy->Cancel(why); });
  }
}

// As many bytes as the command copies.
void RemoteLink::PostCopy(const ItemRef& item, size_t i, const BufferView& to,
                          const BufferView& from) {
  const int64_t to_offset = to.offset, from_offset = from.offset;
  const auto length = static_cast<size_t>(item->commands->commands()[i].copy.length);
  const RemoteMemory *far_to = AsRemote(to), *far_from = AsRemote(from);
  const Future<Done> told;
  ++item->open;
  item->answered = far_to == nullptr;
  told.Then([self = shared_from_this(), item, i](const absl::StatusOr<Done>& done) {
    self->OnEnded({.item = item, .command = i, .status = done.status()});
  });
  std::function<bool(RemoteSession*)> post;  // see Item::synced
  if (far_to != nullptr && far_from != nullptr) {
    post = [=, to = far_to->handle(), from = far_from->handle()](RemoteSession* session) {
      session->CopyTold(to, to_offset, from, from_offset, static_cast<int64_t>(length), told);
      return false;
    };
  } else if (far_to != nullptr) {
    const auto* at = static_cast<const std::byte*>(from.memory->host()) + from_offset;
    post = [=, to = far_to->handle(), keep = from.memory](RemoteSession* session) {
      return session->WriteTold(to, to_offset, {at, length}, keep, told);
    };
  } else {
    auto* at = static_cast<std::byte*>(to.memory->host()) + to_offset;
    const auto* begin = reinterpret_cast<const char*>(at);
    auto lent = item->cancellation == nullptr ? nullptr : std::make_shared<LentMemory>();
    host_reads_.push_back({begin, begin + length, item.get(), i, lent, told});
    post = [=, from = far_from->handle()](RemoteSession* session) {
      session->ReadTold(from, from_offset, {at, length}, told, lent);
      return false;
    };
  }
  Send([item, told, post = std::move(post)](RemoteSession* session) {
    if (session == nullptr) return told.Set(absl::UnavailableError(""));
    if (item->abandoned || item->took_back) return told.Set(absl::CancelledError(""));
    if (item->first_operation == 0) item->first_operation = session->NextOperation();
    item->synced = post(session);
    item->last_operation = session->NextOperation() - 1;
  });
}

}  // namespace telegrad
