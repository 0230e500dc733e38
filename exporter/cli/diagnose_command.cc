// pulse diagnose: one verdict for a whole job, from all its endpoints.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/capture/job_ras.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/fleet/dump_look.h"
#include "exporter/fleet/job_look.h"
#include "exporter/fleet/job_report.h"
#include "exporter/outside/outside_look.h"

namespace nccl_pulse {
namespace diagnose_command {

std::string flight_recorder;  // NOLINT(cert-err58-cpp)
bool is_json = false;

constexpr char kHelp[] =
    R"(usage: pulse diagnose [--prometheus=URL | --targets=FILE | HOST:PORT ...] [flags]

Asks all endpoints of a job and names the rank that blocks it: host, GPU, pid, since when, and what to do
first. Tables of the suspects and of the waiting processes follow. The job is not modified.

Without an address, the endpoints of this host are asked. Jobs on this host whose processes run without NCCL
Pulse, or whose endpoint gives no data, are diagnosed by NCCL's RAS, NVML and /proc, in 15 s: docs/without-the-plugin.md.

Addresses of endpoints, TLS and passwords: `pulse help connect`.

{flags}

Endpoints that don't answer are listed with the reason. A missing answer never counts as healthy.

Examples:
  pulse diagnose
  pulse diagnose node-1 node-2
  pulse diagnose --prometheus=http://prometheus:9090 --job-id=my-run
  pulse diagnose --flight-recorder=/tmp/dumps/nccl_trace_rank_

Exit status: 0 no hang, an expected wait, or the job has ended; 1 bad usage; 2 no endpoint is found or
answers; 3 a hang is suspected; 4 incomplete: an endpoint or a rank is missing, a process was lost or doesn't
run, or a communicator's work can't be seen. More: docs/debug-a-hang.md.
)";

struct Question {
  FleetQuestion fleet;
  JobLookOptions options;
  outside::RasChoice ras;
};

// On failure returns false and sets `error`.
bool ReadQuestion(Question* question, std::string* error) {
  JobLookOptions& options = question->options;
  options.hang_after = HangAfter();
  if (!outside::ReadRasChoice(fleet_flags.ras, fleet_flags.enter_namespaces, &question->ras,
                              error) ||
      !ReadFilter(&options.filter, error) || !ReadFleetFlags(&question->fleet, error)) {
    return false;
  }
  options.client = question->fleet.client;
  options.most_looks = kLooksForStragglers;
  return true;
}

// True if a flag or an argument gives endpoints.
bool IsAnyNamed() {
  return !fleet_flags.endpoints.empty() || !fleet_flags.targets.empty() || IsDirectoryNamed();
}

// Finds the endpoints. Returns 0, or an exit status with `error`.
int FindEndpoints(Question* question, std::string* error) {
  FleetQuestion& fleet = question->fleet;
  if (!AddFromDirectories(question->options.filter, &fleet, error)) return kUnreachable;
  if (!IsAnyNamed()) return DefaultToThisHost(&fleet, error) ? 0 : kUsageError;
  KeepDifferent(&fleet.endpoints);
  return HasAuthorities(fleet, error) ? 0 : kUsageError;
}

// Diagnoses this host's jobs that run without the plugin, or whose endpoint gave no data. Prints
// nothing.
outside::Looks LookAtRest(const Question& question, bool is_endpoint_silent) {
  outside::Options options;
  options.is_endpoint_silent = is_endpoint_silent;
  options.ras = question.ras;
  options.hang_after = question.options.hang_after.value_or(options.hang_after);
  return outside::LookFromOutside(options, outside::SourcesOfThisHost());
}

// Asks RAS about ranks that no endpoint reports.
void AddRas(const Question& question, JobLook* look) {
  const std::chrono::milliseconds patience = question.options.client.patience;
  JobRas ras = AskRasOfJob(question.fleet.endpoints, look->set, question.ras, patience,
                           std::chrono::steady_clock::now() + 2 * patience);
  look->ras = std::move(ras.report);
  look->ras_address = std::move(ras.address);
  look->health.notes.insert(look->health.notes.end(), ras.notes.begin(), ras.notes.end());
}

// Drops jobs that an agent, or the endpoint of a job's other ranks, has reported.
void DropReported(const JobLook& look, outside::Looks* rest) {
  // Communicators. For those in `noted`, an agent has sent only a sentence that names no rank.
  std::set<uint64_t> reported, noted;
  for (const ProcessSnapshot& process : look.set.processes) {
    for (const CommunicatorSnapshot& each : process.communicators) reported.insert(each.comm_id);
  }
  for (const OutsideNote& each : look.set.outside_notes) noted.insert(each.comm_id);
  const auto is_reported = [&](const JobLook& job) {
    for (const ProcessSnapshot& process : job.set.processes) {
      for (const CommunicatorSnapshot& each : process.communicators) {
        if (reported.count(each.comm_id) != 0) return true;
        if (job.verdict.roots.empty() && noted.count(each.comm_id) != 0) return true;
      }
    }
    return false;
  };
  rest->jobs.erase(std::remove_if(rest->jobs.begin(), rest->jobs.end(), is_reported),
                   rest->jobs.end());
}

// Returns a line that names the polled endpoints: a multi-node job also has endpoints on other
// hosts.
std::string WhoWasAsked(const std::vector<Address>& endpoints) {
  std::string names;
  for (const Address& each : endpoints) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", each.name());
  }
  return absl::StrCat("Only this host was asked: ", names,
                      ". For other nodes: pulse diagnose NODE ..., --targets or --prometheus.\n");
}

// Returns the exit status.
int StatusOf(const JobLook& look) {
  switch (FindingOfJob(look)) {
    case JobFinding::kHang:
      return kHangFound;
    case JobFinding::kIncomplete:
      return kIncomplete;
    case JobFinding::kNone:
      break;
  }
  // Nothing was seen of the job, not even its end, so it can't be called healthy.
  return look.verdict.processes == 0 && look.set.ended.empty() ? kIncomplete : 0;
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
  if (!LookAtDumps(flight_recorder, &look, &error)) return Fail(kUnreachable, error);
  Print(look);
  return look.heard == 0 ? kUnreachable : StatusOf(look);
}

FlagTable Flags() {
  return Joined({{{"--flight-recorder", &flight_recorder, "DIR",
                   "read dumps of PyTorch's Flight Recorder (nccl_trace_rank_N, pickle or JSON) of "
                   "all ranks of a job that hung, instead of endpoints. DIR may end with the "
                   "beginning of their names"}},
                 JobFlags(),
                 RasFlags(),
                 {{"--json", &is_json, "", "print everything as JSON"}}});
}

int Run(const std::vector<std::string>& arguments) {
  fleet_flags.endpoints.insert(fleet_flags.endpoints.end(), arguments.begin(), arguments.end());
  if (!flight_recorder.empty()) return RunOnDumps();
  Question question;
  std::string error;
  if (!ReadQuestion(&question, &error)) return Fail(kUsageError, error);
  if (const int status = FindEndpoints(&question, &error); status != 0) return Fail(status, error);
  const bool is_here = !IsAnyNamed();
  const bool is_silent = question.fleet.is_all_silent;
  outside::Looks rest;
  if (is_here) rest = LookAtRest(question, is_silent);
  for (const std::size_t mixed : rest.mixed) {
    const auto& processes = rest.jobs[mixed].set.processes;
    question.options.outside.insert(question.options.outside.end(), processes.begin(),
                                    processes.end());
  }
  JobLook look = LookAtJob(question.fleet.endpoints, question.options);
  if (look.health.missing_ranks != 0) AddRas(question, &look);
  // True if the endpoints were found a moment ago, but no longer answer.
  const bool has_ceased = look.heard == 0 && !is_silent && !question.fleet.is_nobody_here;
  if (is_here && has_ceased) rest = LookAtRest(question, true);
  if (look.heard != 0) DropReported(look, &rest);
  int status = look.heard == 0 && !rest.jobs.empty() ? 0 : StatusOf(look);
  if (look.heard != 0 || rest.jobs.empty()) {
    Print(look);
    if (look.heard != 0 && question.fleet.is_this_host) {
      std::fputs(WhoWasAsked(question.fleet.endpoints).c_str(), is_json ? stderr : stdout);
    }
  }
  for (const JobLook& each : rest.jobs) {
    Print(each);
    // A hang takes precedence over incomplete data, and incomplete data over no finding.
    const int of_job = StatusOf(each);
    if (of_job == kHangFound || status == 0) status = of_job;
  }
  for (const std::string& note : rest.notes) std::fputs((note + "\n").c_str(), stderr);
  if (look.heard == 0 && rest.jobs.empty()) {
    return FailUnheard(kUnreachable, question.fleet.is_nobody_here);
  }
  return status;
}

}  // namespace diagnose_command

const Command kDiagnoseCommand = {"diagnose",
                                  "name the rank that blocks a job",
                                  diagnose_command::kHelp,
                                  diagnose_command::Flags,
                                  diagnose_command::Run,
                                  ConnectFlags};

}  // namespace nccl_pulse
