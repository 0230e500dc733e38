// pulse diagnose: one verdict for a whole job, from all of its endpoints.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "exporter/cli/command.h"
#include "exporter/cli/serve_verdicts.h"
#include "exporter/fleet/job_look.h"
#include "exporter/fleet/job_report.h"
#include "exporter/fleet/targets.h"
#include "exporter/web/config.h"
#include "metrics/shared_bytes.h"

ABSL_FLAG(std::string, prometheus, "", "a Prometheus that knows the job's endpoints");
ABSL_FLAG(std::string, job_id, "", "id of the job");
ABSL_FLAG(std::string, comm, "", "a communicator of the job, 16 hexadecimal digits");
ABSL_FLAG(std::string, targets, "", "a file of endpoints in the format of file_sd");
ABSL_FLAG(bool, https, false, "use https for endpoints without a scheme");
ABSL_FLAG(bool, insecure, false, "do not check certificates");
ABSL_FLAG(std::string, credentials_file, "", "a file with user:password, for the endpoints");
ABSL_FLAG(std::string, bearer_file, "", "a file with a token, for the endpoints");
ABSL_FLAG(std::string, prometheus_credentials_file, "", "the same, for the Prometheus");
ABSL_FLAG(std::string, prometheus_bearer_file, "", "the same, for the Prometheus");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(3), "how long to wait for each endpoint");
ABSL_FLAG(std::string, ras, "", "where NCCL's RAS listens, or off");
ABSL_DECLARE_FLAG(absl::Duration, hang_after);  // shared with the agent
ABSL_DECLARE_FLAG(bool, json);                  // shared with status, like the next ones
ABSL_DECLARE_FLAG(std::string, ca_cert);
ABSL_DECLARE_FLAG(std::string, server_name);
ABSL_DECLARE_FLAG(std::string, cert);
ABSL_DECLARE_FLAG(std::string, key);

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;
constexpr int kNoAnswer = 2;
constexpr int kHangFound = 3;
constexpr int kIncomplete = 4;

constexpr uint16_t kDefaultPort = 9410;

// The values of --endpoint, which may be given several times. Set before the command runs.
std::vector<std::string> given_endpoints;  // NOLINT(cert-err58-cpp)

// --listen=ADDRESS: `pulse agent` has a flag of this name, whose default is no wish to listen here.
std::string given_listen;  // NOLINT(cert-err58-cpp)
bool is_listen_given = false;

void TakeEndpoints(std::vector<char*>* arguments) {
  constexpr std::string_view kName = "--endpoint";
  constexpr std::string_view kListen = "--listen";
  std::vector<char*> others;
  for (std::size_t i = 0; i < arguments->size(); ++i) {
    const std::string_view text = (*arguments)[i];
    if (text == kName && i + 1 < arguments->size()) {
      given_endpoints.emplace_back((*arguments)[++i]);
    } else if (text.size() > kName.size() && text.substr(0, kName.size()) == kName &&
               text[kName.size()] == '=') {
      given_endpoints.emplace_back(text.substr(kName.size() + 1));
    } else if (text == kListen) {
      is_listen_given = true;
      if (i + 1 < arguments->size()) given_listen = (*arguments)[++i];
    } else if (text.substr(0, kListen.size()) == kListen && text[kListen.size()] == '=') {
      is_listen_given = true;
      given_listen = std::string(text.substr(kListen.size() + 1));
    } else {
      others.push_back((*arguments)[i]);
    }
  }
  *arguments = std::move(others);
}

constexpr char kHelp[] =
    R"(usage: pulse diagnose (--prometheus=URL | --targets=FILE | --endpoint=HOST:PORT ...) [flags]

Asks all endpoints of a job what they know and says in one sentence which rank holds it up: host, GPU,
pid, since when, and what to do first. Tables of the suspects and of the waiting processes follow.

Where the endpoints are:
  --prometheus=URL      a Prometheus, or a database with the same API, that has scraped the job within
                        the last 15 minutes
  --targets=FILE        a file in the format of file_sd (JSON or YAML)
  --endpoint=HOST:PORT  one endpoint; may be given several times, also as https://HOST:PORT or HOST (port
                        9410)

Which job (default: everything that the endpoints know):
  --job-id=ID           the job with this value of the label job_id
  --comm=ID             the job with this communicator (16 hexadecimal digits)

How to ask:
  --https               use https for addresses without a scheme
  --ca-cert=FILE        authorities to trust instead of the system's; --insecure: trust everybody
  --cert=FILE, --key=FILE  the client's certificate and key, for endpoints that ask for one
  --server-name=NAME    name in the endpoints' certificates, if it is not the one in their addresses.
                        Each of these four implies --https, unless --prometheus says what to use
  --credentials-file=FILE  one line user:password; --bearer-file=FILE  one line with a token
  --prometheus-credentials-file=FILE, --prometheus-bearer-file=FILE   the same for the Prometheus: it does
                        not get what is for the endpoints, and they do not get what is for it
  --timeout=DURATION    how long to wait for each endpoint and for the Prometheus (default 3s); all are
                        asked at once
  --hang-after=DURATION time without progress after which a hang is suspected (default 10s)
  --ras=HOST:PORT       NCCL's own RAS, asked once for ranks that no endpoint knows; its report follows the
                        verdict, if somebody listens there. Default: NCCL_RAS_ADDR, or localhost:28028; off: nobody
  --json                print everything, for programs
  --listen=HOST:PORT    serve the result instead, made at each request: / (?job_id=ID or ?comm=ID),
                        /api/v1/diagnosis, and /alertmanager for Alertmanager's webhook. There is no
                        password: listen only where everybody may know about the job

Endpoints that do not answer, or whose answer is of another version, are named with the reason. They
never count as healthy.

Exit status: 0 no hang is suspected, or only a usual wait; 1 bad usage; 2 no endpoint is found, or none
answers; 3 a hang is suspected; 4 none is, but an endpoint did not answer, no endpoint knows some of the
ranks, a process was lost or does not run, or a communicator's work cannot be seen. docs/diagnose.md says more.
)";

// `text` may contain what a Prometheus said. Nothing in it may control the terminal.
int Fail(int status, const std::string& text) {
  std::fprintf(stderr, "pulse: %s\n", CopyFromShared(text.data(), text.size()).c_str());
  return status;
}

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

struct Question {
  std::vector<Address> endpoints;
  JobLookOptions options;
  FleetClientOptions prometheus_client;
};

// On failure returns false and says in `error` what is wrong.
bool ReadFlags(const std::vector<std::string>& given, Question* question, std::string* error) {
  JobLookOptions& options = question->options;
  options.client.patience = absl::ToChronoMilliseconds(absl::GetFlag(FLAGS_timeout));
  options.hang_after = absl::ToChronoMilliseconds(absl::GetFlag(FLAGS_hang_after));
  if (options.client.patience < std::chrono::milliseconds(100) ||
      options.client.patience > std::chrono::minutes(5)) {
    *error = "--timeout is not between 100ms and 5m";
    return false;
  }
  if (options.hang_after < std::chrono::seconds(8) || options.hang_after > std::chrono::hours(1)) {
    *error = "--hang-after is not between 8s and 1h";
    return false;
  }
  if (!RasFromFlag(absl::GetFlag(FLAGS_ras), &options.ras, error)) return false;
  options.filter.job_id = absl::GetFlag(FLAGS_job_id);
  if (const std::string comm = absl::GetFlag(FLAGS_comm); !comm.empty()) {
    uint64_t comm_id = 0;
    if (comm.size() != 16 || !absl::SimpleHexAtoi(comm, &comm_id)) {
      *error = absl::StrCat("--comm=", comm, ": not 16 hexadecimal digits");
      return false;
    }
    options.filter.comm_id = comm_id;
  }
  TlsClientConfig tls;
  tls.ca_file = absl::GetFlag(FLAGS_ca_cert);
  tls.is_insecure = absl::GetFlag(FLAGS_insecure);
  question->prometheus_client = options.client;
  question->prometheus_client.tls = TlsClient::Make(tls, error);
  tls.cert_file = absl::GetFlag(FLAGS_cert);
  tls.key_file = absl::GetFlag(FLAGS_key);
  tls.name = absl::GetFlag(FLAGS_server_name);
  options.client.tls = TlsClient::Make(tls, error);
  // Without https nobody needs it.
  const bool wants_tls = tls.is_insecure || !tls.ca_file.empty() || !tls.cert_file.empty() ||
                         !tls.key_file.empty() || !tls.name.empty();
  if (options.client.tls == nullptr && wants_tls) return false;
  if (!ReadCredentials("the endpoints", absl::GetFlag(FLAGS_credentials_file),
                       absl::GetFlag(FLAGS_bearer_file), &options.client.authorization, error) ||
      !ReadCredentials("the Prometheus", absl::GetFlag(FLAGS_prometheus_credentials_file),
                       absl::GetFlag(FLAGS_prometheus_bearer_file),
                       &question->prometheus_client.authorization, error)) {
    return false;
  }
  // Naming a certificate means TLS, as for `pulse status`: a password beside it must not go out in
  // the clear. With a Prometheus the authorities may be meant for Prometheus itself, which says how
  // endpoints are scraped.
  const bool is_https =
      absl::GetFlag(FLAGS_https) || (wants_tls && absl::GetFlag(FLAGS_prometheus).empty());
  for (const std::string& text : given) {
    Address address;
    if (!ParseAddress(text, is_https, &address, error)) return false;
    if (!address.has_port) address.port = kDefaultPort;
    question->endpoints.push_back(std::move(address));
  }
  const std::string file = absl::GetFlag(FLAGS_targets);
  return file.empty() || ReadTargetsFile(file, is_https, &question->endpoints, error);
}

bool AskPrometheus(Question* question, std::string* error) {
  PrometheusQuestion asked;
  if (!ParseAddress(absl::GetFlag(FLAGS_prometheus), false, &asked.prometheus, error)) return false;
  asked.job_id = question->options.filter.job_id;
  asked.comm_id = question->options.filter.comm_id;
  asked.otherwise_https = absl::GetFlag(FLAGS_https);
  if (asked.prometheus.is_https && question->prometheus_client.tls == nullptr) {
    *error = "this system has no file of trusted authorities; name one with --ca-cert";
    return false;
  }
  return FindTargets(asked, question->prometheus_client, &question->endpoints, error);
}

// Keeps one of each.
void KeepDifferent(std::vector<Address>* endpoints) {
  const auto key = [](const Address& each) {
    return absl::StrCat(each.is_https ? "https://" : "http://", each.name(), each.path);
  };
  std::sort(endpoints->begin(), endpoints->end(),
            [&key](const Address& a, const Address& b) { return key(a) < key(b); });
  endpoints->erase(
      std::unique(endpoints->begin(), endpoints->end(),
                  [&key](const Address& a, const Address& b) { return key(a) == key(b); }),
      endpoints->end());
}

enum class Asked { kLooked, kNoAnswer, kBadUsage };

// Finds the endpoints and asks them; the question is copied, so that it can be asked again.
Asked Ask(Question question, JobLook* look, std::string* error) {
  if (!absl::GetFlag(FLAGS_prometheus).empty() && !AskPrometheus(&question, error)) {
    return Asked::kNoAnswer;
  }
  KeepDifferent(&question.endpoints);
  for (const Address& address : question.endpoints) {
    if (!address.is_https || question.options.client.tls != nullptr) continue;
    *error = "this system has no file of trusted authorities; name one with --ca-cert";
    return Asked::kBadUsage;
  }
  *look = LookAtJob(question.endpoints, question.options);
  return Asked::kLooked;
}

// What who asks over HTTP does not say of the job is as the command line has it. Files are read
// anew: targets come and go, tokens and certificates run out.
JobAnswer AnswerFor(const std::vector<std::string>& given, const JobFilter& filter) {
  JobAnswer answer;
  Question question;
  if (!ReadFlags(given, &question, &answer.text)) return answer;
  if (question.endpoints.empty() && absl::GetFlag(FLAGS_prometheus).empty()) {
    answer.text = absl::StrCat(absl::GetFlag(FLAGS_targets), " names no endpoint");
    return answer;
  }
  if (!filter.job_id.empty() || filter.comm_id.has_value()) question.options.filter = filter;
  JobLook look;
  if (Ask(std::move(question), &look, &answer.text) != Asked::kLooked) return answer;
  answer.ok = true;
  answer.sentence = JobSentence(look);
  answer.text = JobText(look);
  answer.json = JobJson(look);
  return answer;
}

int Run(const std::vector<char*>& arguments) {
  if (!arguments.empty()) {
    return Fail(kUsageError, "diagnose takes no argument; addresses go to --endpoint");
  }
  if (is_listen_given && given_listen.empty()) {
    return Fail(kUsageError, "--listen needs an address: --listen=HOST:PORT");
  }
  Question question;
  std::string error;
  if (!ReadFlags(given_endpoints, &question, &error)) return Fail(kUsageError, error);
  // A file without targets may have some later.
  const bool may_have_later = is_listen_given && !absl::GetFlag(FLAGS_targets).empty();
  if (absl::GetFlag(FLAGS_prometheus).empty() && question.endpoints.empty() && !may_have_later) {
    return Fail(kUsageError,
                "say where the endpoints are: --prometheus, --targets or --endpoint; see "
                "pulse diagnose --help");
  }
  if (is_listen_given) {
    // The connections' threads may go on when this one ends: they have a copy.
    return ServeVerdicts(given_listen, [given = given_endpoints](const JobFilter& filter) {
      return AnswerFor(given, filter);
    });
  }
  JobLook look;
  switch (Ask(question, &look, &error)) {
    case Asked::kLooked:
      break;
    case Asked::kNoAnswer:
      return Fail(kNoAnswer, error);
    case Asked::kBadUsage:
      return Fail(kUsageError, error);
  }
  std::fputs((absl::GetFlag(FLAGS_json) ? JobJson(look) : JobText(look)).c_str(), stdout);
  if (look.heard == 0) return kNoAnswer;
  switch (FindingOfJob(look)) {
    case JobFinding::kHang:
      return kHangFound;
    case JobFinding::kIncomplete:
      return kIncomplete;
    case JobFinding::kNone:
      break;
  }
  // Nothing of the job was seen: that is no all-clear.
  return look.verdict.processes == 0 ? kIncomplete : 0;
}

}  // namespace

const Command kDiagnoseCommand = {"diagnose", "say who holds up a whole job", kHelp, Run,
                                  TakeEndpoints};

}  // namespace nccl_pulse
