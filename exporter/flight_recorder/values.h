// Values holds the parsed values of one dump, from ReadPickle or ReadJson, for dump.h. A dump is
// untrusted. So a value is 16 bytes without ownership, no function recurses into nested
// values, and the total memory is limited.
//
// A list in a pickle may contain itself. Code that walks values limits its depth.
//
// Thread: one. Memory: about kMostBytes at most.
#ifndef EXPORTER_FLIGHT_RECORDER_VALUES_H_
#define EXPORTER_FLIGHT_RECORDER_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse::flight_recorder {

struct Value {
  enum class Kind : uint8_t { kNone, kBool, kInteger, kReal, kText, kList, kDict };

  Kind kind = Kind::kNone;
  uint32_t length = 0;  // kText: bytes
  int64_t number = 0;   // kBool, kInteger: the value; kText, kList, kDict: position in Values
};

class Values {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{512} << 20;
  static constexpr std::size_t kMostDepth = 64;  // of nested lists and dictionaries

  static Value Bool(bool value) { return {Value::Kind::kBool, 0, value ? 1 : 0}; }
  static Value Integer(int64_t value) { return {Value::Kind::kInteger, 0, value}; }

  // Text, List, Dict and Add count their memory. Above kMostBytes, is_full() is true and they do
  // nothing.
  Value Text(std::string_view text);
  Value List() { return Container(Value::Kind::kList); }
  Value Dict() { return Container(Value::Kind::kDict); }
  // Adds an item to a list. For a dictionary, add a key, then its value. No effect on other kinds.
  void Add(Value to, Value item);
  void Count(std::size_t bytes);  // counts a reader's own memory, too
  bool is_full() const { return bytes_ > kMostBytes; }

  // Returns "" if the value is no text.
  std::string_view TextOf(Value value) const;
  // Returns a list's items, a dictionary's alternating keys and values, or nothing.
  const std::vector<Value>& ItemsOf(Value value) const;
  // Returns an integer, also one written as a text (JSON dumps); nothing if it is neither.
  std::optional<int64_t> IntegerOf(Value value) const;
  // Returns a dictionary's value for this key; None if the key is not among the first kMostFields.
  Value At(Value dict, std::string_view key) const;
  static constexpr std::size_t kMostFields = 64;

 private:
  Value Container(Value::Kind kind);

  std::string texts_;
  std::deque<std::vector<Value>> containers_;
  std::size_t bytes_ = 0;
};

// Reads a pickle that contains only data. Python's own reader executes what a pickle requests. This
// one only knows the opcodes for numbers, texts, lists, tuples and dictionaries, and refuses any
// other. PyTorch writes no others into a dump, nor does Python for the same data. On failure returns
// false and sets `error`, with the byte offset. Cost: linear in the bytes. Source:
// Lib/pickletools.py of Python 3.13.
bool ReadPickle(std::string_view bytes, Values* values, Value* root, std::string* error);
// Reads a JSON dump into the same values.
bool ReadJson(std::string_view text, Values* values, Value* root, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_VALUES_H_
