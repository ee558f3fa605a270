#include "model/torch_pickle.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace coppice::model {
namespace {

struct StorageType {
  absl::string_view global;
  absl::string_view dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch FloatStorage", "F32"},  {"torch HalfStorage", "F16"}, {"torch BFloat16Storage", "BF16"},
    {"torch DoubleStorage", "F64"}, {"torch LongStorage", "I64"}, {"torch IntStorage", "I32"},
    {"torch ShortStorage", "I16"},  {"torch CharStorage", "I8"},  {"torch ByteStorage", "U8"},
    {"torch BoolStorage", "BOOL"},
};
constexpr absl::string_view kDict = "collections OrderedDict",
                            kTensor = "torch._utils _rebuild_tensor_v2",
                            kParameter = "torch._utils _rebuild_parameter";

// Bounds of what a small pickle can make of its memory by naming a value again and again.
constexpr uint64_t kMostPickle = 4 << 20;
constexpr int64_t kMostText = 512;
constexpr size_t kMostDimensions = 16;

std::string ShownText(absl::string_view text) { return absl::Utf8SafeCEscape(text.substr(0, 200)); }

bool IsKnown(absl::string_view global) {
  return global == kDict || global == kTensor || global == kParameter ||
         std::any_of(std::begin(kStorageTypes), std::end(kStorageTypes),
                     [&](const StorageType& type) { return type.global == global; });
}

// A value on the stack of the pickle's machine.
struct PickleValue {
  enum class Kind { kNone, kInteger, kText, kGlobal, kTuple, kDict, kStorage, kTensor, kMark };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  std::string text;                 // a text, or the name of a global
  std::vector<PickleValue*> items;  // of a tuple; keys and values of a dict, in turn
  PickledTensor tensor;             // of a storage: dtype, storage, storage_size
};
using ValueKind = PickleValue::Kind;

class PickleMachine {
 public:
  PickleMachine(const std::string& where, absl::Span<const char> code)
      : where_(where), code_(code) {}

  // The value that the pickle makes.
  absl::StatusOr<const PickleValue*> Run();
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", what));
  }

 private:
  absl::Status Fault(const std::string& what) const {
    return Error(absl::StrCat("byte ", at_, ": ", what));
  }
  PickleValue* Push(ValueKind kind) {
    values_.push_back(std::make_unique<PickleValue>());
    values_.back()->kind = kind;
    stack_.push_back(values_.back().get());
    return stack_.back();
  }
  void PushInteger(int64_t value) { Push(ValueKind::kInteger)->integer = value; }

  absl::StatusOr<absl::string_view> Take(uint64_t bytes);
  absl::StatusOr<absl::string_view> TakeLine();
  absl::StatusOr<int64_t> TakeNumber(int bytes);  // unsigned, little-endian
  absl::StatusOr<PickleValue*> Pop(ValueKind kind);
  // Everything above the last mark, which goes too.
  absl::StatusOr<std::vector<PickleValue*>> PopToMark();

  absl::Status Step(unsigned char code);
  absl::Status PushNumber(unsigned char code);
  absl::Status PushText(int length_bytes);
  absl::Status PushGlobal();
  absl::Status PushTuple(int items);
  absl::Status SetItems(std::vector<PickleValue*> items);
  absl::Status PushStorage();
  absl::Status Reduce();
  absl::Status PushTensor(const std::vector<PickleValue*>& arguments);

  const std::string& where_;
  const absl::Span<const char> code_;
  uint64_t at_ = 0;
  std::vector<std::unique_ptr<PickleValue>> values_;
  std::vector<PickleValue*> stack_;
  std::unordered_map<int64_t, PickleValue*> memo_;
};

absl::StatusOr<absl::string_view> PickleMachine::Take(uint64_t bytes) {
  if (bytes > code_.size() - at_) return Fault("the pickle is cut");
  const absl::string_view taken(code_.data() + at_, bytes);
  at_ += bytes;
  return taken;
}

absl::StatusOr<absl::string_view> PickleMachine::TakeLine() {
  const absl::string_view rest(code_.data() + at_, code_.size() - at_);
  const size_t end = rest.find('\n');
  if (end == absl::string_view::npos) return Fault("the pickle is cut");
  at_ += end + 1;
  return rest.substr(0, end);
}

absl::StatusOr<int64_t> PickleMachine::TakeNumber(int bytes) {
  COPPICE_ASSIGN_OR_RETURN(const absl::string_view taken, Take(bytes));
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
  return static_cast<int64_t>(value);
}

absl::StatusOr<PickleValue*> PickleMachine::Pop(ValueKind kind) {
  if (stack_.empty() || stack_.back()->kind != kind)
    return Fault("a value of another kind than a state dict has here");
  PickleValue* const value = stack_.back();
  stack_.pop_back();
  return value;
}

absl::StatusOr<std::vector<PickleValue*>> PickleMachine::PopToMark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const PickleValue* value) {
    return value->kind == ValueKind::kMark;
  });
  if (mark == stack_.rend()) return Fault("no mark on the stack");
  std::vector<PickleValue*> items(mark.base(), stack_.end());
  stack_.erase(mark.base() - 1, stack_.end());
  return items;
}

absl::Status PickleMachine::PushNumber(unsigned char code) {
  int bytes = code == 'K' ? 1 : code == 'M' ? 2 : 4;
  if (code == 0x8a) {  // LONG1: as many bytes as it says, signed
    COPPICE_ASSIGN_OR_RETURN(const int64_t length, TakeNumber(1));
    if (length > 8) return Fault("an integer of more than 8 bytes");
    bytes = static_cast<int>(length);
  }
  COPPICE_ASSIGN_OR_RETURN(int64_t value, TakeNumber(bytes));
  if (code == 'J') value = static_cast<int32_t>(value);
  if (code == 0x8a && bytes > 0 && bytes < 8 && ((value >> (8 * bytes - 1)) & 1) != 0)
    value -= int64_t{1} << (8 * bytes);
  PushInteger(value);
  return absl::OkStatus();
}

absl::Status PickleMachine::PushText(int length_bytes) {
  COPPICE_ASSIGN_OR_RETURN(const int64_t length, TakeNumber(length_bytes));
  if (length > kMostText) return Fault(absl::StrCat("a text of ", length, " bytes"));
  COPPICE_ASSIGN_OR_RETURN(const absl::string_view text, Take(static_cast<uint64_t>(length)));
  Push(ValueKind::kText)->text = std::string(text);
  return absl::OkStatus();
}

absl::Status PickleMachine::PushGlobal() {
  COPPICE_ASSIGN_OR_RETURN(const absl::string_view module, TakeLine());
  COPPICE_ASSIGN_OR_RETURN(const absl::string_view name, TakeLine());
  const std::string global = absl::StrCat(module, " ", name);
  if (!IsKnown(global)) {
    return Fault(absl::StrCat("global ", ShownText(absl::StrCat(module, ".", name)),
                              ", expected only tensors, their storages and their dict"));
  }
  Push(ValueKind::kGlobal)->text = global;
  return absl::OkStatus();
}

absl::Status PickleMachine::PushTuple(int items) {
  if (stack_.size() < static_cast<size_t>(items)) return Fault("a tuple of more than there is");
  std::vector<PickleValue*> taken(stack_.end() - items, stack_.end());
  stack_.resize(stack_.size() - items);
  Push(ValueKind::kTuple)->items = std::move(taken);
  return absl::OkStatus();
}

absl::Status PickleMachine::SetItems(std::vector<PickleValue*> items) {
  if (stack_.empty() || stack_.back()->kind != ValueKind::kDict || items.size() % 2 != 0)
    return Fault("items that are not those of a dict");
  std::vector<PickleValue*>& all = stack_.back()->items;
  all.insert(all.end(), items.begin(), items.end());
  return absl::OkStatus();
}

// ("storage", type, key, place, elements)
absl::Status PickleMachine::PushStorage() {
  COPPICE_ASSIGN_OR_RETURN(const PickleValue* id, Pop(ValueKind::kTuple));
  const std::vector<PickleValue*>& items = id->items;
  constexpr ValueKind kKinds[] = {ValueKind::kText, ValueKind::kGlobal, ValueKind::kText,
                                  ValueKind::kText, ValueKind::kInteger};
  bool fits = items.size() == std::size(kKinds);
  for (size_t i = 0; fits && i < items.size(); ++i) fits = items[i]->kind == kKinds[i];
  const auto type =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                   [&](const StorageType& t) { return fits && t.global == items[1]->text; });
  if (!fits || items[0]->text != "storage" || type == std::end(kStorageTypes))
    return Fault("a persistent id that is no storage");
  PickledTensor& storage = Push(ValueKind::kStorage)->tensor;
  storage.dtype = std::string(type->dtype);
  storage.storage = items[2]->text;
  storage.storage_size = items[4]->integer;
  return absl::OkStatus();
}

absl::Status PickleMachine::Reduce() {
  COPPICE_ASSIGN_OR_RETURN(const PickleValue* arguments, Pop(ValueKind::kTuple));
  COPPICE_ASSIGN_OR_RETURN(const PickleValue* function, Pop(ValueKind::kGlobal));
  if (function->text == kTensor) return PushTensor(arguments->items);
  if (function->text == kDict && arguments->items.empty()) {
    Push(ValueKind::kDict);
    return absl::OkStatus();
  }
  if (function->text == kParameter && !arguments->items.empty() &&
      arguments->items[0]->kind == ValueKind::kTensor) {
    stack_.push_back(arguments->items[0]);
    return absl::OkStatus();
  }
  return Fault(absl::StrCat("a call of ", ShownText(function->text), " as no state dict has it"));
}

// (storage, offset, shape, stride, requires_grad, hooks)
absl::Status PickleMachine::PushTensor(const std::vector<PickleValue*>& arguments) {
  constexpr ValueKind kKinds[] = {ValueKind::kStorage, ValueKind::kInteger, ValueKind::kTuple,
                                  ValueKind::kTuple};
  bool fits = arguments.size() >= std::size(kKinds);
  for (size_t i = 0; fits && i < std::size(kKinds); ++i) fits = arguments[i]->kind == kKinds[i];
  if (!fits) return Fault("a tensor with other arguments than a storage and its view");
  PickledTensor tensor = arguments[0]->tensor;
  tensor.offset = arguments[1]->integer;
  for (const int which : {2, 3}) {
    std::vector<int64_t>& sizes = which == 2 ? tensor.shape : tensor.stride;
    if (arguments[which]->items.size() > kMostDimensions)
      return Fault(absl::StrCat("a tensor of ", arguments[which]->items.size(), " dimensions"));
    for (const PickleValue* item : arguments[which]->items) {
      if (item->kind != ValueKind::kInteger) return Fault("a size of a tensor that is no integer");
      sizes.push_back(item->integer);
    }
  }
  Push(ValueKind::kTensor)->tensor = std::move(tensor);
  return absl::OkStatus();
}

absl::Status PickleMachine::Step(unsigned char code) {
  switch (code) {
    case 'K':
    case 'M':
    case 'J':
    case 0x8a:
      return PushNumber(code);
    case 'X':
      return PushText(4);
    case 0x8c:
      return PushText(1);
    case 'c':
      return PushGlobal();
    case '(':
      Push(ValueKind::kMark);
      return absl::OkStatus();
    case ')':
      return PushTuple(0);
    case 0x85:
      return PushTuple(1);
    case 0x86:
      return PushTuple(2);
    case 0x87:
      return PushTuple(3);
    case '}':
      Push(ValueKind::kDict);
      return absl::OkStatus();
    case 'N':
      Push(ValueKind::kNone);
      return absl::OkStatus();
    case 0x88:
    case 0x89:
      PushInteger(code == 0x88);
      return absl::OkStatus();
    case 'Q':
      return PushStorage();
    case 'R':
      return Reduce();
    case 't': {
      COPPICE_ASSIGN_OR_RETURN(std::vector<PickleValue*> items, PopToMark());
      Push(ValueKind::kTuple)->items = std::move(items);
      return absl::OkStatus();
    }
    case 'u': {
      COPPICE_ASSIGN_OR_RETURN(std::vector<PickleValue*> items, PopToMark());
      return SetItems(std::move(items));
    }
    case 's': {
      if (stack_.size() < 3) return Fault("an item without a dict");
      const std::vector<PickleValue*> item(stack_.end() - 2, stack_.end());
      stack_.resize(stack_.size() - 2);
      return SetItems(item);
    }
    case 'b': {  // attributes of a dict, such as _metadata
      COPPICE_RETURN_IF_ERROR(Pop(ValueKind::kDict).status());
      if (!stack_.empty() && stack_.back()->kind == ValueKind::kDict) return absl::OkStatus();
      return Fault("attributes of a value that is no dict");
    }
    case 'q':
    case 'r': {
      COPPICE_ASSIGN_OR_RETURN(const int64_t place, TakeNumber(code == 'q' ? 1 : 4));
      if (stack_.empty()) return Fault("nothing to remember");
      memo_[place] = stack_.back();
      return absl::OkStatus();
    }
    case 'h':
    case 'j': {
      COPPICE_ASSIGN_OR_RETURN(const int64_t place, TakeNumber(code == 'h' ? 1 : 4));
      const auto found = memo_.find(place);
      if (found == memo_.end()) return Fault("what was not remembered");
      stack_.push_back(found->second);
      return absl::OkStatus();
    }
    default:
      return Fault(absl::StrCat("instruction ", static_cast<int>(code),
                                " of the pickle, which no state dict needs"));
  }
}

absl::StatusOr<const PickleValue*> PickleMachine::Run() {
  if (code_.size() > kMostPickle) {
    return Error(absl::StrCat(code_.size(), " bytes, expected at most ", kMostPickle,
                              ": only the names of tensors are there"));
  }
  COPPICE_ASSIGN_OR_RETURN(const absl::string_view start, Take(2));
  if (start[0] != '\x80' || start[1] < 2 || start[1] > 3)
    return Fault("not a pickle of protocol 2 or 3");
  while (true) {
    COPPICE_ASSIGN_OR_RETURN(const absl::string_view code, Take(1));
    if (code[0] == '.') break;
    COPPICE_RETURN_IF_ERROR(Step(static_cast<unsigned char>(code[0])));
  }
  if (stack_.size() != 1) return Fault("the pickle makes no single value");
  return stack_[0];
}

}  // namespace

absl::StatusOr<std::vector<PickledTensor>> ReadStateDict(const std::string& where,
                                                         absl::Span<const char> pickle) {
  PickleMachine machine(where, pickle);
  COPPICE_ASSIGN_OR_RETURN(const PickleValue* dict, machine.Run());
  if (dict->kind != ValueKind::kDict) return machine.Error("no dict of tensors");
  std::vector<PickledTensor> tensors;
  for (size_t i = 0; i < dict->items.size(); i += 2) {
    const PickleValue& name = *dict->items[i];
    const PickleValue& value = *dict->items[i + 1];
    if (name.kind != ValueKind::kText) return machine.Error("an entry without a name");
    if (value.kind != ValueKind::kTensor)
      return machine.Error(absl::StrCat(ShownText(name.text), ": expected a tensor"));
    tensors.push_back(value.tensor);
    tensors.back().name = name.text;
  }
  return tensors;
}

}  // namespace coppice::model
