// A thread draws the line on standard error, over the one before, until the operation ends; then
// it erases the line.
#include "client/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  return isatty(fd) == 1 && term != nullptr && std::string_view(term) != "dumb" &&
         (plain == nullptr || *plain == '\0');
}

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

// Lower eighths of a character cell, from none to all.
constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int kEighthsOfCell = 8;

// The mean of the values of each column; NaN where there is none.
std::vector<double> Columns(std::span<const double> values, int width) {
  const size_t columns = std::min(static_cast<size_t>(std::max(1, width)), values.size());
  std::vector<double> out;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = c * values.size() / columns, end = (c + 1) * values.size() / columns;
    double sum = 0;
    int64_t n = 0;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++n;
    }
    out.push_back(n > 0 ? sum / static_cast<double>(n) : NAN);
  }
  return out;
}

}  // namespace

std::string ClockTime(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole >= 3600)
    return Format("%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  return Format("%lld:%02lld", static_cast<long long>(whole / 60),
                static_cast<long long>(whole % 60));
}

bool ErrorIsTerminal() { return IsTerminal(STDERR_FILENO); }
bool OutputIsTerminal() { return IsTerminal(STDOUT_FILENO); }

std::string ProgressLine(std::string_view what, int64_t done, int64_t total, std::string_view unit,
                         double seconds) {
  if (total <= 0) return StrCat(what, ": ", ClockTime(seconds));
  std::string out =
      StrCat(what, ": ", done, " of ", total, " ", unit, ", ",
             Format("%.0f", 100.0 * static_cast<double>(done) / static_cast<double>(total)), "%");
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    StrAppend(&out, ", ", Format("%.3g", rate), " ", unit, "/s, ",
              ClockTime(static_cast<double>(total - done) / rate), " left");
  }
  return out;
}

std::string TransferLine(std::string_view what, std::string_view then, const TransferAmount& before,
                         const TransferAmount& now, double seconds) {
  const int64_t moved = now.moved - before.moved, total = now.total - before.total;
  if (moved >= total) return ProgressLine(then, 0, 0, "", seconds);
  constexpr int kMiB = 20;
  return ProgressLine(what, moved >> kMiB, std::max<int64_t>(total >> kMiB, 1), "MiB", seconds);
}

std::string CompileLine::operator()(double seconds) {
  const absl::StatusOr<CompileProgress> now = ask_();
  if (!now.ok() || now->done >= now->total) return ProgressLine(what_, 0, 0, "", seconds);
  if (now->total < last_.total || now->done < last_.done) since_ = seconds;  // others than before
  last_ = *now;
  return ProgressLine(what_, now->done, now->total, "kernels", seconds - since_);
}

std::function<std::string(double)> SessionLine(const RemoteSession& session, std::string moving,
                                               std::string then, int64_t bytes) {
  auto compiling = std::make_shared<CompileLine>(then, [&session] { return session.Compiling(); });
  return [&session, before = session.transferred(), moving = std::move(moving),
          then = std::move(then), bytes, compiling](double seconds) {
    TransferAmount now = session.transferred();
    now.total = std::max(now.total, before.total + bytes);
    if (now.moved - before.moved >= now.total - before.total) return (*compiling)(seconds);
    return TransferLine(moving, then, before, now, seconds);
  };
}

Progress::Progress(std::string what, int64_t total, std::string unit, bool terminal)
    : total_(total), unit_(std::move(unit)), what_(std::move(what)) {
  if (terminal) thread_ = std::thread([this] { Loop(); });
}

Progress::Progress(std::function<std::string(double)> line, bool terminal)
    : line_(std::move(line)) {
  if (terminal) thread_ = std::thread([this] { Loop(); });
}

Progress::~Progress() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  Clear();
}

void Progress::Say(std::string what) {
  MutexLock lock(mutex_);
  what_ = std::move(what);
}

void Progress::Done(int64_t done) {
  MutexLock lock(mutex_);
  done_ = done;
}

void Progress::Clear() {
  MutexLock lock(mutex_);
  if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
}

void Progress::Loop() {
  ReleasableLock lock(mutex_);
  std::chrono::milliseconds wait = kQuiet;
  while (true) {
    const auto next = std::chrono::steady_clock::now() + wait;
    while (!stop_ && wake_.wait_until(lock, next) != std::cv_status::timeout) {
    }
    if (stop_) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    const std::string line =
        line_ ? line_(seconds.count()) : ProgressLine(what_, done_, total_, unit_, seconds.count());
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    drawn_ = true;
    wait = kRedraw;
  }
}

std::string Plot(std::span<const double> values, int width, int height) {
  const std::vector<double> columns = Columns(values, width);
  double low = INFINITY, high = -INFINITY;
  for (const double v : columns) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (!std::isfinite(low) || height < 1) return "";
  const double range = high > low ? high - low : 1;
  std::string out;
  for (int row = height - 1; row >= 0; --row) {
    const double bound = low + range * (row + 0.5) / height;
    StrAppend(&out, Format("%9.4g", bound), " ┤");
    std::string line;
    for (const double v : columns) {
      // The lowest value still fills an eighth, so that it differs from a gap.
      const int cells = height * kEighthsOfCell;
      const int filled = std::isfinite(v)
                             ? std::max(1, static_cast<int>(std::lround((v - low) / range * cells)))
                             : 0;
      line += kEighths[std::clamp(filled - row * kEighthsOfCell, 0, kEighthsOfCell)];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    StrAppend(&out, line, "\n");
  }
  return out;
}

}  // namespace telegrad
