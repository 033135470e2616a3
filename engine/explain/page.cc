// An explanation as a page for browsers. It has no scripts and no links to other files, so that it
// can be kept and sent. Charts are SVG; the title of a bar, which browsers show under the pointer,
// explains it. Names come from models of strangers, so everything is escaped.
#include <algorithm>
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/explain/explain.h"

namespace telegrad {
namespace {

constexpr double kChartWidth = 1000;
constexpr double kMemoryHeight = 260;
constexpr double kRowHeight = 16;
// Further rows would make a page that browsers are slow with; the table has all kernels.
constexpr size_t kMostRows = 400;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --fg: #1c2733; --bg: #fff; --line: #d5dde5; --soft: #f3f6f9; --compute: #2f6fd6;
  --memory: #e08a1e; }
@media (prefers-color-scheme: dark) { :root { --fg: #e3e9ef; --bg: #12181f; --line: #34404c; --soft: #1b232c;
  --compute: #6aa2ff; --memory: #f0a94a; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--fg);
  background: var(--bg); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; }
.figures div { background: var(--soft); border-radius: .5rem; padding: .6rem 1rem; }
.figures b { display: block; font-size: 1.2rem; }
.chart { overflow-x: auto; background: var(--soft); border-radius: .5rem; padding: .6rem; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--fg); }
.compute { fill: var(--compute); } .memory { fill: var(--memory); }
table { border-collapse: collapse; width: 100%; font-size: 13px; } td, th { text-align: left; padding: .25rem .5rem;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; white-space: nowrap; }
code { overflow-wrap: anywhere; } .wide { overflow-x: auto; } .key { display: inline-block; width: .8em; height: .8em; }
)";

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

// "1.23 M", in steps of a thousand.
std::string Scaled(double value, const char* unit, double step,
                   std::span<const char* const> prefixes) {
  size_t i = 0;
  while (value >= step && i + 1 < prefixes.size()) {
    value /= step;
    ++i;
  }
  return StrCat(Fixed(value, i == 0 ? 0 : 2), " ", prefixes[i], unit);
}
std::string Flops(double value) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T"};
  return Scaled(value, "flop", 1000, kPrefixes);
}
std::string Size(double value) {
  constexpr const char* kPrefixes[] = {"", "Ki", "Mi", "Gi", "Ti"};
  return Scaled(value, "B", 1024, kPrefixes);
}
std::string Time(double seconds) {
  constexpr const char* kPrefixes[] = {"n", "µ", "m", ""};
  return Scaled(seconds * 1e9, "s", 1000, kPrefixes);
}

struct Times {
  std::vector<double> begin, seconds;  // by kernel
  std::vector<bool> moves;             // whether memory takes longer than arithmetic
  double total = 0;
};

Times Predict(const Explanation& e, int threads) {
  Times out;
  for (const ExplainedKernel& kernel : e.kernels) {
    const double compute = kernel.flops / (kCpuThreadFlops * threads);
    const double memory = kernel.bytes / (kCpuThreadBytes * threads);
    out.begin.push_back(out.total);
    out.seconds.push_back(std::max(compute, memory));
    out.moves.push_back(memory > compute);
    out.total += out.seconds.back();
  }
  return out;
}

std::string Figure(std::string_view value, std::string_view what) {
  return StrCat("<div><b>", Escaped(value), "</b>", Escaped(what), "</div>\n");
}

// A row for each kernel, a bar from its begin to its end.
std::string TimelineChart(const Explanation& e, const Times& times) {
  const size_t rows = std::min(e.kernels.size(), kMostRows);
  std::string out =
      StrCat("<div class=\"chart\"><svg viewBox=\"0 0 ", Fixed(kChartWidth, 0), " ",
             Fixed(static_cast<double>(rows) * kRowHeight + 4, 0), "\" role=\"img\">\n");
  const double scale = times.total > 0 ? kChartWidth / times.total : 0;
  for (size_t k = 0; k < rows; ++k) {
    const double y = static_cast<double>(k) * kRowHeight + 2;
    const double x = times.begin[k] * scale, width = std::max(1.5, times.seconds[k] * scale);
    const std::string label = StrCat(k, " ", e.kernels[k].name);
    StrAppend(&out, "<rect class=\"", times.moves[k] ? "memory" : "compute", "\" x=\"", Fixed(x, 2),
              "\" y=\"", Fixed(y, 2), "\" width=\"", Fixed(width, 2), "\" height=\"",
              Fixed(kRowHeight - 4, 2), "\"><title>", Escaped(label), ": ", Time(times.seconds[k]),
              "</title></rect>");
    // The label goes where there is more room.
    const bool left = x + width > kChartWidth * 0.6;
    StrAppend(&out, "<text x=\"", Fixed(left ? x - 4 : x + width + 4, 2), "\" y=\"",
              Fixed(y + kRowHeight - 6, 2), left ? "\" text-anchor=\"end\">" : "\">",
              Escaped(Clip(label, 48)), "</text>\n");
  }
  StrAppend(&out, "</svg></div>\n");
  if (rows < e.kernels.size()) {
    StrAppend(&out, "<p>The first ", rows, " of ", e.kernels.size(), " launches are drawn.</p>\n");
  }
  return out;
}

// Launches from left to right, the run's memory from bottom to top, a box for each temporary.
std::string MemoryChart(const Explanation& e) {
  if (e.temporaries.empty() || e.arena_bytes <= 0) return "<p>This run needs no temporaries.</p>\n";
  std::string out = StrCat("<div class=\"chart\"><svg viewBox=\"0 0 ", Fixed(kChartWidth, 0), " ",
                           Fixed(kMemoryHeight, 0), "\" role=\"img\">\n");
  const double column = kChartWidth / static_cast<double>(std::max<size_t>(1, e.kernels.size()));
  const double unit = kMemoryHeight / static_cast<double>(e.arena_bytes);
  for (size_t i = 0; i < e.temporaries.size(); ++i) {
    const Temporary& t = e.temporaries[i];
    const double height = std::max(1.0, static_cast<double>(t.bytes) * unit);
    const double top = kMemoryHeight - static_cast<double>(t.offset) * unit - height;
    const double x = static_cast<double>(t.first) * column;
    const double width = static_cast<double>(t.last - t.first + 1) * column;
    StrAppend(&out, "<rect x=\"", Fixed(x, 2), "\" y=\"", Fixed(top, 2), "\" width=\"",
              Fixed(width, 2), "\" height=\"", Fixed(height, 2), "\" fill=\"hsl(", (i * 47) % 360,
              " 55% 60%)\" stroke=\"#0006\"><title>t", i, ": ", Size(static_cast<double>(t.bytes)),
              " at offset ", t.offset, ", kernels ", t.first, " to ", t.last, "</title></rect>");
    if (width > 24 && height > 12) {
      StrAppend(&out, "<text x=\"", Fixed(x + 4, 2), "\" y=\"", Fixed(top + 11, 2), "\">t", i,
                "</text>");
    }
    StrAppend(&out, "\n");
  }
  return out + "</svg></div>\n";
}

std::string ArgumentList(const ExplainedKernel& kernel, bool written,
                         std::span<const std::string> slot_names) {
  std::string out;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Program::Argument& a = kernel.arguments[i];
    if (a.written != written) continue;
    StrAppend(&out, out.empty() ? "" : "<br>", "<code>",
              Escaped(BufferName(kernel.buffers[i], slot_names)), "</code> ", Name(a.dtype), "[",
              a.elements, "]");
  }
  return out;
}

std::string KernelTable(const Explanation& e, const Times& times,
                        std::span<const std::string> slot_names) {
  std::string out =
      "<div class=\"wide\"><table><thead><tr><th "
      "class=\"n\">#</th><th>kernel</th><th>loops</th><th>reduces</th>"
      "<th>writes</th><th>reads</th><th class=\"n\">work</th><th class=\"n\">memory</th><th "
      "class=\"n\">time</th>"
      "<th>why it is a separate kernel</th></tr></thead><tbody>\n";
  for (size_t k = 0; k < e.kernels.size(); ++k) {
    const ExplainedKernel& kernel = e.kernels[k];
    std::string reasons;
    for (const std::string& reason : kernel.reasons) {
      StrAppend(&reasons, reasons.empty() ? "" : "<br>", Escaped(reason));
    }
    if (!kernel.refused.empty()) {
      StrAppend(&reasons,
                "<br>lowered again with less that is parallel: ", Escaped(kernel.refused));
    }
    StrAppend(&out, "<tr><td class=\"n\">", k, "</td><td><code>", Escaped(kernel.name),
              "</code></td><td>", ToString(kernel.loops), "</td><td>",
              kernel.reduces.empty() ? "" : ToString(kernel.reduces), "</td><td>",
              ArgumentList(kernel, true, slot_names), "</td><td>",
              ArgumentList(kernel, false, slot_names));
    StrAppend(&out, "</td><td class=\"n\">", Flops(kernel.flops), "</td><td class=\"n\">",
              Size(kernel.bytes), "</td><td class=\"n\">", Time(times.seconds[k]), "</td><td>",
              reasons, "</td></tr>\n");
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string ToHtml(const Explanation& e, std::span<const std::string> slot_names,
                   std::string_view title, int threads) {
  const Times times = Predict(e, std::max(1, threads));
  std::string out = StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", Escaped(title),
      " - telegrad explain</title><meta name=\"viewport\" content=\"width=device-width\"><style>",
      kStyle, "</style></head><body>\n<h1>", Escaped(title), "</h1>\n<div class=\"figures\">\n");
  StrAppend(
      &out,
      Figure(StrCat(e.kernels.size()),
             StrCat("launches of ", e.different_kernels, " different kernels")),
      Figure(Flops(e.flops), "arithmetic"), Figure(Size(e.bytes), "memory that kernels touch"),
      Figure(Time(times.total), StrCat("predicted on ", threads, " threads of a CPU")),
      Figure(Size(static_cast<double>(e.arena_bytes)),
             StrCat("for temporaries; ", Size(static_cast<double>(e.unshared_bytes)),
                    " if none shared memory")),
      Figure(Size(static_cast<double>(e.slot_bytes)), "inputs, outputs and weights"), "</div>\n");
  StrAppend(&out,
            "<h2>Timeline</h2>\n<p>Predicted from each kernel's work, not measured; <code>telegrad "
            "run --timeline</code> "
            "measures. <span class=\"key\" style=\"background:var(--compute)\"></span> bound by "
            "arithmetic, <span "
            "class=\"key\" style=\"background:var(--memory)\"></span> bound by memory.</p>\n",
            TimelineChart(e, times));
  StrAppend(&out,
            "<h2>Memory of temporaries</h2>\n<p>Launches run from left to right; the height is the "
            "memory of the run. "
            "Boxes above one another are alive at the same time, boxes beside one another share "
            "memory.</p>\n",
            MemoryChart(e));
  StrAppend(&out,
            "<h2>Kernels and fusion</h2>\n<p>Operations that are not listed as a kernel were fused "
            "into one that is.</p>\n",
            KernelTable(e, times, slot_names), "</body></html>\n");
  return out;
}

}  // namespace telegrad
