#include "exporter/fleet/targets.h"

#include <netdb.h>
#include <yaml-cpp/yaml.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/files.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/fleet/resolver.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostFileBytes = 4 << 20;
constexpr std::size_t kMostPrometheusBytes = 32 << 20;
constexpr std::size_t kMostPrometheusMemory = 96 << 20;  // of the values in an answer
constexpr std::size_t kMostSaidBytes = 200;

bool AddTarget(std::string text, bool is_https, std::vector<Address>* targets, std::string* error) {
  Address address;
  // Prometheus takes no address without a port, so none is assumed.
  const uint16_t port = is_https ? 443 : 80;
  if (!ParseEndpointAddress(text, is_https, port, &address, error)) return false;
  targets->push_back(std::move(address));
  return true;
}

bool ParseGroup(const YAML::Node& group, bool otherwise_https, std::vector<Address>* targets,
                std::string* error) {
  if (!group.IsMap() || !group["targets"] || !group["targets"].IsSequence()) {
    *error = R"(a group without a list "targets": write [{"targets": ["HOST:PORT"]}])";
    return false;
  }
  bool is_https = otherwise_https;
  if (const YAML::Node labels = group["labels"]; labels && labels.IsMap()) {
    if (labels["__scheme__"]) is_https = labels["__scheme__"].as<std::string>() == "https";
  }
  for (const YAML::Node& target : group["targets"]) {
    if (!target.IsScalar()) {
      *error = "a target that is not text";
      return false;
    }
    if (!AddTarget(target.as<std::string>(), is_https, targets, error)) return false;
  }
  return true;
}

// Returns the text in quotes, for a label matcher.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

class Prometheus {
 public:
  Prometheus(const PrometheusQuestion& question, const FleetClientOptions& options)
      : question_(question), options_(options) {}

  bool Find(std::vector<Address>* targets, std::string* error) {
    // The text is taken literally, not as a pattern.
    const std::string matcher =
        !question_.job_id.empty() ? absl::StrCat("job_id=", Quoted(question_.job_id))
        : question_.comm_id ? absl::StrCat("comm=\"", CommunicatorText(*question_.comm_id), "\"")
                            : "";
    std::vector<Json> found;
    if (!Series(matcher.empty() ? Info("") : JobWith(matcher), &found, error)) return false;
    if (found.empty()) {
      *error = absl::StrCat("it has no series nccl_communicator_info",
                            matcher.empty() ? "" : absl::StrCat("{", matcher, "}"),
                            " of the last 15 minutes", KnownJobs());
      return false;
    }
    return Locate(found, targets, error);
  }

 private:
  // Addresses by scrape job and instance, of which several targets may have the same.
  using Scraped = std::map<std::pair<std::string, std::string>, std::set<std::string>>;

  // On failure returns false and sets `error`. If `status` is given, a status other than 200 is no
  // failure.
  bool Get(const std::string& target, Json* json, int* status, std::string* error) const {
    const FleetAnswer answer = Ask(question_.prometheus, target, options_);
    if (!answer.error.empty()) {
      *error = answer.error;
      return false;
    }
    *json = ParseJson(answer.body, kMostPrometheusMemory);
    *status = answer.status;
    if (json->is_object()) return true;
    const std::string problem = ProblemOf(answer, target.substr(0, target.find('?')));
    *error =
        problem.empty() ? "it answers, but not as Prometheus does: is the address right?" : problem;
    return false;
  }

  static std::string Info(const std::string& matchers) {
    return absl::StrCat("last_over_time(nccl_communicator_info{", matchers, "}[15m])");
  }

  // Returns a query for the communicators of a job, found by one of them or by one of its ids: a
  // job's parts, or a trainer and its engine, have ids of their own. The rank that blocks a
  // communicator may not be a member of it.
  static std::string JobWith(const std::string& matcher) {
    const std::string shared = absl::StrCat(" and on (comm) ", Info(matcher));
    return absl::StrCat(Info(""), shared, " or ", Info(""), " and on (job_id) (",
                        Info("job_id!=\"\""), shared, ")");
  }

  // Appends the series that `selected` gives to `found`.
  bool Series(const std::string& selected, std::vector<Json>* found, std::string* error) const {
    const std::string query = absl::StrCat("group by (job, instance, job_id) (", selected, ")");
    Json json;
    int status = 0;
    if (!Get("/api/v1/query?query=" + PercentEncoded(query), &json, &status, error)) return false;
    if (TextAt(json, "status") != "success") {
      *error = absl::StrCat("it refuses the query (status ", status, "): ",
                            At(json, "error").is_string()
                                ? TextAt(json, "error").substr(0, kMostSaidBytes)
                                : "no reason");
      return false;
    }
    const Json& result = At(At(json, "data"), "result");
    if (!result.is_array()) {
      *error = "its answer has no result";
      return false;
    }
    found->insert(found->end(), result.begin(), result.end());
    return true;
  }

  // "; known jobs: my-run, 9", where one was asked for; or "".
  std::string KnownJobs() const {
    constexpr std::size_t kMostNamed = 16;
    std::vector<Json> found;
    std::string error;
    if (question_.job_id.empty() || !Series(Info(""), &found, &error)) return "";
    std::set<std::string> jobs;
    for (const Json& series : found) jobs.insert(TextAt(At(series, "metric"), "job_id"));
    jobs.erase("");
    const std::size_t more = jobs.size() > kMostNamed ? jobs.size() - kMostNamed : 0;
    while (jobs.size() > kMostNamed) jobs.erase(std::prev(jobs.end()));
    return jobs.empty() ? ""
                        : absl::StrCat("; known jobs: ", absl::StrJoin(jobs, ", "),
                                       more == 0 ? "" : absl::StrCat(" and ", more, " more"));
  }

  // Finds the addresses at which Prometheus scrapes the series in `found`.
  bool Locate(const std::vector<Json>& found, std::vector<Address>* targets, std::string* error) {
    Scraped scraped;
    Json json;
    int status = 0;
    if (Get("/api/v1/targets?state=active", &json, &status, error)) {
      ReadScraped(json, &scraped);
    }
    error->clear();
    std::set<std::string> seen;
    for (const Json& series : found) {
      const std::string instance = TextAt(At(series, "metric"), "instance");
      std::set<std::string> instances = scraped[{TextAt(At(series, "metric"), "job"), instance}];
      if (instances.empty()) instances.insert(instance);
      for (const std::string& where : instances) {
        if (where.empty() || !seen.insert(where).second) continue;
        if (!AddTarget(where, question_.otherwise_https, targets, error)) {
          *error = absl::StrCat(
              "the label instance is not an address, and /api/v1/targets does not "
              "name it: ",
              *error);
          return false;
        }
      }
    }
    if (!targets->empty()) return true;
    *error = "its series have no label instance";
    return false;
  }

  static void ReadScraped(const Json& json, Scraped* scraped) {
    for (const Json& target : At(At(json, "data"), "activeTargets")) {
      const Json& labels = At(target, "labels");
      if (!labels.is_object() || !At(target, "scrapeUrl").is_string()) continue;
      std::string where = TextAt(target, "scrapeUrl");
      where = where.substr(0, where.find('?'));
      std::string_view prefix = where;
      absl::ConsumeSuffix(&prefix, "/metrics");
      (*scraped)[{TextAt(labels, "job"), TextAt(labels, "instance")}].emplace(prefix);
    }
  }

  const PrometheusQuestion& question_;
  const FleetClientOptions& options_;
};

}  // namespace

bool ParseTargets(const std::string& text, bool otherwise_https, std::vector<Address>* targets,
                  std::string* error) {
  try {
    const YAML::Node groups = YAML::Load(text);
    if (!groups.IsSequence()) {
      *error = "not a list of groups in the format of file_sd";
      return false;
    }
    for (const YAML::Node& group : groups) {
      if (!ParseGroup(group, otherwise_https, targets, error)) return false;
    }
  } catch (const YAML::Exception& problem) {
    *error = absl::StrCat("neither JSON nor YAML: line ", problem.mark.line + 1, ", column ",
                          problem.mark.column + 1, ": ", problem.msg);
    return false;
  }
  if (!targets->empty()) return true;
  *error = "it names no target";
  return false;
}

bool ReadTargetsFile(const std::string& path, bool otherwise_https, std::vector<Address>* targets,
                     std::string* error) {
  std::string text;
  if (!ReadRegularFile(path, kMostFileBytes, &text, error)) {
    *error = absl::StrCat("cannot read ", path, ": ", *error);
    return false;
  }
  if (ParseTargets(text, otherwise_https, targets, error)) return true;
  *error = absl::StrCat(path, ": ", *error);
  return false;
}

bool FetchTargets(const Address& url, bool otherwise_https, const FleetClientOptions& options,
                  std::vector<Address>* targets, std::string* error) {
  FleetClientOptions one = options;
  one.most_bytes = one.most_unpacked_bytes = kMostFileBytes;
  FleetAnswer answer = Ask(url, url.path.empty() ? "/" : "", one);
  answer.error = ProblemOf(answer, url.path);
  if (answer.error.empty()) {
    // The YAML parser, which has no limits, is used only for files.
    const Json groups = ParseJson(answer.body, kMostFileBytes);
    // An empty list is an error in a file, but not in a directory's answer.
    if (groups.is_array() && groups.empty()) return true;
    if (groups.is_discarded()) {
      answer.error = "it does not answer with a list of groups in JSON";
    } else if (ParseTargets(answer.body, otherwise_https, targets, &answer.error)) {
      return true;
    }
  }
  *error = absl::StrCat("http_sd at ", url.name(), url.path, ": ", answer.error);
  return false;
}

bool ResolveTargets(const std::string& text, bool is_https, uint16_t otherwise_port,
                    std::chrono::milliseconds patience, std::vector<Address>* targets,
                    std::string* error) {
  Address named;
  if (!ParseAddress(text, is_https, &named, error)) return false;
  if (!named.has_port) named.port = otherwise_port;
  const ResolvedHost resolved = ResolveHosts({named.host}, patience).at(named.host);
  for (const sockaddr_storage& each : resolved.addresses) {
    char numeric[NI_MAXHOST];
    const bool is_six = each.ss_family == AF_INET6;
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&each),
                    is_six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), numeric, sizeof(numeric),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    Address address = named;
    address.host = numeric;
    targets->push_back(std::move(address));
  }
  if (!resolved.addresses.empty()) return true;
  *error = absl::StrCat(named.host, ": ", resolved.error);
  return false;
}

bool FindTargets(const PrometheusQuestion& question, const FleetClientOptions& options,
                 std::vector<Address>* targets, std::string* error) {
  FleetClientOptions one = options;
  one.most_bytes = one.most_unpacked_bytes = kMostPrometheusBytes;
  if (Prometheus(question, one).Find(targets, error)) return true;
  *error = absl::StrCat("Prometheus at ", question.prometheus.name(), ": ", *error);
  return false;
}

}  // namespace nccl_pulse
