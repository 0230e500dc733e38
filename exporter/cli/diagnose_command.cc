// pulse diagnose: one verdict for a whole job, from all of its endpoints.
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/cli/command.h"
#include "exporter/cli/fleet_flags.h"
#include "exporter/fleet/dump_look.h"
#include "exporter/fleet/job_look.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;
constexpr int kNoAnswer = 2;
constexpr int kHangFound = 3;
constexpr int kIncomplete = 4;

// The flags.
std::string flight_recorder;  // NOLINT(cert-err58-cpp)
bool is_json = false;

constexpr char kHelp[] =
    R"(usage: pulse diagnose [--prometheus=URL | --targets=FILE | HOST:PORT ...] [flags]

Asks all endpoints of a job what they know and says in one sentence which rank holds it up: host, GPU,
pid, since when, and what to do first. Tables of the suspects and of the waiting processes follow.

Where the endpoints are (default: this host's, at the ports 9410 to 9417):
  --prometheus=URL      a Prometheus, or a database with the same API, that has scraped the job within
                        the last 15 minutes
  --targets=FILE        a file in the format of file_sd (JSON or YAML)
  --http-sd=URL         a URL that answers in the format of http_sd
  --dns=NAME:PORT       a name whose addresses are those of the endpoints, such as a headless service's
  HOST:PORT             one endpoint; may be given several times, also as :PORT, https://HOST:PORT or HOST
                        (port 9410)
  --endpoint=HOST:PORT  the same

Without endpoints:
  --flight-recorder=DIR  dumps of PyTorch's Flight Recorder (nccl_trace_rank_N, pickle or JSON), of all
                        ranks of a job that hung, whether NCCL Pulse was there or not. DIR may end with the
                        beginning of their names. Nothing in them is run

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
  --prometheus-credentials-file=FILE, --prometheus-bearer-file=FILE   the same for the Prometheus and
                        for http_sd: they do not get what is for the endpoints, nor these what is for them
  --timeout=DURATION    how long to wait for each endpoint and for the Prometheus (default 3s); all are
                        asked at once
  --hang-after=DURATION time without progress after which a hang is suspected (8s to 1h; default: what the
                        endpoints go by, NCCL_PULSE_HANG_SECONDS, and the longest where they differ)
  --ras=HOST:PORT       NCCL's own RAS, asked once for ranks that no endpoint knows; its report follows the
                        verdict, if somebody listens there. Default: NCCL_RAS_ADDR, or localhost:28028; off: nobody
  --json                print everything, for programs

Endpoints that do not answer, or whose answer is of another version, are named with the reason. They
never count as healthy.

Exit status: 0 no hang is suspected, or only a usual wait; 1 bad usage; 2 no endpoint is found, or none
answers; 3 a hang is suspected; 4 none is, but an endpoint did not answer, no endpoint knows some of the
ranks, a process was lost or does not run, or a communicator's work cannot be seen. More: docs/debug-a-hang.md.
)";

struct Question {
  FleetQuestion fleet;
  JobLookOptions options;
};

// On failure returns false and says in `error` what is wrong.
bool ReadQuestion(Question* question, std::string* error) {
  JobLookOptions& options = question->options;
  if (!ReadHangAfter(std::chrono::seconds(8), std::chrono::hours(1), &options.hang_after, error)) {
    return false;
  }
  if (!RasFromFlag(fleet_flags.ras, &options.ras, error) || !ReadFilter(&options.filter, error) ||
      !ReadFleetFlags(&question->fleet, error)) {
    return false;
  }
  options.client = question->fleet.client;
  options.most_looks = kLooksForStragglers;
  return true;
}

// Whether a flag or an argument says where the endpoints are.
bool IsAnyNamed() {
  return !fleet_flags.endpoints.empty() || !fleet_flags.targets.empty() || IsDirectoryNamed();
}

enum class Asked { kLooked, kNoAnswer, kBadUsage };

// Finds the endpoints and asks them.
Asked Ask(Question* asked, JobLook* look, std::string* error) {
  Question& question = *asked;
  if (!AddFromDirectories(question.options.filter, &question.fleet, error)) {
    return Asked::kNoAnswer;
  }
  if (IsAnyNamed()) {
    KeepDifferent(&question.fleet.endpoints);
    if (!HasAuthorities(question.fleet, error)) return Asked::kBadUsage;
  } else if (!OrThoseOfThisHost(&question.fleet, error)) {
    return Asked::kBadUsage;
  }
  *look = LookAtJob(question.fleet.endpoints, question.options);
  return Asked::kLooked;
}

// A job of many nodes has more endpoints than this host's.
std::string WhoWasAsked(const std::vector<Address>& endpoints) {
  std::string names;
  for (const Address& each : endpoints) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", each.name());
  }
  return absl::StrCat("Only this host was asked: ", names,
                      ". For other nodes: --endpoint=NODE, --targets or --prometheus.\n");
}

// The exit status.
int StatusOf(const JobLook& look) {
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

void Print(const JobLook& look) {
  std::fputs((is_json ? JobJson(look) : JobText(look)).c_str(), stdout);
}

int RunOnDumps() {
  if (IsAnyNamed() || !fleet_flags.job_id.empty() || !fleet_flags.comm.empty()) {
    return Fail(kUsageError,
                "--flight-recorder reads files: it takes no endpoints, --job-id or --comm");
  }
  JobLook look;
  std::string error;
  if (!LookAtDumps(flight_recorder, &look, &error)) return Fail(kNoAnswer, error);
  Print(look);
  return look.heard == 0 ? kNoAnswer : StatusOf(look);
}

std::vector<Flag> Flags() {
  return WithFleetFlags(
      kAccessFlags | kEndpointFlags | kPrometheusFlags | kDirectoryFlags | kJobFlags,
      {{"--flight-recorder", &flight_recorder}, {"--json", &is_json}});
}

int Run(const std::vector<std::string>& arguments) {
  fleet_flags.endpoints.insert(fleet_flags.endpoints.end(), arguments.begin(), arguments.end());
  if (!flight_recorder.empty()) return RunOnDumps();
  Question question;
  std::string error;
  if (!ReadQuestion(&question, &error)) return Fail(kUsageError, error);
  JobLook look;
  switch (Ask(&question, &look, &error)) {
    case Asked::kLooked:
      break;
    case Asked::kNoAnswer:
      return Fail(kNoAnswer, error);
    case Asked::kBadUsage:
      return Fail(kUsageError, error);
  }
  Print(look);
  if (look.heard == 0) return FailUnheard(kNoAnswer, question.fleet);
  if (question.fleet.is_this_host) {
    std::fputs(WhoWasAsked(question.fleet.endpoints).c_str(), is_json ? stderr : stdout);
  }
  return StatusOf(look);
}

}  // namespace

const Command kDiagnoseCommand = {"diagnose", "say who holds up a whole job", kHelp, Flags, Run};

}  // namespace nccl_pulse
