#include "engine/frontend/io/torch.h"

#include <algorithm>
#include <map>

#include "absl/strings/escaping.h"
#include "engine/base/budget.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/pickle.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

using PickleKind = PickleValue::Kind;

constexpr std::string_view kPickle = "data.pkl";
constexpr int64_t kMaxPickle = 64 << 20;
constexpr int kMaxDepth = 64;

// What a global of the pickle means here.
enum class Role : uint8_t { kDict, kStorage, kDType, kTensorV2, kTensorV3, kParameter, kSize };
struct GlobalRow {
  PickleGlobal global;
  Role role;
  DType dtype;  // of kStorage and kDType; kVoid: a storage of bytes
};
constexpr GlobalRow kGlobals[] = {
    {{"collections", "OrderedDict", true}, Role::kDict, DType::kVoid},
    {{"torch._utils", "_rebuild_tensor_v2"}, Role::kTensorV2, DType::kVoid},
    {{"torch._utils", "_rebuild_tensor_v3"}, Role::kTensorV3, DType::kVoid},
    {{"torch._utils", "_rebuild_parameter"}, Role::kParameter, DType::kVoid},
    {{"torch", "Size"}, Role::kSize, DType::kVoid},
    {{"torch.storage", "UntypedStorage"}, Role::kStorage, DType::kVoid},
    {{"torch", "FloatStorage"}, Role::kStorage, DType::kFloat32},
    {{"torch", "DoubleStorage"}, Role::kStorage, DType::kFloat64},
    {{"torch", "HalfStorage"}, Role::kStorage, DType::kFloat16},
    {{"torch", "BFloat16Storage"}, Role::kStorage, DType::kBFloat16},
    {{"torch", "LongStorage"}, Role::kStorage, DType::kInt64},
    {{"torch", "IntStorage"}, Role::kStorage, DType::kInt32},
    {{"torch", "ShortStorage"}, Role::kStorage, DType::kInt16},
    {{"torch", "CharStorage"}, Role::kStorage, DType::kInt8},
    {{"torch", "ByteStorage"}, Role::kStorage, DType::kUInt8},
    {{"torch", "BoolStorage"}, Role::kStorage, DType::kBool},
    {{"torch", "float32"}, Role::kDType, DType::kFloat32},
    {{"torch", "float64"}, Role::kDType, DType::kFloat64},
    {{"torch", "float16"}, Role::kDType, DType::kFloat16},
    {{"torch", "bfloat16"}, Role::kDType, DType::kBFloat16},
    {{"torch", "int64"}, Role::kDType, DType::kInt64},
    {{"torch", "int32"}, Role::kDType, DType::kInt32},
    {{"torch", "int16"}, Role::kDType, DType::kInt16},
    {{"torch", "int8"}, Role::kDType, DType::kInt8},
    {{"torch", "uint8"}, Role::kDType, DType::kUInt8},
    {{"torch", "bool"}, Role::kDType, DType::kBool},
    {{"torch", "uint16"}, Role::kDType, DType::kUInt16},
    {{"torch", "uint32"}, Role::kDType, DType::kUInt32},
    {{"torch", "uint64"}, Role::kDType, DType::kUInt64},
    {{"torch", "float8_e4m3fn"}, Role::kDType, DType::kFloat8E4M3},
    {{"torch", "float8_e5m2"}, Role::kDType, DType::kFloat8E5M2},
    {{"torch", "float8_e4m3fnuz"}, Role::kDType, DType::kFloat8E4M3Fnuz},
    {{"torch", "float8_e5m2fnuz"}, Role::kDType, DType::kFloat8E5M2Fnuz},
    {{"torch", "float8_e8m0fnu"}, Role::kDType, DType::kFloat8E8M0},
};

const ZipMember* FindPickle(const ZipDirectory& zip) {
  const auto it = std::ranges::find_if(zip.members, [](const ZipMember& m) {
    const std::string_view name = m.name;
    return name == kPickle ||
           (name.ends_with(kPickle) && name[name.size() - kPickle.size() - 1] == '/' &&
            std::ranges::count(name, '/') == 1);
  });
  return it == zip.members.end() ? nullptr : &*it;
}

Shape RowMajor(ShapeView shape) {
  Shape out(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) out[i - 1] = out[i] * std::max<int64_t>(shape[i], 1);
  return out;
}

// A walk over the pickle's values that finds the tensors and names them.
class Walk {
 public:
  Walk(const Pickle& pickle, std::string folder, const ZipDirectory& zip, Budget* budget)
      : pickle_(pickle), folder_(std::move(folder)), budget_(budget), names_(budget) {
    for (const ZipMember& m : zip.members) members_.emplace(m.name, &m);
  }

  absl::StatusOr<TensorListing> Run() {
    pending_.push_back({pickle_.root, "", 0});
    while (!pending_.empty()) {
      const Visit visit = std::move(pending_.back());
      pending_.pop_back();
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      if (absl::Status s = Take(visit); !s.ok()) {
        return absl::Status(s.code(), ToAbsl(StrCat("PyTorch: '", absl::CEscape(visit.name),
                                                    "': ", ToStd(s.message()))));
      }
    }
    out_.format = "PyTorch";
    return std::move(out_);
  }

 private:
  struct Visit {
    uint32_t value;
    std::string name;
    int depth;
  };

  const PickleValue& At(uint32_t id) const { return pickle_.values[id]; }
  const GlobalRow* Global(const PickleValue& v) const {
    return v.kind == PickleKind::kGlobal ? &kGlobals[static_cast<size_t>(v.number)] : nullptr;
  }

  absl::Status Take(const Visit& visit) {
    const PickleValue& v = At(visit.value);
    const std::string name = visit.name.empty() ? kOnlyTensor : visit.name;
    switch (v.kind) {
      case PickleKind::kNone:
        return absl::OkStatus();
      case PickleKind::kBool:
        return AddMetadata(name, v.number != 0);
      case PickleKind::kInt:
        return AddMetadata(name, v.number);
      case PickleKind::kFloat:
        return AddMetadata(name, v.real);
      case PickleKind::kString:
        return AddMetadata(name, std::string(v.text));
      case PickleKind::kTuple:
      case PickleKind::kList:
      case PickleKind::kDict:
        return Enter(visit, v);
      case PickleKind::kCall:
        break;
      default:
        return Unimplemented("neither a tensor nor a container of tensors");
    }
    const Role role = Global(At(v.items[0]))->role;
    const PickleValue& arguments = At(v.items[1]);
    if (role == Role::kParameter || role == Role::kSize) {
      if (arguments.items.empty()) return InvalidArgument("a parameter of nothing");
      if (visit.depth >= kMaxDepth) return TooDeep();
      pending_.push_back({arguments.items[0], visit.name, visit.depth + 1});
      return absl::OkStatus();
    }
    return AddTensor(name, role, arguments.items);
  }

  static absl::Status TooDeep() {
    return InvalidArgument("containers are nested more than ", kMaxDepth,
                           " deep, or one holds itself");
  }

  absl::Status AddMetadata(const std::string& name, MetadataValue value) {
    if (out_.metadata.emplace(name, std::move(value)).second) return absl::OkStatus();
    return InvalidArgument("the name appears twice");
  }

  absl::Status Enter(const Visit& visit, const PickleValue& v) {
    if (visit.depth >= kMaxDepth) return TooDeep();
    const size_t step = v.kind == PickleKind::kDict ? 2 : 1;
    for (size_t i = v.items.size(); i > 0; i -= step) {  // the last one first: it is a stack
      std::string key;
      if (v.kind != PickleKind::kDict) {
        key = StrCat(i - 1);
      } else if (const PickleValue& k = At(v.items[i - 2]); k.kind == PickleKind::kString) {
        key = k.text;
      } else if (k.kind == PickleKind::kInt) {
        key = StrCat(k.number);
      } else {
        return Unimplemented("a dict with a key that is neither a string nor a number");
      }
      if (!visit.name.empty()) key = StrCat(visit.name, ".", key);
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      TG_RETURN_IF_ERROR(names_.Grow(static_cast<int64_t>(key.size() + sizeof(Visit))));
      pending_.push_back({v.items[i - 1], std::move(key), visit.depth + 1});
    }
    return absl::OkStatus();
  }

  struct Storage {
    const ZipMember* member = nullptr;
    DType dtype = DType::kVoid;
  };
  // ('storage', its class, its key, where it was, how many elements it has)
  absl::StatusOr<Storage> FindStorage(const PickleValue& v) const {
    const auto malformed = [] { return InvalidArgument("a tensor without a storage"); };
    if (v.kind != PickleKind::kPersistent) return malformed();
    const PickleValue& id = At(v.items[0]);
    if (id.kind != PickleKind::kTuple || id.items.size() != 5) return malformed();
    const GlobalRow* type = Global(At(id.items[1]));
    const PickleValue &tag = At(id.items[0]), &key = At(id.items[2]), &count = At(id.items[4]);
    if (tag.text != "storage" || type == nullptr || type->role != Role::kStorage ||
        key.kind != PickleKind::kString || count.kind != PickleKind::kInt) {
      return malformed();
    }
    const auto it = members_.find(StrCat(folder_, "data/", key.text));
    if (it == members_.end()) {
      return InvalidArgument("there is no storage '", absl::CEscape(ToAbsl(key.text)), "'");
    }
    const int64_t width = type->dtype == DType::kVoid ? 1 : ByteSize(type->dtype);
    int64_t bytes = 0;
    if (count.number < 0 || !CheckedMul(count.number, width, &bytes) || bytes > it->second->size) {
      return InvalidArgument("storage '", it->first, "' is said to have ", count.number,
                             " elements of ", width, " bytes and has ", it->second->size, " bytes");
    }
    return Storage{it->second, type->dtype};
  }

  absl::StatusOr<Shape> Sizes(const PickleValue& v) const {
    const PickleValue* tuple = &v;
    if (v.kind == PickleKind::kCall && Global(At(v.items[0]))->role == Role::kSize &&
        At(v.items[1]).items.size() == 1) {
      tuple = &At(At(v.items[1]).items[0]);
    }
    if (tuple->kind != PickleKind::kTuple || tuple->items.size() > kMaxRank) {
      return InvalidArgument("sizes or strides that are not a tuple of at most ", kMaxRank);
    }
    Shape out;
    for (const uint32_t item : tuple->items) {
      if (At(item).kind != PickleKind::kInt || At(item).number < 0) {
        return InvalidArgument("sizes or strides that are not numbers from 0");
      }
      out.push_back(At(item).number);
    }
    return out;
  }

  // (storage, its offset, sizes, strides, requires_grad, hooks [, dtype] [, metadata])
  absl::Status AddTensor(const std::string& name, Role role, const std::vector<uint32_t>& items) {
    const bool v3 = role == Role::kTensorV3;
    if ((role != Role::kTensorV2 && !v3) || items.size() < (v3 ? 7 : 6)) {
      return InvalidArgument("a call that makes no tensor");
    }
    TG_ASSIGN_OR_RETURN(const Storage storage, FindStorage(At(items[0])));
    TensorEntry e;
    e.name = name;
    e.dtype = storage.dtype;
    if (v3) {
      const GlobalRow* dtype = Global(At(items[6]));
      if (dtype == nullptr || dtype->role != Role::kDType) {
        return InvalidArgument("an element type that is none");
      }
      e.dtype = dtype->dtype;
    }
    if (e.dtype == DType::kVoid) return InvalidArgument("a storage without an element type");
    TG_ASSIGN_OR_RETURN(e.shape, Sizes(At(items[2])));
    TG_ASSIGN_OR_RETURN(const Shape strides, Sizes(At(items[3])));
    TG_ASSIGN_OR_RETURN(e.bytes, CheckedByteSize(e.dtype, e.shape));
    if (strides.size() != e.shape.size())
      return InvalidArgument("as many strides as sizes are due");

    const PickleValue& offset = At(items[1]);
    int64_t skip = 0;
    if (offset.kind != PickleKind::kInt || offset.number < 0 ||
        !CheckedMul(offset.number, ByteSize(e.dtype), &skip) || skip > storage.member->size) {
      return InvalidArgument("an offset of ", offset.number, " elements in a storage of ",
                             storage.member->size, " bytes");
    }
    const int64_t left = storage.member->size - skip;
    const Shape row_major = RowMajor(e.shape);
    for (size_t i = 0; i < e.shape.size() && e.bytes > 0; ++i) {
      if (e.shape[i] > 1 && strides[i] != row_major[i]) e.strides = strides;
    }
    if (e.strides.empty() && e.bytes > left) {
      return InvalidArgument(Name(e.dtype), " ", ToString(e.shape), " needs ", e.bytes,
                             " bytes from byte ", skip, " of its storage on, which has ",
                             storage.member->size);
    }
    e.offset = storage.member->offset;
    if (storage.member->deflated) {
      if (!e.strides.empty()) return Unimplemented("a transposed tensor in a compressed member");
      e.stored = storage.member->stored;
      e.deflated = Deflated{storage.member->size, skip, storage.member->crc};
    } else {
      e.offset += skip;
      e.stored = e.strides.empty() ? e.bytes : left;
    }
    out_.tensors.push_back(std::move(e));
    return absl::OkStatus();
  }

  const Pickle& pickle_;
  const std::string folder_;
  Budget* const budget_;
  Budget::Held names_;
  std::map<std::string, const ZipMember*> members_;
  std::vector<Visit> pending_;
  TensorListing out_;
};

}  // namespace

bool IsTorch(const ZipDirectory& zip) { return FindPickle(zip) != nullptr; }

absl::StatusOr<TensorListing> ListTorch(const ByteSource& source, const ZipDirectory& zip) {
  const ZipMember& member = *FindPickle(zip);
  const std::string folder = member.name.substr(0, member.name.size() - kPickle.size());
  if (member.size > kMaxPickle) {
    return ResourceExhausted("PyTorch: ", member.name, " has ", member.size,
                             " bytes, the limit is ", kMaxPickle);
  }
  if (const ZipMember* order = zip.Find(folder + "byteorder")) {
    TG_ASSIGN_OR_RETURN(const std::string text, ReadZipMember(source, *order, 16));
    if (text != "little") {
      return Unimplemented("PyTorch: byte order \"", absl::CEscape(text), "\", expected little");
    }
  }
  TG_ASSIGN_OR_RETURN(const std::string bytes, ReadZipMember(source, member, member.size));
  std::vector<PickleGlobal> globals;
  for (const GlobalRow& row : kGlobals) globals.push_back(row.global);
  Budget::Limits limits;
  limits.bytes = int64_t{64} << 20;  // of names
  Budget budget(limits);
  const Budget::Doing doing(&budget, "reading a PyTorch file");
  absl::StatusOr<Pickle> pickle = ReadPickle(bytes, globals, &budget);
  if (!pickle.ok()) {
    return absl::Status(pickle.status().code(),
                        ToAbsl(StrCat("PyTorch: ", ToStd(pickle.status().message()))));
  }
  return Walk(*pickle, folder, zip, &budget).Run();
}

}  // namespace telegrad
