// The values of one dump, whichever form its file has: what PickleReader and the reader of JSON
// make, and what dump.h reads. A dump comes from anywhere, so a value is 16 bytes without owner,
// nothing here follows a value into another one, and what all of them take together has a limit.
//
// A pickle may put a list into itself. Who walks through values goes a fixed number of levels down.
//
// Thread: one. Memory: kMostBytes at most, as it is counted here.
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
  uint32_t length = 0;  // of a text
  int64_t number = 0;   // kBool, kInteger; of a text, a list or a dictionary, where it lies
};

class Values {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{512} << 20;
  static constexpr std::size_t kMostDepth = 64;  // of lists that are begun and not ended

  static Value Bool(bool value) { return {Value::Kind::kBool, 0, value ? 1 : 0}; }
  static Value Integer(int64_t value) { return {Value::Kind::kInteger, 0, value}; }

  // Each counts what it takes. Once that is too much, is_full() is true, and they do nothing.
  Value Text(std::string_view text);
  Value List() { return Container(Value::Kind::kList); }
  Value Dict() { return Container(Value::Kind::kDict); }
  // To a list; to a dictionary a key, then its value. Nothing for other values.
  void Add(Value to, Value item);
  void Count(std::size_t bytes);  // of the reader's own
  bool is_full() const { return bytes_ > kMostBytes; }

  // "" and nothing of a value of another kind.
  std::string_view TextOf(Value value) const;
  // Of a dictionary: keys and values by turns.
  const std::vector<Value>& ItemsOf(Value value) const;
  // Null, if it is none.
  std::optional<int64_t> IntegerOf(Value value) const;
  // None, where that is not among the first kMostFields keys.
  Value At(Value dict, std::string_view key) const;
  static constexpr std::size_t kMostFields = 64;

 private:
  Value Container(Value::Kind kind);

  std::string texts_;
  std::deque<std::vector<Value>> containers_;
  std::size_t bytes_ = 0;
};

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_VALUES_H_
