// An explanation as text for people and as JSON for programs.
#include <cstdio>

#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/explain/explain.h"

namespace telegrad {
namespace {

// All digits where they are few, as "2.36e+08" where not.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

// Counts are whole, and exact up to 2^53.
std::string Count(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

// "a:f32[64] b:f32[64]" of the arguments that are written, or of those that are only read.
std::string Arguments(const ExplainedKernel& kernel, bool written,
                      std::span<const std::string> slot_names) {
  std::string out;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Program::Argument& a = kernel.arguments[i];
    if (a.written != written) continue;
    StrAppend(&out, out.empty() ? "" : " ", BufferName(kernel.buffers[i], slot_names), ":",
              Name(a.dtype), "[", a.elements, "]");
  }
  return out.empty() ? "nothing" : out;
}

std::string Quoted(const std::vector<std::string>& strings) {
  return absl::StrJoin(strings, ",",
                       [](std::string* out, const std::string& s) { *out += JsonQuote(s); });
}

const char* Bool(bool value) { return value ? "true" : "false"; }

std::string KernelJson(const ExplainedKernel& kernel, std::span<const std::string> slot_names) {
  std::string arguments;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Program::Argument& a = kernel.arguments[i];
    const bool slot = kernel.buffers[i].kind == BufferRef::Kind::kSlot;
    StrAppend(&arguments, i == 0 ? "" : ",", "{\"kind\":\"", slot ? "slot" : "temporary",
              "\",\"index\":", kernel.buffers[i].index,
              ",\"name\":", JsonQuote(BufferName(kernel.buffers[i], slot_names)), ",\"dtype\":\"",
              Name(a.dtype), "\",\"elements\":", a.elements, ",\"read\":", Bool(a.read),
              ",\"written\":", Bool(a.written), "}");
  }
  return StrCat(
      "{\"name\":", JsonQuote(kernel.name), ",\"loops\":[", absl::StrJoin(kernel.loops, ","),
      "],\"reduces\":[", absl::StrJoin(kernel.reduces, ","), "],\"arguments\":[", arguments,
      "],\"reasons\":[", Quoted(kernel.reasons), "],\"flops\":", Count(kernel.flops),
      ",\"bytes\":", Count(kernel.bytes), ",\"intensity\":", Number(kernel.intensity()),
      ",\"moves\":", JsonQuote(kernel.moves), ",\"refused\":", JsonQuote(kernel.refused), "}");
}

}  // namespace

std::string BufferName(const BufferRef& ref, std::span<const std::string> slot_names) {
  if (ref.kind == BufferRef::Kind::kTemporary) return StrCat("t", ref.index);
  const auto slot = static_cast<size_t>(ref.index);
  return slot < slot_names.size() ? slot_names[slot] : StrCat("slot", ref.index);
}

std::string ToText(const Explanation& e, std::span<const std::string> slot_names) {
  std::string out;
  for (size_t k = 0; k < e.kernels.size(); ++k) {
    const ExplainedKernel& kernel = e.kernels[k];
    StrAppend(&out, "kernel ", k, " ", kernel.name, " loops ", ToString(kernel.loops));
    if (!kernel.reduces.empty()) StrAppend(&out, " reduces ", ToString(kernel.reduces));
    StrAppend(&out, " writes ", Arguments(kernel, true, slot_names), " reads ",
              Arguments(kernel, false, slot_names), " flops ", Count(kernel.flops), " bytes ",
              Count(kernel.bytes), " intensity ", Number(kernel.intensity()),
              " because: ", absl::StrJoin(kernel.reasons, "; "), "\n");
    if (!kernel.moves.empty()) StrAppend(&out, "moves ", k, " ", kernel.moves, "\n");
    if (!kernel.refused.empty()) {
      StrAppend(&out, "refused ", k,
                " and lowered again with less that is parallel: ", kernel.refused, "\n");
    }
  }
  for (size_t i = 0; i < e.temporaries.size(); ++i) {
    const Temporary& t = e.temporaries[i];
    StrAppend(&out, "temporary t", i, " bytes ", t.bytes, " offset ", t.offset, " kernels ",
              t.first, " to ", t.last, "\n");
  }
  StrAppend(&out, "memory: ", e.arena_bytes, " bytes of temporaries, of which at most ",
            e.peak_bytes, " are alive at a time; ", e.unshared_bytes,
            " if none shared memory; slots ", e.slot_bytes, "\n");
  StrAppend(&out, "total: ", e.kernels.size(), " launches of ", e.different_kernels,
            " different kernels, flops ", Count(e.flops), " bytes ", Count(e.bytes), " intensity ",
            Number(e.bytes > 0 ? e.flops / e.bytes : 0), "\n");
  return out;
}

std::string ToJson(const Explanation& e, std::span<const std::string> slot_names) {
  std::string kernels, temporaries;
  for (const ExplainedKernel& kernel : e.kernels) {
    StrAppend(&kernels, kernels.empty() ? "\n" : ",\n", KernelJson(kernel, slot_names));
  }
  for (const Temporary& t : e.temporaries) {
    StrAppend(&temporaries, temporaries.empty() ? "\n" : ",\n", "{\"bytes\":", t.bytes,
              ",\"offset\":", t.offset, ",\"first\":", t.first, ",\"last\":", t.last, "}");
  }
  return StrCat("{\"launches\":", e.kernels.size(), ",\"different_kernels\":", e.different_kernels,
                ",\"flops\":", Count(e.flops), ",\"bytes\":", Count(e.bytes), ",\"kernels\":[",
                kernels, "],\n\"memory\":{\"arena_bytes\":", e.arena_bytes,
                ",\"peak_bytes\":", e.peak_bytes, ",\"unshared_bytes\":", e.unshared_bytes,
                ",\"slot_bytes\":", e.slot_bytes, ",\"temporaries\":[", temporaries, "]}}\n");
}

}  // namespace telegrad
