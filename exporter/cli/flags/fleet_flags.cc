#include "exporter/cli/flags/fleet_flags.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/files.h"
#include "exporter/base/plain_text.h"
#include "exporter/cli/command.h"
#include "exporter/cli/local_endpoints.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/targets.h"
#include "exporter/web/config.h"

namespace nccl_pulse {

FleetFlags fleet_flags;  // NOLINT(cert-err58-cpp)

namespace {

// Returns the value of the Authorization header. On failure returns false and sets `error`.
bool ReadCredentials(const char* what, const std::string& credentials_file,
                     const std::string& bearer_file, std::string* authorization,
                     std::string* error) {
  if (!credentials_file.empty() && !bearer_file.empty()) {
    *error = absl::StrCat("a password or a token for ", what, ", not both");
    return false;
  }
  const std::string& path = credentials_file.empty() ? bearer_file : credentials_file;
  if (path.empty()) return true;
  std::string text;
  if (!ReadRegularFile(path, kMostSecretBytes, &text, error)) {
    *error = absl::StrCat("cannot read ", path, ": ", *error);
    return false;
  }
  const std::string line(absl::StripAsciiWhitespace(text));
  for (const char c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      *error = absl::StrCat(path, " has more than one line");
      return false;
    }
  }
  if (line.empty() || (!credentials_file.empty() && line.find(':') == line.npos)) {
    *error =
        absl::StrCat(path, credentials_file.empty() ? " is empty" : " has no line user:password");
    return false;
  }
  *authorization = credentials_file.empty() ? absl::StrCat("Bearer ", line)
                                            : absl::StrCat("Basic ", absl::Base64Escape(line));
  return true;
}

// Returns why TLS is not available without TLS flags: no authorities, or no TLS in this build.
std::string WhyNoTls() {
  std::string why;
  TlsClient::Make(TlsClientConfig(), &why);
  return why.empty() ? "TLS could not be prepared a moment ago: try again" : why;
}

}  // namespace

namespace {

// Parses "NAME: VALUE", one line of a request's head.
bool ReadHeader(std::string_view text, std::string* header, std::string* error) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto is_of_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_", c);
  };
  const bool is_good = text.empty() || (colon != text.npos && colon != 0 &&
                                        std::all_of(name.begin(), name.end(), is_of_name) &&
                                        std::none_of(text.begin(), text.end(), [](char c) {
                                          return absl::ascii_iscntrl(static_cast<unsigned char>(c));
                                        }));
  if (!is_good) {
    *error = "--prometheus-header is not NAME: VALUE, such as \"X-Scope-OrgID: my-team\"";
  }
  *header = std::string(text);
  return is_good;
}

}  // namespace

bool ReadClients(FleetQuestion* question, std::string* error) {
  question->client.patience = absl::ToChronoMilliseconds(fleet_flags.timeout);
  const TlsClientConfig& tls = fleet_flags.tls;
  TlsClientConfig of_prometheus;
  of_prometheus.ca_file = tls.ca_file;
  of_prometheus.is_insecure = tls.is_insecure;
  question->prometheus_client = question->client;
  std::string why_no_tls;  // an error only if an address is https
  question->prometheus_client.tls = TlsClient::Make(of_prometheus, &why_no_tls);
  question->client.tls = TlsClient::Make(tls, &why_no_tls);
  const bool wants_tls = tls.is_insecure || !tls.ca_file.empty() || !tls.cert_file.empty() ||
                         !tls.key_file.empty() || !tls.name.empty();
  if (question->client.tls == nullptr && wants_tls) {
    *error = why_no_tls;
    return false;
  }
  // As for `pulse status`, naming a certificate means TLS: a password beside it must not be sent in
  // the clear. With a Prometheus the authorities may be meant for Prometheus itself, which says how
  // endpoints are scraped.
  question->is_https = fleet_flags.https || (wants_tls && fleet_flags.prometheus.empty());
  return ReadHeader(fleet_flags.prometheus_header, &question->prometheus_client.header, error) &&
         ReadCredentials("the endpoints", fleet_flags.credentials_file, fleet_flags.bearer_file,
                         &question->client.authorization, error) &&
         ReadCredentials("the Prometheus", fleet_flags.prometheus_credentials_file,
                         fleet_flags.prometheus_bearer_file,
                         &question->prometheus_client.authorization, error);
}

Flag HangAfterFlag() {
  return {"--hang-after", &fleet_flags.hang_after, "DURATION",
          "time without progress that counts as a hang, 1s to 1h (default: the endpoints' "
          "NCCL_PULSE_HANG_SECONDS, the shortest of the job)",
          "1s to 1h"};
}

FlagTable JobFlags() {
  return {
      {"--job-id", &fleet_flags.job_id, "ID",
       "the job with this label job_id; --prometheus then gives its endpoints alone (default: "
       "all)"},
      {"--comm", &fleet_flags.comm, "ID", "the job with this communicator, 16 hexadecimal digits"},
      HangAfterFlag()};
}

Flag NamespacesFlag() {
  return {"--enter-namespaces", &fleet_flags.enter_namespaces, "",
          "ask RAS also in the network namespaces of this host's containers: as root with "
          "CAP_SYS_ADMIN"};
}

FlagTable RasFlags() {
  return {{"--ras", &fleet_flags.ras, "HOST:PORT",
           "NCCL's RAS (2.28.7 or later), asked once for ranks that no endpoint knows, and by "
           "diagnose twice for jobs without NCCL Pulse. off: don't ask (default: NCCL_RAS_ADDR of "
           "the processes here, else of this shell, or localhost:28028)"},
          NamespacesFlag()};
}

FlagTable AccessFlags() {
  FleetFlags& to = fleet_flags;
  return {{"--ca-cert", &to.tls.ca_file, "FILE", "authorities to trust instead of the system's"},
          {"--insecure", &to.tls.is_insecure, "", "trust every certificate"},
          {"--cert", &to.tls.cert_file, "FILE", "client certificate, if one is asked for"},
          {"--key", &to.tls.key_file, "FILE", "its key"},
          {"--server-name", &to.tls.name, "NAME",
           "name in the endpoints' certificates, if it differs from their addresses"},
          {"--credentials-file", &to.credentials_file, "FILE",
           "one line user:password for the endpoints"}};
}

FlagTable EndpointFlags() {
  FleetFlags& to = fleet_flags;
  return Joined(
      {{{"Where the endpoints are:"},
        {"HOST:PORT",
         {},
         "",
         "also :PORT, HOST (port 9410), https://HOST:PORT, unix:/path, and the URL in a job's log "
         "(NCCL_DEBUG=INFO)"},
        {"--endpoint", &to.endpoints, "HOST:PORT", "the same"},
        {"TLS and passwords:"},
        {"--https", &to.https, "",
         "use https for addresses without a scheme. The next five flags imply it, unless "
         "--prometheus knows the scheme"}},
       AccessFlags(),
       {{"--bearer-file", &to.bearer_file, "FILE", "one line with a token for the endpoints"},
        {"--timeout", &to.timeout, "DURATION",
         "how long each endpoint, or Prometheus, may take (default 3s; status: 5s); "
         "all endpoints are asked at once",
         "100ms to 5m"}}});
}

FlagTable ConnectFlags() {
  FleetFlags& to = fleet_flags;
  return Joined(
      {EndpointFlags(),
       {{"All but status also find many endpoints:"},
        {"HOST:PORT ...", {}, "", "any number of addresses, and of --endpoint"},
        {"--prometheus", &to.prometheus, "URL",
         "what this Prometheus (or VictoriaMetrics, Mimir) has scraped within 15 minutes"},
        {"--targets", &to.targets, "FILE", "a file in the format of file_sd (JSON or YAML)"},
        {"--http-sd", &to.http_sd, "URL", "a URL that answers in the format of http_sd"},
        {"--dns", &to.dns, "NAME:PORT", "all addresses of a name, such as a headless service"},
        {"--prometheus-credentials-file", &to.prometheus_credentials_file, "FILE",
         "one line user:password for the Prometheus and http_sd only"},
        {"--prometheus-bearer-file", &to.prometheus_bearer_file, "FILE",
         "one line with a token for the Prometheus and http_sd only"},
        {"--prometheus-header", &to.prometheus_header, "'NAME: VALUE'",
         "one more header for the Prometheus and http_sd only, such as 'X-Scope-OrgID: my-team' "
         "for a Mimir with tenants"}}});
}

bool AddAddresses(const std::vector<std::string>& arguments, const char* reading,
                  std::string* error) {
  for (const std::string& text : arguments) {
    bool is_file = absl::StartsWith(text, "/") || absl::StartsWith(text, ".");
    for (const char* end : {".tar.gz", ".tgz", ".pftrace", ".json", ".yaml", ".yml"}) {
      is_file = is_file || absl::EndsWith(text, end);
    }
    if (is_file) {
      *error = absl::StrCat(text, " is not an address; a file to write goes to --out, ", reading);
      return false;
    }
    fleet_flags.endpoints.push_back(text);
  }
  return true;
}

bool ReadFilter(JobFilter* filter, std::string* error) {
  filter->job_id = fleet_flags.job_id;
  const std::string& comm = fleet_flags.comm;
  if (comm.empty()) return true;
  filter->comm_id = ParseCommunicatorId(comm);
  if (!filter->comm_id) *error = absl::StrCat("--comm=", comm, ": not 16 hexadecimal digits");
  return filter->comm_id.has_value();
}

bool ReadFleetFlags(FleetQuestion* question, std::string* error) {
  if (!ReadClients(question, error)) return false;
  for (const std::string& given : fleet_flags.endpoints) {
    Address address;
    if (!ParseEndpointAddress(given, question->is_https, kDefaultEndpointPort, &address, error)) {
      return false;
    }
    question->endpoints.push_back(std::move(address));
  }
  const std::string file = fleet_flags.targets;
  return file.empty() || ReadTargetsFile(file, question->is_https, &question->endpoints, error);
}

bool IsDirectoryNamed() {
  return !fleet_flags.prometheus.empty() || !fleet_flags.http_sd.empty() ||
         !fleet_flags.dns.empty();
}

namespace {

bool AskDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error) {
  const bool otherwise_https = fleet_flags.https;
  const auto has_tls = [question, error](const Address& address) {
    if (!address.is_https || question->prometheus_client.tls != nullptr) return true;
    *error = WhyNoTls();
    return false;
  };
  if (const std::string url = fleet_flags.prometheus; !url.empty()) {
    PrometheusQuestion asked;
    if (!ParseAddress(url, false, &asked.prometheus, error)) return false;
    asked.job_id = filter.job_id;
    asked.comm_id = filter.comm_id;
    asked.otherwise_https = otherwise_https;
    if (!has_tls(asked.prometheus) ||
        !FindTargets(asked, question->prometheus_client, &question->endpoints, error)) {
      return false;
    }
  }
  if (const std::string url = fleet_flags.http_sd; !url.empty()) {
    Address address;
    if (!ParseAddress(url, false, &address, error) || !has_tls(address) ||
        !FetchTargets(address, question->is_https, question->prometheus_client,
                      &question->endpoints, error)) {
      return false;
    }
  }
  const std::string name = fleet_flags.dns;
  return name.empty() || ResolveTargets(name, question->is_https, kDefaultEndpointPort,
                                        question->client.patience, &question->endpoints, error);
}

}  // namespace

bool AddFromDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error) {
  if (AskDirectories(filter, question, error)) return true;
  absl::StrAppend(error, "; other ways: `pulse help connect`");
  return false;
}

std::optional<std::chrono::milliseconds> HangAfter() {
  if (!fleet_flags.hang_after.has_value()) return std::nullopt;
  return absl::ToChronoMilliseconds(*fleet_flags.hang_after);
}

void KeepDifferent(std::vector<Address>* endpoints) {
  std::set<std::tuple<bool, std::string, std::string>> seen;
  endpoints->erase(
      std::remove_if(endpoints->begin(), endpoints->end(),
                     [&seen](const Address& each) {
                       return !seen.emplace(each.is_https, each.name(), each.path).second;
                     }),
      endpoints->end());
}

bool HasAuthorities(const FleetQuestion& question, std::string* error) {
  for (const Address& address : question.endpoints) {
    if (!address.is_https || question.client.tls != nullptr) continue;
    *error = WhyNoTls();
    return false;
  }
  return true;
}

bool DefaultToThisHost(FleetQuestion* question, std::string* error) {
  if (question->endpoints.empty()) {
    if (!question->client.authorization.empty() &&
        (!question->is_https || fleet_flags.tls.is_insecure)) {
      *error =
          "--credentials-file and --bearer-file need the endpoints' addresses (HOST:PORT): any "
          "program may listen at guessed ports";
      return false;
    }
    question->is_this_host = true;
    std::vector<SilentPort> silent;
    question->endpoints = FindLocalEndpoints(question->client, question->is_https, &silent);
    if (question->endpoints.empty()) {
      question->is_all_silent = !silent.empty();
      for (const SilentPort& each : silent) question->endpoints.push_back(each.address);
    }
    question->is_nobody_here = question->endpoints.empty();
    // Queried once more, to report why it does not answer.
    if (question->is_nobody_here) {
      question->endpoints.push_back(LocalAddress(kDefaultEndpointPort, question->is_https));
    }
  }
  KeepDifferent(&question->endpoints);
  return HasAuthorities(*question, error);
}

int FailUnheard(int status, bool is_nobody_here) {
  return Fail(
      status,
      absl::StrCat(
          is_nobody_here ? absl::StrCat("No address was given: localhost was asked at the "
                                        "ports ",
                                        kDefaultEndpointPort, " to ", kLastLocalPort, ". ")
                         : "",
          "Next: give the address in the job's log (NCCL_DEBUG=INFO, line \"NCCL Pulse:\"). "
          "Without this line, check NCCL_PROFILER_PLUGIN"));
}

int FailIncomplete(int status, std::size_t missing_ranks, std::size_t silent_endpoints) {
  std::string what;
  if (missing_ranks != 0) {
    what = absl::StrCat("calls of ", Plural(missing_ranks, "live rank"), " are missing");
  }
  if (silent_endpoints != 0) {
    absl::StrAppend(&what, what.empty() ? "" : ", and ", Plural(silent_endpoints, "endpoint"),
                    " did not answer");
  }
  return what.empty() ? 0 : Fail(status, absl::StrCat("INCOMPLETE: ", what));
}

}  // namespace nccl_pulse
