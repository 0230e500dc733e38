#include "exporter/flight_recorder/values.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace nccl_pulse::flight_recorder {
namespace {

bool IsContainer(Value value) {
  return value.kind == Value::Kind::kList || value.kind == Value::Kind::kDict;
}

}  // namespace

void Values::Count(std::size_t bytes) { bytes_ += std::min(bytes, kMostBytes); }

Value Values::Text(std::string_view text) {
  Count(text.size());
  if (is_full()) return {};
  const auto at = static_cast<int64_t>(texts_.size());
  texts_.append(text);
  return {Value::Kind::kText, static_cast<uint32_t>(text.size()), at};
}

Value Values::Container(Value::Kind kind) {
  Count(sizeof(std::vector<Value>));
  if (is_full()) return {};
  containers_.emplace_back();
  return {kind, 0, static_cast<int64_t>(containers_.size() - 1)};
}

void Values::Add(Value to, Value item) {
  // A vector may have capacity for twice its size.
  Count(2 * sizeof(Value));
  if (is_full() || !IsContainer(to)) return;
  containers_[static_cast<std::size_t>(to.number)].push_back(item);
}

std::string_view Values::TextOf(Value value) const {
  if (value.kind != Value::Kind::kText) return "";
  return std::string_view(texts_).substr(static_cast<std::size_t>(value.number), value.length);
}

const std::vector<Value>& Values::ItemsOf(Value value) const {
  static const std::vector<Value>* const kNothing = new std::vector<Value>;
  return IsContainer(value) ? containers_[static_cast<std::size_t>(value.number)] : *kNothing;
}

// JSON dumps contain some integers as texts.
std::optional<int64_t> Values::IntegerOf(Value value) const {
  int64_t number = 0;
  if (value.kind == Value::Kind::kInteger) return value.number;
  if (absl::SimpleAtoi(TextOf(value), &number)) return number;
  return std::nullopt;
}

Value Values::At(Value dict, std::string_view key) const {
  if (dict.kind != Value::Kind::kDict) return {};
  const std::vector<Value>& items = ItemsOf(dict);
  for (std::size_t i = 0; i + 1 < items.size() && i < 2 * kMostFields; i += 2) {
    if (TextOf(items[i]) == key) return items[i + 1];
  }
  return {};
}

}  // namespace nccl_pulse::flight_recorder
