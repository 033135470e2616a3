// Each call has an LLVMContext of its own, so calls share nothing but LLVM's target registry. Code
// for GPUs goes through LLVM's O2: O1 leaves out the vectorizers, O3 gains nothing on kernels. A
// thread of a GPU has no vector registers, so there vectors become scalars before anything else
// looks at them, but for those that are loaded and stored. Code for the CPU goes through the passes
// of O2 that change kernels (kCpuPasses).
#include "engine/compile/compiler.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/base/status.h"
#include "engine/compile/code_object_link.h"
#include "engine/compile/halves.h"
#include "engine/compile/ptxas.h"
#include "engine/compile/uniform_loads.h"
#include "engine/compile/whole_waves.h"
#include "engine/opencl/build.h"
#include "engine/types/kernel_attributes.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/Scalarizer.h"

namespace telegrad {
namespace {

// What LLVM is asked for, by architecture.
struct Machine {
  std::string_view arch;
  const char* triple;
  const char* cpu;
  const char* features;  // null: those of the target
  bool vectors;          // a thread has vector registers
  llvm::CodeGenFileType form;
  bool linked = false;  // as a code object of AMD's
};
// x86-64: "x86-64" and not Target::cpu, see RenderLlvm on names and features.
// PTX: version 8.0 is the oldest that has all of sm_90a, 7.1 that of sm_80; a driver takes its own
// and all older ones, that of CUDA 12.0 both.
constexpr Machine kMachines[] = {
    {"x86-64", "x86_64-unknown-linux-gnu", "x86-64", nullptr, true,
     llvm::CodeGenFileType::ObjectFile},
    {"sm_80", "nvptx64-nvidia-cuda", "sm_80", "+ptx71", false, llvm::CodeGenFileType::AssemblyFile},
    {"sm_90a", "nvptx64-nvidia-cuda", "sm_90a", "+ptx80", false,
     llvm::CodeGenFileType::AssemblyFile},
#define AMD_PROCESSOR(name, wave, features, ...) \
  {#name, "amdgcn-amd-amdhsa", #name, features, false, llvm::CodeGenFileType::ObjectFile, true},
#include "engine/types/amd_processors.def"
#undef AMD_PROCESSOR
};

// A kernel is one function that calls intrinsics only, its loops count from 0 in steps of 1, and
// what is worth a vector is one already. So half of O2's passes, the interprocedural ones first of
// all, find nothing in it, and of those that clean up after other passes O2 has more than it takes.
// These are in O2's order what is left once each pass is taken out whose absence leaves the code of
// kernels as it is, or as fast as it is.
constexpr std::string_view kCpuPasses[] = {
    // Buffers of registers become values, equal values one; branches on what is known go away. The
    // loops of gated accesses need all of it before their first pass: the branches of a gate that
    // tests what an earlier one has tested.
    "simplifycfg", "sroa", "early-cse", "instcombine", "simplifycfg", "early-cse<memssa>",
    "jump-threading", "correlated-propagation", "simplifycfg", "instcombine",
    // Index arithmetic that does not change in a loop leaves it.
    "reassociate", "loop-mssa(loop-rotate,licm)", "simplifycfg", "instcombine",
    // Short loops become straight code, which is then simplified as such; what they index may be
    // registers, too.
    "loop(loop-idiom,indvars,loop-unroll-full)", "sroa", "gvn", "instcombine", "jump-threading",
    "correlated-propagation", "loop-vectorize", "slp-vectorizer",
    // Several iterations of a loop of few instructions become one.
    "loop-unroll<O2>", "instcombine"};

// Those of them that make vectors of scalars. They look at everything and find nothing where a
// kernel stores vectors only.
constexpr std::string_view kVectorizers[] = {"loop-vectorize", "slp-vectorizer"};

bool StoresScalars(const llvm::Module& module) {
  for (const llvm::Function& function : module) {
    for (const llvm::Instruction& i : llvm::instructions(function)) {
      const auto* store = llvm::dyn_cast<llvm::StoreInst>(&i);
      if (store != nullptr && !store->getValueOperand()->getType()->isVectorTy()) return true;
    }
  }
  return false;
}

void InitializeLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
#ifdef TELEGRAD_LLD
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
#endif
  });
}

// Keeps the first error that a pass or the code generator reports, instead of printing it and
// exiting.
class Diagnostics : public llvm::DiagnosticHandler {
 public:
  explicit Diagnostics(std::string* error) : error_(error) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error && error_->empty()) {
      llvm::raw_string_ostream out(*error_);
      llvm::DiagnosticPrinterRawOStream printer(out);
      info.print(printer);
    }
    return true;
  }

 private:
  std::string* error_;
};

class Compilation {
 public:
  Compilation(const std::string& name, const Target& target, const Machine& machine)
      : name_(name), target_(target), wanted_(machine) {
    context_.setDiagnosticHandler(std::make_unique<Diagnostics>(&error_));
  }

  absl::StatusOr<ProgramImage> Run(const std::string& llvm_ir) {
    TG_RETURN_IF_ERROR(Prepare(llvm_ir));
    TG_ASSIGN_OR_RETURN(std::string code, Emit(wanted_.form));
    if (wanted_.linked) {
      auto linked = LinkCodeObject(code);
      if (!linked.ok()) return Bad(ToStd(linked.status().message()));
      code = *std::move(linked);
    }
    ProgramImage image{.name = name_, .binary = std::move(code)};
    ProgramSignature& signature = image.signature;
    const llvm::Function& entry = *module_->getFunction(name_);
    const llvm::StringRef text = entry.getFnAttribute(kParametersAttribute).getValueAsString();
    auto parameters = ParametersFromText({text.data(), text.size()});
    if (!parameters) return Bad("it says of its parameters: ", std::string(text));
    signature.parameters = *std::move(parameters);
    signature.group.x = static_cast<int64_t>(Attribute(kGroupThreadsAttribute, 1));
    signature.local_bytes = static_cast<int64_t>(Attribute(kLocalBytesAttribute, 0));
    return image;
  }

  absl::StatusOr<std::string> Print(const std::string& llvm_ir) {
    TG_RETURN_IF_ERROR(Prepare(llvm_ir));
    return Emit(llvm::CodeGenFileType::AssemblyFile);
  }

 private:
  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return Internal("kernel ", name_, ": ", args...);
  }

  absl::Status Prepare(const std::string& llvm_ir) {
    TG_RETURN_IF_ERROR(Parse(llvm_ir));
    TG_RETURN_IF_ERROR(MakeMachine());
    if (wanted_.linked) KeepQuotientsWide(*module_);
    TG_RETURN_IF_ERROR(Optimize());
    const bool has_halves = target_.features.find("+avx512fp16") != std::string::npos;
    if (wanted_.vectors && !has_halves) FindLargerAsFloats(*module_);
    if (wanted_.linked) {
      KeepSignsOfZero(*module_);
      KeepWavesWhole(*module_);
      SplitUniformLoads(*module_, *machine_);
    }
    return absl::OkStatus();
  }

  absl::Status Parse(const std::string& llvm_ir) {
    llvm::SMDiagnostic parse_error;
    module_ = llvm::parseIR(llvm::MemoryBufferRef(llvm_ir, name_), parse_error, context_);
    std::string why;
    llvm::raw_string_ostream out(why);
    if (module_ == nullptr) {
      parse_error.print(name_.c_str(), out, /*ShowColors=*/false);
      return Bad("LLVM cannot parse its IR: ", out.str());
    }
    if (llvm::verifyModule(*module_, &out)) return Bad("LLVM's verifier: ", out.str());
    const llvm::Function* entry = module_->getFunction(name_);
    if (entry == nullptr || entry->isDeclaration()) return Bad("no function of that name");
    return absl::OkStatus();
  }

  absl::Status MakeMachine() {
    std::string why;
    const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(wanted_.triple, why);
    if (llvm_target == nullptr) return Bad(why);
    llvm::TargetOptions options;
    options.AllowFPOpFusion =
        llvm::FPOpFusion::Strict;  // a*b+c contracts only where the IR says so
    machine_.reset(llvm_target->createTargetMachine(
        wanted_.triple, wanted_.cpu,
        wanted_.features != nullptr ? wanted_.features : target_.features, options,
        llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default,
        /*JIT=*/true));
    if (machine_ == nullptr) return Bad("LLVM has no machine for ", wanted_.triple);
    module_->setTargetTriple(wanted_.triple);
    module_->setDataLayout(machine_->createDataLayout());
    return absl::OkStatus();
  }

  // LLVM's O2 for a machine without vector registers.
  static llvm::ModulePassManager ScalarPasses(llvm::PassBuilder& builder) {
    builder.registerPipelineStartEPCallback(
        [](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
          passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ScalarizerPass()));
        });
    return builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  }

  // kCpuPasses. INTERNAL where this LLVM does not know one.
  absl::Status AddCpuPasses(llvm::PassBuilder& builder, llvm::ModulePassManager* passes) const {
    const bool scalars = StoresScalars(*module_);
    std::string text = "function(";
    for (std::string_view pass : kCpuPasses) {
      if (!scalars && std::ranges::find(kVectorizers, pass) != std::end(kVectorizers)) continue;
      StrAppend(&text, text.ends_with('(') ? "" : ",", pass);
      // Else a pass that would find more to do the second time is an error.
      if (pass == "instcombine") text += "<no-verify-fixpoint>";
    }
    llvm::Error error = builder.parsePassPipeline(*passes, text + ")");
    if (!error) return absl::OkStatus();
    return Bad("LLVM's passes: ", llvm::toString(std::move(error)));
  }

  absl::Status Optimize() {
    llvm::PipelineTuningOptions tuning;
    tuning.LoopVectorization = wanted_.vectors;
    tuning.SLPVectorization = wanted_.vectors;
    llvm::PassBuilder builder(machine_.get(), tuning);
    llvm::ModulePassManager passes;
    if (!wanted_.vectors) {
      passes = ScalarPasses(builder);
    } else {
      TG_RETURN_IF_ERROR(AddCpuPasses(builder, &passes));
    }
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);
    passes.run(*module_, modules);
    return error_.empty() ? absl::OkStatus() : Bad("LLVM's optimizer: ", error_);
  }

  absl::StatusOr<std::string> Emit(llvm::CodeGenFileType form) {
    llvm::SmallVector<char, 0> object;
    llvm::raw_svector_ostream out(object);
    llvm::legacy::PassManager passes;
    if (machine_->addPassesToEmitFile(passes, out, nullptr, form)) {
      return Bad("LLVM cannot emit code for ", wanted_.triple);
    }
    passes.run(*module_);
    if (!error_.empty()) return Bad("LLVM's code generator: ", error_);
    return std::string(object.data(), object.size());
  }

  uint64_t Attribute(std::string_view attribute, uint64_t otherwise) const {
    return module_->getFunction(name_)->getFnAttributeAsParsedInteger(attribute, otherwise);
  }

  const std::string& name_;
  const Target& target_;
  const Machine& wanted_;
  std::string error_;
  llvm::LLVMContext context_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<llvm::Module> module_;
};

absl::StatusOr<const Machine*> MachineFor(const Target& target) {
  std::string known;
  for (const Machine& machine : kMachines) {
    if (machine.arch == target.arch) {
      InitializeLlvm();
      return &machine;
    }
    StrAppend(&known, machine.arch, ", ");
  }
  return Unimplemented("no compiler for ", target.arch, "; expected one of ", known, kOpenClArch);
}

// What the text says behind the attribute, which is empty where it says nothing.
std::string_view LineOf(std::string_view source, std::string_view attribute) {
  const std::string head = StrCat("// ", attribute, ": ");
  const size_t at = source.find(head);
  if (at == source.npos) return "";
  source.remove_prefix(at + head.size());
  return source.substr(0, source.find('\n'));
}

}  // namespace

absl::Status CheckIrSize(const std::string& source, const std::string& name) {
  if (source.size() <= kMaxIrBytes) return absl::OkStatus();
  return ResourceExhausted("kernel ", name, ": ", source.size(),
                           " bytes of text are over the limit of ", kMaxIrBytes);
}

absl::StatusOr<ProgramImage> Compile(const std::string& source, const std::string& name,
                                     const Target& target, const CompilerOptions& options) {
  TG_RETURN_IF_ERROR(CheckIrSize(source, name));
  if (target.arch == kOpenClArch && !options.opencl_library.empty()) {
    TG_ASSIGN_OR_RETURN(opencl::Built built,
                        opencl::Build(options.opencl_library, source, name, target));
    auto parameters = ParametersFromText(LineOf(source, kParametersAttribute));
    if (!parameters) return Internal("kernel ", name, ": a malformed line of parameters");
    return ProgramImage{.name = name,
                        .binary = std::move(built.binary),
                        .signature = {.parameters = *std::move(parameters), .group = built.group}};
  }
  TG_ASSIGN_OR_RETURN(const Machine* machine, MachineFor(target));
  TG_ASSIGN_OR_RETURN(ProgramImage image, Compilation(name, target, *machine).Run(source));
  if (const auto assembler = AssemblerOf(target)) {
    absl::StatusOr<std::string> cubin = AssemblePtx(*assembler, image.binary, target.arch, name);
    if (!cubin.ok() && !TakesPtx(target)) return cubin.status();
    if (cubin.ok()) image.binary = *std::move(cubin);
  }
  return image;
}

absl::Status TryAssembler(const Assembler& assembler, const std::string& arch) {
  Target target;
  target.arch = arch;
  target.features = CubinFeatures(assembler);
  constexpr char kNothing[] = "define ptx_kernel void @nothing() {\n  ret void\n}\n";
  return Compile(kNothing, "nothing", target).status();
}

absl::StatusOr<std::string> CompileToAssembly(const std::string& source, const std::string& name,
                                              const Target& target) {
  TG_RETURN_IF_ERROR(CheckIrSize(source, name));
  TG_ASSIGN_OR_RETURN(const Machine* machine, MachineFor(target));
  return Compilation(name, target, *machine).Print(source);
}

}  // namespace telegrad
