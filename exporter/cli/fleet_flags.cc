#include "exporter/cli/fleet_flags.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <set>
#include <tuple>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "exporter/cli/local_endpoints.h"
#include "exporter/fleet/targets.h"
#include "exporter/web/config.h"
#include "metrics/shared_bytes.h"

ABSL_FLAG(std::string, prometheus, "", "a Prometheus that knows the job's endpoints");
ABSL_FLAG(std::string, targets, "", "a file of endpoints in the format of file_sd");
ABSL_FLAG(std::string, http_sd, "", "a URL that answers with endpoints in the format of http_sd");
ABSL_FLAG(std::string, dns, "", "a name whose addresses are those of the endpoints");
ABSL_FLAG(bool, https, false, "use https for endpoints without a scheme");
ABSL_FLAG(bool, insecure, false, "do not check certificates");
ABSL_FLAG(std::string, credentials_file, "", "a file with user:password, for the endpoints");
ABSL_FLAG(std::string, bearer_file, "", "a file with a token, for the endpoints");
ABSL_FLAG(std::string, prometheus_credentials_file, "", "the same, for the Prometheus");
ABSL_FLAG(std::string, prometheus_bearer_file, "", "the same, for the Prometheus");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(3), "how long to wait for each endpoint");
ABSL_FLAG(absl::Duration, hang_after, -absl::InfiniteDuration(),
          "time without progress after which a hang is suspected");
ABSL_DECLARE_FLAG(std::string, ca_cert);  // shared with status, like the next ones
ABSL_DECLARE_FLAG(std::string, server_name);
ABSL_DECLARE_FLAG(std::string, cert);
ABSL_DECLARE_FLAG(std::string, key);

namespace nccl_pulse {
namespace {

// The value of the Authorization header. On failure returns false and says in `error` what is
// wrong.
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
  if (!ReadSmallFile(path, &text, error)) {
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

// Where no flag says how to speak TLS, and it could not be prepared: no authorities, or no TLS in
// this build.
std::string WhyNoTls() {
  std::string why;
  TlsClient::Make(TlsClientConfig(), &why);
  return why.empty() ? "TLS could not be prepared a moment ago: try again" : why;
}

// Time limits, TLS and passwords. On failure returns false and says in `error` what is wrong.
bool ReadClients(FleetQuestion* question, std::string* error) {
  question->client.patience = absl::ToChronoMilliseconds(absl::GetFlag(FLAGS_timeout));
  if (question->client.patience < std::chrono::milliseconds(100) ||
      question->client.patience > std::chrono::minutes(5)) {
    *error = "--timeout is not between 100ms and 5m";
    return false;
  }
  TlsClientConfig tls;
  tls.ca_file = absl::GetFlag(FLAGS_ca_cert);
  tls.is_insecure = absl::GetFlag(FLAGS_insecure);
  question->prometheus_client = question->client;
  question->prometheus_client.tls = TlsClient::Make(tls, error);
  tls.cert_file = absl::GetFlag(FLAGS_cert);
  tls.key_file = absl::GetFlag(FLAGS_key);
  tls.name = absl::GetFlag(FLAGS_server_name);
  question->client.tls = TlsClient::Make(tls, error);
  // Without https nobody needs it.
  const bool wants_tls = tls.is_insecure || !tls.ca_file.empty() || !tls.cert_file.empty() ||
                         !tls.key_file.empty() || !tls.name.empty();
  if (question->client.tls == nullptr && wants_tls) return false;
  // Naming a certificate means TLS, as for `pulse status`: a password beside it must not go out in
  // the clear. With a Prometheus the authorities may be meant for Prometheus itself, which says how
  // endpoints are scraped.
  question->is_https =
      absl::GetFlag(FLAGS_https) || (wants_tls && absl::GetFlag(FLAGS_prometheus).empty());
  return ReadCredentials("the endpoints", absl::GetFlag(FLAGS_credentials_file),
                         absl::GetFlag(FLAGS_bearer_file), &question->client.authorization,
                         error) &&
         ReadCredentials("the Prometheus", absl::GetFlag(FLAGS_prometheus_credentials_file),
                         absl::GetFlag(FLAGS_prometheus_bearer_file),
                         &question->prometheus_client.authorization, error);
}

}  // namespace

int Fail(int status, const std::string& text) {
  std::fprintf(stderr, "pulse: %s\n", CopyFromShared(text.data(), text.size()).c_str());
  return status;
}

std::vector<std::string> TakeValues(std::string_view name, std::vector<char*>* arguments) {
  std::vector<std::string> values;
  std::vector<char*> others;
  for (std::size_t i = 0; i < arguments->size(); ++i) {
    const std::string_view text = (*arguments)[i];
    if (text == name && i + 1 < arguments->size()) {
      values.emplace_back((*arguments)[++i]);
    } else if (text.size() > name.size() && text.substr(0, name.size()) == name &&
               text[name.size()] == '=') {
      values.emplace_back(text.substr(name.size() + 1));
    } else {
      others.push_back((*arguments)[i]);
    }
  }
  *arguments = std::move(others);
  return values;
}

bool AddAddresses(const std::vector<char*>& arguments, const char* reading,
                  std::vector<std::string>* endpoints, std::string* error) {
  for (const std::string_view text : arguments) {
    bool is_file = absl::StartsWith(text, "/") || absl::StartsWith(text, ".");
    for (const char* end : {".tar.gz", ".tgz", ".pftrace", ".json", ".yaml", ".yml"}) {
      is_file = is_file || absl::EndsWith(text, end);
    }
    if (is_file) {
      *error = absl::StrCat(text, " is no address; a file to write goes to --out, ", reading);
      return false;
    }
    endpoints->emplace_back(text);
  }
  return true;
}

bool ReadFleetFlags(const std::vector<std::string>& endpoints, FleetQuestion* question,
                    std::string* error) {
  if (!ReadClients(question, error)) return false;
  for (const std::string& given : endpoints) {
    // As `pulse status` takes it: 9410 is a port of this host, like :9410.
    const bool is_port = !given.empty() && given.find_first_not_of("0123456789") == given.npos;
    const std::string text = is_port ? absl::StrCat(":", given) : given;
    Address address;
    if (!ParseAddress(text, question->is_https, &address, error)) return false;
    if (!address.has_port) address.port = kDefaultEndpointPort;
    question->endpoints.push_back(std::move(address));
  }
  const std::string file = absl::GetFlag(FLAGS_targets);
  return file.empty() || ReadTargetsFile(file, question->is_https, &question->endpoints, error);
}

bool IsDirectoryNamed() {
  return !absl::GetFlag(FLAGS_prometheus).empty() || !absl::GetFlag(FLAGS_http_sd).empty() ||
         !absl::GetFlag(FLAGS_dns).empty();
}

bool AddFromDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error) {
  const bool otherwise_https = absl::GetFlag(FLAGS_https);
  const auto has_tls = [question, error](const Address& address) {
    if (!address.is_https || question->prometheus_client.tls != nullptr) return true;
    *error = WhyNoTls();
    return false;
  };
  if (const std::string url = absl::GetFlag(FLAGS_prometheus); !url.empty()) {
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
  if (const std::string url = absl::GetFlag(FLAGS_http_sd); !url.empty()) {
    Address address;
    if (!ParseAddress(url, false, &address, error) || !has_tls(address) ||
        !FetchTargets(address, question->is_https, question->prometheus_client,
                      &question->endpoints, error)) {
      return false;
    }
  }
  const std::string name = absl::GetFlag(FLAGS_dns);
  return name.empty() || ResolveTargets(name, question->is_https, kDefaultEndpointPort,
                                        question->client.patience, &question->endpoints, error);
}

bool ReadHangAfter(std::chrono::seconds least, std::chrono::hours most,
                   std::optional<std::chrono::milliseconds>* hang_after, std::string* error) {
  const absl::Duration given = absl::GetFlag(FLAGS_hang_after);
  if (given == -absl::InfiniteDuration()) return true;
  if (given < absl::FromChrono(least) || given > absl::FromChrono(most)) {
    *error =
        absl::StrCat("--hang-after is not between ", least.count(), "s and ", most.count(), "h");
    return false;
  }
  *hang_after = absl::ToChronoMilliseconds(given);
  return true;
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

bool OrThoseOfThisHost(FleetQuestion* question, std::string* error) {
  if (question->endpoints.empty()) {
    if (!question->client.authorization.empty() &&
        (!question->is_https || absl::GetFlag(FLAGS_insecure))) {
      *error =
          "--credentials-file and --bearer-file need to be told where the endpoints are "
          "(HOST:PORT): at ports that are guessed anybody may listen";
      return false;
    }
    question->is_this_host = true;
    question->endpoints = FindLocalEndpoints(question->client, question->is_https);
    question->is_nobody_here = question->endpoints.empty();
    // Asked once more, so that it is said why it does not answer.
    if (question->is_nobody_here) {
      question->endpoints.push_back(LocalAddress(kDefaultEndpointPort, question->is_https));
    }
  }
  KeepDifferent(&question->endpoints);
  return HasAuthorities(*question, error);
}

int FailUnheard(int status, const FleetQuestion& question) {
  if (!question.is_nobody_here) return status;
  return Fail(status,
              absl::StrCat("No address was given: localhost was asked at the ports ",
                           kDefaultEndpointPort, " to ", kLastLocalPort,
                           ". Is a job with NCCL Pulse running on this node? Its log says where "
                           "the metrics are (NCCL_DEBUG=INFO); give that address: "
                           "HOST:PORT"));
}

}  // namespace nccl_pulse
