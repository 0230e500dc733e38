#include "exporter/watch/question.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

bool Decode(std::string_view text, std::string* decoded) {
  decoded->clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded->push_back(' ');
    } else if (text[i] != '%') {
      decoded->push_back(text[i]);
    } else {
      uint32_t byte = 0;
      if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
          !absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte)) {
        return false;
      }
      decoded->push_back(static_cast<char>(byte));
      i += 2;
    }
  }
  return true;
}

bool TakeLabels(const Json& labels, JobFilter* filter) {
  filter->job_id = TextAt(labels, "job_id");
  if (filter->job_id.empty()) filter->comm_id = ParseCommunicatorId(TextAt(labels, "comm"));
  return !filter->job_id.empty() || filter->comm_id.has_value();
}

}  // namespace

std::string ReportQuery(const WatchedJob& job, const JobHang& hang) {
  return job.job_id.empty() || job.job_id == "none"
             ? absl::StrCat("?comm=", hang.suspect.comm)
             : absl::StrCat("?job_id=", PercentEncoded(job.job_id));
}

bool ReadQuery(std::string_view query, JobFilter* filter, std::string* error) {
  for (const std::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::size_t equals = part.find('=');
    std::string value;
    if (equals == part.npos || !Decode(part.substr(equals + 1), &value)) {
      *error = absl::StrCat(part, ": not NAME=VALUE, percent-encoded");
      return false;
    }
    const std::string_view name = part.substr(0, equals);
    if (name == "job_id") filter->job_id = value;
    if (name != "comm" || value.empty()) continue;
    filter->comm_id = ParseCommunicatorId(value);
    if (!filter->comm_id) {
      *error = absl::StrCat("comm=", value, ": not 16 hexadecimal digits");
      return false;
    }
  }
  return true;
}

bool ReadAlerts(std::string_view body, JobFilter* filter, bool* is_resolved, std::string* error) {
  const Json json = ParseJson(body);
  const Json& alerts = At(json, "alerts");
  if (!alerts.is_array()) {
    *error = "not what Alertmanager's webhook sends: there is no list of alerts";
    return false;
  }
  *is_resolved = true;
  for (const Json& alert : alerts) {
    if (!alert.is_object() || TextAt(alert, "status") == "resolved") continue;
    *is_resolved = false;
    if (TakeLabels(At(alert, "labels"), filter)) return true;
  }
  return true;
}

std::string NameOf(const JobFilter& filter) {
  std::string name = filter.job_id.empty() ? "" : absl::StrCat("job ", filter.job_id);
  if (filter.comm_id.has_value()) {
    absl::StrAppend(&name, name.empty() ? "" : ", ", "the job of communicator ",
                    CommunicatorText(*filter.comm_id));
  }
  return name.empty() ? "all jobs" : name;
}

}  // namespace nccl_pulse
