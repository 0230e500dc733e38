#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {
namespace {

// Opcodes that look up a name in Python's modules, or call it.
constexpr std::string_view kRunning = "cRbiQPo\x81\x82\x83\x84\x92\x93";

class Machine {
 public:
  Machine(std::string_view bytes, Values* values) : bytes_(bytes), values_(values) {}

  bool Run(Value* root, std::string* error) {
    while (error_.empty() && !is_done_) {
      if (values_->is_full()) {
        error_ = absl::StrCat("it has more than ", Values::kMostBytes >> 20, " MiB of values");
        break;
      }
      Step();
    }
    if (error_.empty() && stack_.size() != 1) error_ = "it ends in the middle of a value";
    *error = error_;
    if (error_.empty()) *root = stack_.back();
    return error_.empty();
  }

 private:
  void Step() {
    at_ = read_;
    const std::string_view opcode = Take(1);
    if (opcode.empty()) return;
    switch (static_cast<uint8_t>(opcode[0])) {
      case 0x80:  // PROTO
        Take(1);
        return;
      case 0x95:  // FRAME: length of the next part
        Take(8);
        return;
      case '.':
        is_done_ = true;
        return;
      case 'N':
        return Push({});
      case 0x88:
        return Push(Values::Bool(true));
      case 0x89:
        return Push(Values::Bool(false));
      case 'J':
        return Push(Values::Integer(static_cast<int32_t>(Number(4))));
      case 'K':
        return Push(Values::Integer(static_cast<int64_t>(Number(1))));
      case 'M':
        return Push(Values::Integer(static_cast<int64_t>(Number(2))));
      case 0x8a:  // LONG1
        return PushLong();
      case 'G':
        Take(8);
        return Push({Value::Kind::kReal, 0, 0});
      case 'X':
        return PushText(Number(4));
      case 0x8c:
        return PushText(Number(1));
      case ']':
      case ')':  // a tuple is a list here
        return Push(values_->List());
      case '}':
        return Push(values_->Dict());
      case '(':
        return Mark();
      case 'a':
        return AddLast(Value::Kind::kList, 1);
      case 's':
        return AddLast(Value::Kind::kDict, 2);
      case 'e':
        return AddMarked(Value::Kind::kList);
      case 'u':
        return AddMarked(Value::Kind::kDict);
      case 't':
        return PushTuple(PopMark());
      case 0x85:
      case 0x86:
      case 0x87:
        return PushTupleOf(static_cast<uint8_t>(opcode[0]) - 0x84);
      case 'q':
        return Keep(Number(1));
      case 'r':
        return Keep(Number(4));
      case 0x94:  // MEMOIZE
        return Keep(memo_.size());
      case 'h':
        return PushKept(Number(1));
      case 'j':
        return PushKept(Number(4));
      default:
        return Refuse(opcode[0]);
    }
  }

  void Refuse(char opcode) {
    const bool is_running = kRunning.find(opcode) != kRunning.npos;
    Fail(absl::StrFormat("%s (opcode 0x%02x)",
                         is_running ? "it is a pickle that runs code, which is refused"
                                    : "no dump has this kind of value",
                         static_cast<uint8_t>(opcode)));
  }

  void Fail(std::string_view what) {
    if (error_.empty()) error_ = absl::StrCat("at byte ", at_, ": ", what);
  }

  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - read_) {
      Fail("the file ends here, in the middle: it was cut off, or is being written");
      read_ = bytes_.size();
      return "";
    }
    const std::string_view taken = bytes_.substr(read_, count);
    read_ += count;
    return taken;
  }

  // Little-endian.
  uint64_t Number(std::size_t count) {
    uint64_t number = 0;
    const std::string_view bytes = Take(count);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << 8 * i;
    }
    return number;
  }

  void PushLong() {
    const std::string_view bytes = Take(Number(1));
    uint64_t number = !bytes.empty() && (bytes.back() & 0x80) != 0 ? UINT64_MAX : 0;
    if (bytes.size() > sizeof(number)) return Fail("a number of more than 64 bits");
    for (std::size_t i = bytes.size(); i-- > 0;) {
      number = number << 8 | static_cast<uint8_t>(bytes[i]);
    }
    Push(Values::Integer(static_cast<int64_t>(number)));
  }

  void PushText(uint64_t length) { Push(values_->Text(Take(length))); }

  void Push(Value value) {
    if (stack_.size() == stack_.capacity()) values_->Count(2 * sizeof(Value) * stack_.size());
    stack_.push_back(value);
  }

  void Mark() {
    if (marks_.size() == Values::kMostDepth) return Fail("lists within lists, too deep");
    marks_.push_back(stack_.size());
  }

  std::size_t PopMark() {
    if (marks_.empty()) {
      Fail("the end of a list that has not begun");
      return stack_.size();
    }
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // Values above the last mark belong to an unfinished list.
  std::size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void AddMarked(Value::Kind kind) { Add(kind, PopMark()); }
  void AddLast(Value::Kind kind, std::size_t count) {
    if (stack_.size() < Floor() + count) return Fail("a value is missing");
    Add(kind, stack_.size() - count);
  }

  // Moves values from `from` on into the list or dictionary below them.
  void Add(Value::Kind kind, std::size_t from) {
    if (!error_.empty()) return;
    if (from <= Floor() || stack_[from - 1].kind != kind) return Fail("a list is missing");
    if (kind == Value::Kind::kDict && (stack_.size() - from) % 2 != 0) {
      return Fail("a key without a value");
    }
    for (std::size_t i = from; i < stack_.size(); ++i) values_->Add(stack_[from - 1], stack_[i]);
    stack_.resize(from);
  }

  void PushTuple(std::size_t from) {
    if (!error_.empty()) return;
    const Value tuple = values_->List();
    for (std::size_t i = from; i < stack_.size(); ++i) values_->Add(tuple, stack_[i]);
    stack_.resize(from);
    Push(tuple);
  }

  void PushTupleOf(std::size_t count) {
    if (stack_.size() < Floor() + count) return Fail("a value is missing");
    PushTuple(stack_.size() - count);
  }

  // Writers number kept values consecutively, so a large number does not need a large table.
  void Keep(uint64_t index) {
    if (stack_.size() <= Floor()) return Fail("a value is missing");
    if (index > memo_.size()) return Fail("values are not kept in order");
    if (index == memo_.size()) {
      values_->Count(2 * sizeof(Value));
      memo_.push_back(stack_.back());
    } else {
      memo_[index] = stack_.back();
    }
  }

  void PushKept(uint64_t index) {
    if (index >= memo_.size()) return Fail("a value that was not kept");
    Push(memo_[index]);
  }

  const std::string_view bytes_;
  Values* const values_;
  std::size_t read_ = 0;
  std::size_t at_ = 0;  // of the opcode
  bool is_done_ = false;
  std::string error_;
  std::vector<Value> stack_, memo_;
  std::vector<std::size_t> marks_;
};

}  // namespace

bool ReadPickle(std::string_view bytes, Values* values, Value* root, std::string* error) {
  return Machine(bytes, values).Run(root, error);
}

}  // namespace nccl_pulse::flight_recorder
