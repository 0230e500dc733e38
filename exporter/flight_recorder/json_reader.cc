#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/flight_recorder/values.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse::flight_recorder {
namespace {

using Json = nlohmann::json;

// Callbacks of the parser; each returns whether to go on.
class Handler : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(Values* values) : values_(values) {}

  bool null() override { return Put({}); }
  bool boolean(bool value) override { return Put(Values::Bool(value)); }
  bool number_integer(int64_t value) override { return Put(Values::Integer(value)); }
  bool number_unsigned(uint64_t value) override {
    return Put(value <= INT64_MAX ? Values::Integer(static_cast<int64_t>(value))
                                  : Value{Value::Kind::kReal, 0, 0});
  }
  bool number_float(double /*value*/, const std::string& /*text*/) override {
    return Put({Value::Kind::kReal, 0, 0});
  }
  bool string(std::string& text) override { return Put(values_->Text(text)); }
  bool binary(Json::binary_t& /*bytes*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return Begin(values_->Dict()); }
  bool key(std::string& text) override { return Put(values_->Text(text)); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t /*size*/) override { return Begin(values_->List()); }
  bool end_array() override { return End(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    error_ = absl::StrCat("it is not JSON from byte ", position,
                          " on: cut off, still being written, or another format");
    return false;
  }

  Value root() const { return root_; }
  const std::string& error() const { return error_; }

 private:
  bool Put(Value value) {
    if (open_.empty()) {
      root_ = value;
    } else {
      values_->Add(open_.back(), value);
    }
    if (!values_->is_full()) return true;
    error_ = absl::StrCat("it has more than ", Values::kMostBytes >> 20, " MiB of values");
    return false;
  }

  bool Begin(Value value) {
    if (!Put(value)) return false;
    open_.push_back(value);
    if (open_.size() <= Values::kMostDepth) return true;
    error_ = "lists within lists, too deep";
    return false;
  }

  bool End() {
    open_.pop_back();
    return true;
  }

  Values* const values_;
  Value root_;
  std::vector<Value> open_;
  std::string error_;
};

}  // namespace

bool ReadJson(std::string_view text, Values* values, Value* root, std::string* error) {
  Handler handler(values);
  const bool is_read = Json::sax_parse(text, &handler);
  *root = handler.root();
  *error = handler.error();
  return is_read;
}

}  // namespace nccl_pulse::flight_recorder
