#include "engine/tools/opt.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/files.h"
#include "engine/base/flag_pages.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/lowering/moves/move.h"
#include "engine/lowering/passes.h"
#include "engine/render/render.h"
#include "engine/rewrite/rule_counts.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/explain.h"
#include "engine/tools/ops_doc.h"
#include "engine/tools/pass_table.h"
#include "engine/tools/pieces.h"
#include "engine/tools/trace.h"

namespace telegrad {
namespace {

constexpr FlagRow kFlags[] = {
    {"passes", 'p', FlagKind::kString, "", "A,B,C", "Passes and groups to run, in order"},
    {"disable", 0, FlagKind::kString, "", "A,B,C",
     "Leave these passes out where --passes or a group of it has them; what follows sees the graph "
     "as it was before them"},
    {"list", 'l', FlagKind::kBool, "false", "", "Print all passes, groups and rule tables"},
    {"ops-doc", 0, FlagKind::kBool, "false", "", "Print docs/ops.md"},
    {"piece", 0, FlagKind::kInt, "-1", "N",
     "Read only piece N of the text, counted from 0; -1 reads all pieces", AtLeast(-1)},
    {"verify", 0, FlagKind::kBool, "true", "", "Verify the input and the result of every pass"},
    {"dump-after", 0, FlagKind::kString, "", "DIR",
     "Write the result of every pass to files in DIR, or to standard error where DIR is -"},
    {"explain", 'x', FlagKind::kString, "", "RULES",
     "Print, instead of the result, why the rows of a table (algebra), or one row by its line "
     "(algebra:107), match or do not match"},
    {"node", 'n', FlagKind::kString, "", "%N", "Explain (--explain) this node only"},
    {"counts", 'c', FlagKind::kBool, "false", "",
     "Print hits, misses and time of rules to standard error"},
    {"times", 0, FlagKind::kBool, "true", "",
     "Print, with --counts, the sampled times of rules and the times of passes"},
    {"trace", 't', FlagKind::kString, "", "FILE",
     "File that every rewrite is written to, as an HTML page"},
    {"trace-limit", 0, FlagKind::kInt, "2000", "N",
     "Maximum number of rewrites in the page of --trace", AtLeast(0)},
    {"eval", 'e', FlagKind::kBool, "false", "",
     "Run tensor graphs and programs on random inputs before and after every pass and compare"},
    {"seed", 0, FlagKind::kInt, "1", "N", "Seed of the inputs of --eval"},
    {"tolerance", 0, FlagKind::kString, "0", "X",
     "Tolerance of --eval: floats may differ by X times the larger of both, or by X where that is "
     "below 1"},
    {"emit", 0, FlagKind::kChoice, "uop", "uop|llvm|c|object|ptx|asm",
     "Form of the result: uop is the text form; programs can also be printed as LLVM IR, as OpenCL "
     "C (c), as machine code (object), as machine code for NVIDIA GPUs (ptx) and as assembly "
     "(asm)"},
    {"target", 0, FlagKind::kString, "", "KEY",
     "Target that programs are lowered and compiled for: the key of a reproducer, host for this "
     "machine, sm_80 or sm_90a for an A100 or H100, opencl for an OpenCL device, the arch of "
     "another "
     "row of engine/types/targets.def, or an AMD GPU:"
#define AMD_PROCESSOR(name, ...) " " #name
#include "engine/types/amd_processors.def"
#undef AMD_PROCESSOR
     " (default: a generic target that --vector-bytes, --vector-registers and --threads describe)"},
    {"vector-bytes", 0, FlagKind::kInt, "64", "N",
     "Width of the vector registers of the generic target in bytes", Between(4, 65'536)},
    {"vector-registers", 0, FlagKind::kInt, "32", "N",
     "Number of vector registers of the generic target", Between(1, 65'536)},
    {"threads", 0, FlagKind::kInt, "2", "N", "Number of threads that run one launch on the target",
     Between(1, 65'536)},
    {"deterministic", 0, FlagKind::kBool, "false", "",
     "Schedule and lower with a fixed order of float sums (docs/numerics.md); for processors"},
    {"weights", 0, FlagKind::kString, "", "LIST",
     "Slots of a kernel, such as 0,2, whose contents stay the same from run to run, so that packed "
     "copies of them are kept; kernels of the pass schedule have theirs without this flag"},
    {"results", 0, FlagKind::kString, "", "LIST",
     "Slots of a kernel whose contents no kernel of its graph reads, so that large ones are stored "
     "past the caches; kernels of the pass schedule have theirs without this flag"},
    {"moves", 'm', FlagKind::kString, "", "LIST",
     "Moves that the passes peel and moves carry out on a kernel instead of choosing some, such as "
     "'UPCAST r0 4, VECTORIZE r1 16, THREAD r0'; none carries out no move (default: the passes "
     "choose)"},
    {"search", 0, FlagKind::kInt, "0", "SECONDS",
     "Search for the moves of each kernel for so many seconds, by measuring programs on this "
     "machine's processor, and print the best list instead of the result; 0 does not search",
     Between(0, 86'400)},
    {"list-moves", 0, FlagKind::kBool, "false", "", "Print all kinds of moves"},
};

constexpr int kFailed = 1, kUsage = 2;

constexpr ProgramPage kPage = {
    .name = "telegrad-opt",
    .section = "1",
    .summary = "runs compiler passes on graphs and programs in their text form",
    .arguments = "[FILE]",
    .description =
        "telegrad-opt reads graphs or programs in their text form from FILE or standard input, "
        "runs passes on them and prints the result.",
    .exit_codes = "0 done, 1 failed, 2 wrong usage.",
    .flags = kFlags,
};

std::string ListMoves() {
  std::string text;
  for (const MoveRow& row : AllMoves()) {
    StrAppend(&text, row.name, row.range ? " rN" : "", row.amount ? " AMOUNT" : "",
              row.axis ? " axis N" : "", row.inner ? " rM" : "", row.ring ? " [ring N]" : "", ": ",
              row.what, "\n");
  }
  return text;
}

std::string Help() {
  return StrCat("Usage: telegrad-opt [flags] [FILE]\n\n", kPage.description, "\n\n",
                FlagHelp(kFlags), "\nExit codes: ", kPage.exit_codes, "\n");
}

// Two observers may watch the same rewriters.
class Both : public RewriteObserver {
 public:
  Both(RuleCounts* counts, Trace* trace) : counts_(counts), trace_(trace) {}
  void OnTry(const RuleTry& what) override {
    if (counts_ != nullptr) counts_->OnTry(what);
    if (trace_ != nullptr) trace_->OnTry(what);
  }

 private:
  RuleCounts* counts_;
  Trace* trace_;
};

absl::Status In(std::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(where, ": ", status.message()));
}

enum class Form { kUop, kLlvm, kC, kObject, kPtx, kAssembly };

// Of the words that --emit takes.
Form FormFromText(std::string_view text) {
  if (text == "llvm") return Form::kLlvm;
  if (text == "c") return Form::kC;
  if (text == "object") return Form::kObject;
  if (text == "asm") return Form::kAssembly;
  return text == "ptx" ? Form::kPtx : Form::kUop;
}

// The processors that a short name stands for.
std::optional<Target> KnownTarget(std::string_view name, int threads) {
  constexpr int64_t kKiB = 1024;
  if (name == "host") return HostTarget(threads);
  if (name == "sm_80") return NvidiaTarget(8, 0, 108, 163 * kKiB);
  if (name == "sm_90a") return NvidiaTarget(9, 0, 132, 227 * kKiB);
  if (name == "opencl") return OpenClTarget(std::max(threads, 1));
  if (const AmdProcessor* amd = FindAmdProcessor(name)) {
    return AmdTarget(*amd, amd->multiprocessors);
  }
  // Of other rows one processor, with what all of the kind have.
  constexpr std::pair<std::string_view, TargetKind> kRows[] = {
#define TARGET(kind, arch, ...) {arch, TargetKind::kind},
#include "engine/types/targets.def"
#undef TARGET
  };
  for (const auto& [arch, kind] : kRows) {
    if (arch == name) return TargetOf(kind);
  }
  return std::nullopt;
}

struct Settings {
  std::vector<PassRow> passes;
  std::vector<std::string> disabled;
  Form form = Form::kUop;
  Target target;
  double tolerance = 0;
  std::optional<uint32_t> node;
  std::vector<int32_t> weights, results;
  std::optional<std::string> moves;
  std::string file;  // "-": standard input
};

// The numbers of slots that a flag lists.
absl::StatusOr<std::vector<int32_t>> SlotsOf(const Flags& flags, std::string_view flag) {
  std::vector<int32_t> slots;
  for (absl::string_view slot :
       absl::StrSplit(ToAbsl(flags.GetString(flag)), ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(slot, &slots.emplace_back()) || slots.back() < 0) {
      return InvalidArgument("--", flag, ": \"", ToStd(slot), "\" is not the number of a slot");
    }
  }
  return slots;
}

absl::StatusOr<Target> TargetOf(const Flags& flags) {
  const std::string& key = flags.GetString("target");
  const int threads = static_cast<int>(flags.GetInt("threads"));
  if (const auto known = KnownTarget(key, threads)) return *known;
  if (!key.empty()) {
    const auto target = Target::FromKey(key);
    if (!target) {
      return InvalidArgument("--target: \"", key,
                             "\" is none of host, sm_80, sm_90a, the AMD processors, opencl, "
                             "the other targets and no key; --help lists them");
    }
    return *target;
  }
  Target target;
  target.arch = "any";
  target.vector_bytes = static_cast<int>(flags.GetInt("vector-bytes"));
  target.vector_registers = static_cast<int>(flags.GetInt("vector-registers"));
  target.threads = threads;
  return target;
}

// The names of passes to leave out. Each is one of `passes`, and what follows it takes the level
// that it is given, too.
absl::StatusOr<std::vector<std::string>> Disabled(std::string_view list,
                                                  std::span<const PassRow> passes) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(list), ',', absl::SkipWhitespace())) {
    const std::string& name = names.emplace_back(absl::StripAsciiWhitespace(part));
    const auto row = std::ranges::find(passes, name, &PassRow::name);
    if (row == passes.end()) {
      return InvalidArgument("--disable: \"", name, "\" is none of the passes that run");
    }
    if (row->to != row->from) {
      return InvalidArgument("--disable: ", name, " makes ", LevelNames(row->to), " of ",
                             LevelNames(row->from), ", which the passes behind it need");
    }
  }
  return names;
}

absl::StatusOr<Settings> Check(const Flags& flags) {
  Settings s;
  TG_ASSIGN_OR_RETURN(s.passes, FindPasses(flags.GetString("passes")));
  TG_ASSIGN_OR_RETURN(s.disabled, Disabled(flags.GetString("disable"), s.passes));
  if (!absl::SimpleAtod(flags.GetString("tolerance"), &s.tolerance) || !(s.tolerance >= 0)) {
    return InvalidArgument("--tolerance: \"", flags.GetString("tolerance"),
                           "\" is not a number of at least 0");
  }
  std::string_view node = flags.GetString("node");
  if (!node.empty()) {
    if (flags.GetString("explain").empty()) return InvalidArgument("--node: needs --explain");
    uint32_t number;
    if (!absl::SimpleAtoi(ToAbsl(node.substr(node.starts_with('%') ? 1 : 0)), &number)) {
      return InvalidArgument("--node: \"", node, "\" is not a label like %5");
    }
    s.node = number;
  }
  TG_ASSIGN_OR_RETURN(s.weights, SlotsOf(flags, "weights"));
  TG_ASSIGN_OR_RETURN(s.results, SlotsOf(flags, "results"));
  if (const std::string& moves = flags.GetString("moves"); !moves.empty()) {
    s.moves = moves == "none" ? "" : moves;
    TG_RETURN_IF_ERROR(In("--moves", ParseMoves(*s.moves).status()));
  }
  s.form = FormFromText(flags.GetString("emit"));
  TG_ASSIGN_OR_RETURN(s.target, TargetOf(flags));
  if (flags.GetInt("search") > 0) {
    if (flags.GetString("target").empty()) s.target = HostTarget(0);
    if (s.target.arch != HostTarget(0).arch) {
      return InvalidArgument("--search: programs are measured on this machine; --target=host");
    }
  }
  if (flags.GetBool("deterministic")) {
    if (!s.target.has(ParallelLevel::kWorkers)) {
      return InvalidArgument("--deterministic: is for processors, and the target is a GPU");
    }
    s.target.deterministic = true;
  }
  if ((s.form == Form::kC) != (s.target.arch == kOpenClArch) &&
      (s.form == Form::kC || s.form == Form::kLlvm)) {
    return InvalidArgument(
        "--emit: llvm is for processors and the GPUs of NVIDIA and AMD, c for --target=opencl");
  }
  if (s.form == Form::kPtx && !s.target.arch.starts_with("sm_")) {
    return InvalidArgument("--emit: ptx needs a target of NVIDIA, such as --target=sm_90a");
  }
  if (s.form == Form::kAssembly && s.target.arch == kOpenClArch) {
    return InvalidArgument("--emit: there is no assembly of OpenCL C");
  }
  if (flags.positional().size() > 1) {
    return InvalidArgument("one file at most, got ", flags.positional().size());
  }
  s.file = flags.positional().empty() ? "-" : flags.positional()[0];
  return s;
}

class Runner {
 public:
  Runner(const Flags& flags, const Settings& settings, const OpenDevice& open, OptResult* result)
      : flags_(flags),
        settings_(settings),
        open_(open),
        result_(*result),
        trace_(flags.GetInt("trace-limit")),
        observer_(flags.GetBool("counts") ? &counts_ : nullptr,
                  flags.GetString("trace").empty() ? nullptr : &trace_) {
    if (flags.GetBool("verify")) options_.verify = [](const Piece& piece) { return Verify(piece); };
    options_.times = &times_;
    options_.disabled = settings_.disabled;
  }

  absl::Status Run(std::string_view text) {
    TG_RETURN_IF_ERROR(In(settings_.file, Read(text)));
    TG_RETURN_IF_ERROR(CompareValues("the input"));
    absl::Status status;
    for (size_t i = 0; i < settings_.passes.size() && status.ok(); ++i) {
      status = RunOne(i, settings_.passes[i]);
    }
    // What happened up to a failure is what one wants to see.
    TG_RETURN_IF_ERROR(Report());
    TG_RETURN_IF_ERROR(status);
    if (const int64_t seconds = flags_.GetInt("search"); seconds > 0) return Search(seconds);
    if (settings_.form != Form::kUop) return Emit();
    if (flags_.GetString("explain").empty()) {
      result_.out += PrintPieces(pieces_);
      return absl::OkStatus();
    }
    for (const Piece& piece : pieces_) {
      TG_ASSIGN_OR_RETURN(const std::string said, ExplainRules(piece, flags_.GetString("explain"),
                                                               settings_.node, &budget_));
      if (pieces_.size() > 1) StrAppend(&result_.out, "--- ", piece.name, "\n");
      result_.out += said;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Read(std::string_view text) {
    TG_ASSIGN_OR_RETURN(pieces_, ParsePieces(text, flags_.GetInt("piece")));
    for (Piece& piece : pieces_) {
      MarkWeights(settings_.weights, &piece.arguments);
      MarkResults(settings_.results, &piece.arguments);
    }
    if (!options_.verify) return absl::OkStatus();
    for (const Piece& piece : pieces_) TG_RETURN_IF_ERROR(In(piece.name, Verify(piece)));
    return absl::OkStatus();
  }

  // The list is for one kernel, whichever pass makes it.
  absl::Status GiveMoves() {
    if (!settings_.moves) return absl::OkStatus();
    for (Piece& piece : pieces_) {
      if (piece.levels != kKernelLevel) continue;
      if (pieces_.size() > 1) {
        return InvalidArgument("--moves: a list is for one kernel, of ", pieces_.size(),
                               "; write them to a file and choose one with --piece");
      }
      piece.given_moves = settings_.moves;
    }
    return absl::OkStatus();
  }

  absl::Status RunOne(size_t number, const PassRow& row) {
    TG_RETURN_IF_ERROR(GiveMoves());
    std::vector<Piece> after;
    for (Piece& piece : pieces_) {
      PassContext context(piece.graph.get(), settings_.target, &budget_,
                          piece.levels == kTensorLevel ? Shapes::kExact : Shapes::kBroadcast);
      if (flags_.GetBool("counts") || !flags_.GetString("trace").empty()) {
        context.Observe(&observer_);
      }
      trace_.BeginPass(row, piece);
      auto out = RunPass(row, context, std::move(piece), options_);
      for (const auto& [what, n] : context.counters()) counters_[std::string(what)] += n;
      if (!out.ok()) return out.status();
      trace_.EndPass(*out);
      for (Piece& p : *out) after.push_back(std::move(p));
    }
    pieces_ = std::move(after);
    TG_RETURN_IF_ERROR(Dump(number, row));
    return CompareValues(row.name);
  }

  absl::Status Dump(size_t number, const PassRow& row) {
    const std::string& where = flags_.GetString("dump-after");
    if (where.empty()) return absl::OkStatus();
    if (where == "-") {
      StrAppend(&result_.err, "# after ", row.name, "\n", PrintPieces(pieces_));
      return absl::OkStatus();
    }
    std::error_code error;  // a folder that is not there shows when a file is written into it
    std::filesystem::create_directories(where, error);
    const std::string name =
        absl::StrFormat("%s/%02d-%s.uop", where, number + 1, std::string(row.name));
    return WriteFile(name, PrintPieces(pieces_));
  }

  absl::Status Search(int64_t seconds) {
    Budget::Limits limits;
    limits.time = std::chrono::hours(24);  // each search has its own limit
    Budget budget(limits);
    TG_ASSIGN_OR_RETURN(
        const std::string text,
        SearchPieces(pieces_, settings_.target, static_cast<double>(seconds), open_, &budget));
    result_.out += text;
    return absl::OkStatus();
  }

  // What the daemon makes of programs after lowering.
  absl::Status Emit() {
    for (const Piece& piece : pieces_) {
      if (piece.program == nullptr) {
        return InvalidArgument("--emit: ", piece.name, " is not a program; run --passes=lower");
      }
      TG_ASSIGN_OR_RETURN(std::string text, Render(*piece.program, settings_.target));
      if (settings_.form == Form::kAssembly) {
        TG_ASSIGN_OR_RETURN(text, CompileToAssembly(text, piece.program->name, settings_.target));
      } else if (settings_.form != Form::kLlvm && settings_.form != Form::kC) {
        TG_ASSIGN_OR_RETURN(ProgramImage image,
                            Compile(text, piece.program->name, settings_.target));
        text = std::move(image.binary);
      }
      result_.out += text;
    }
    return absl::OkStatus();
  }

  // That the pieces compute what they did when they were last run.
  absl::Status CompareValues(std::string_view after) {
    if (!flags_.GetBool("eval")) return absl::OkStatus();
    auto now = EvaluatePieces(pieces_, static_cast<uint64_t>(flags_.GetInt("seed")), &budget_);
    if (!now.ok()) return In(StrCat("--eval, after ", after), now.status());
    if (!now->has_value()) {
      StrAppend(&result_.err, "eval: after ", after, ": kernels, not run\n");
      return absl::OkStatus();
    }
    if (values_) {
      const std::string difference = FirstDifference(*values_, **now, settings_.tolerance);
      if (!difference.empty()) return Internal("--eval, after ", after, ": ", difference);
    }
    StrAppend(&result_.err, "eval: after ", after, ": ", values_ ? "equal" : "run", "\n");
    values_ = **std::move(now);
    return absl::OkStatus();
  }

  absl::Status Report() {
    if (flags_.GetBool("counts")) {
      const bool times = flags_.GetBool("times");
      result_.err += counts_.Report(times);
      for (const auto& [what, n] : counters_) StrAppend(&result_.err, what, ": ", n, "\n");
      for (const PassTime& t : times_) {
        if (times) {
          absl::StrAppendFormat(&result_.err, "pass %s: %.3f ms\n", std::string(t.name),
                                std::chrono::duration<double, std::milli>(t.time).count());
        }
      }
    }
    const std::string& file = flags_.GetString("trace");
    return file.empty() ? absl::OkStatus() : WriteFile(file, trace_.Html(settings_.file));
  }

  const Flags& flags_;
  const Settings& settings_;
  const OpenDevice& open_;
  OptResult& result_;
  Budget budget_;
  PassOptions options_;
  RuleCounts counts_;
  Trace trace_;
  Both observer_;
  std::vector<PassTime> times_;
  std::map<std::string, int64_t> counters_;
  std::vector<Piece> pieces_;
  std::optional<Outputs> values_;
};

OptResult Fail(int code, const absl::Status& status, OptResult result = {}) {
  result.exit_code = code;
  StrAppend(&result.err, "telegrad-opt: ", ToStd(status.message()), "\n");
  return result;
}

}  // namespace

OptResult RunOpt(std::span<const std::string_view> args,
                 const std::function<std::string()>& read_stdin, const OpenDevice& open) {
  const auto flags = Flags::Parse(kFlags, args);
  if (!flags.ok()) return Fail(kUsage, flags.status());
  if (flags->help()) return {0, Help(), ""};
  if (const auto page = AnswerPage(kPage, *flags)) return {page->exit_code, page->out, page->err};
  if (flags->GetBool("list")) return {0, ListPasses(), ""};
  if (flags->GetBool("list-moves")) return {0, ListMoves(), ""};
  if (flags->GetBool("ops-doc")) {
    const auto page = OpsDocument();
    return page.ok() ? OptResult{0, *page, ""} : Fail(kFailed, page.status());
  }
  const auto settings = Check(*flags);
  if (!settings.ok()) return Fail(kUsage, settings.status());
  if (const std::string& trace = flags->GetString("trace"); !trace.empty()) {
    if (const auto status = CheckWritable(trace); !status.ok()) return Fail(kFailed, status);
  }
  absl::StatusOr<std::string> text =
      settings->file == "-" ? read_stdin() : ReadFile(settings->file);
  if (!text.ok()) return Fail(kFailed, text.status());
  OptResult result;
  if (const absl::Status status = Runner(*flags, *settings, open, &result).Run(*text);
      !status.ok()) {
    return Fail(kFailed, status, std::move(result));
  }
  return result;
}

}  // namespace telegrad
