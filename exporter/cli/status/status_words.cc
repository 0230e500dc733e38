#include "exporter/cli/status/status_words.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "exporter/base/json_field.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/size_words.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {

using Json = nlohmann::json;

double Number(const Json& value) { return value.is_number() ? value.get<double>() : 0; }

std::string Text(const Json& value) {
  if (value.is_number_integer()) return absl::StrCat(value.get<int64_t>());
  return value.is_string() ? PlainText(value.get_ref<const std::string&>()) : "";
}

std::vector<Json> List(const Json& value) {
  return value.is_array() ? value.get<std::vector<Json>>() : std::vector<Json>();
}

bool Contains(const Json& list, const Json& value) {
  return list.is_array() && std::find(list.begin(), list.end(), value) != list.end();
}

std::string Count(double count) {
  if (count < 1e4)
    return absl::StrFormat("%.*f", count < 10 && count != std::floor(count) ? 1 : 0, count);
  if (count < 1e6) return absl::StrFormat("%.3gk", count / 1e3);
  if (count < 1e9) return absl::StrFormat("%.3gM", count / 1e6);
  return absl::StrFormat("%.3gG", count / 1e9);
}

std::string ByteRate(double bytes_per_second) {
  if (bytes_per_second < 1e3) return absl::StrFormat("%.3g B/s", bytes_per_second);
  if (bytes_per_second < 1e6) return absl::StrFormat("%.3g kB/s", bytes_per_second / 1e3);
  if (bytes_per_second < 1e9) return absl::StrFormat("%.3g MB/s", bytes_per_second / 1e6);
  return absl::StrFormat("%.3g GB/s", bytes_per_second / 1e9);
}

std::string Size(std::string_view name) { return SizeWords(name, "<=", ">"); }

std::string CommunicatorName(const Json& comm) {
  const std::string name = Text(At(comm, "name"));
  return absl::StrCat(Text(At(comm, "comm")), name.empty() ? "" : absl::StrCat(" \"", name, "\""));
}

std::string Wrap(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out;
  std::string line(indent, ' ');
  for (const std::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent && line.size() + 1 + word.size() > width) {
      absl::StrAppend(&out, line, "\n");
      line.assign(indent, ' ');
    }
    absl::StrAppend(&line, line.size() > indent ? " " : "", word);
  }
  return absl::StrCat(out, line, "\n");
}

}  // namespace nccl_pulse
