#include "exporter/fleet/capture.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "exporter/fleet/flight_recorder.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/job_report.h"
#include "exporter/fleet/run_program.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

// All files together; what comes later is left out.
constexpr std::size_t kMostBytes = 512 << 20;

// What of a process' environment says how it was set up, and nothing else of it.
bool IsSetting(std::string_view variable) {
  for (const char* prefix : {"NCCL_", "TORCH_NCCL_", "TORCH_FR_", "CUDA_VISIBLE_DEVICES=", "RANK=",
                             "LOCAL_RANK=", "WORLD_SIZE=", "LOCAL_WORLD_SIZE=", "SLURM_JOB_ID="}) {
    if (absl::StartsWith(variable, prefix)) return true;
  }
  return false;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// The inode of this process' PID namespace, 0: not known.
uint32_t OwnPidNamespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint32_t>(status.st_ino) : 0;
}

class Capturer {
 public:
  Capturer(const std::vector<Address>& endpoints, const CaptureOptions& options)
      : endpoints_(endpoints), options_(options) {}

  Capture Make() {
    capture_.look = LookAtJob(endpoints_, options_.look);
    for (const auto& [problem, names] : capture_.look.unheard) {
      for (const std::string& name : names) Miss("endpoint " + name, problem);
    }
    if (capture_.look.heard > 0) {
      AskPages();
      AskCalls();
      if (options_.is_flight_recorder) {
        AddDumps();
      } else {
        Add("verdict.txt", JobText(capture_.look));
        Add("verdict.json", JobJson(capture_.look));
        AddProcesses();
        AddProgram("nvidia-smi.txt", {"nvidia-smi", "-q"});
      }
    }
    std::string text = capture_.missing.empty() ? "Nothing is missing.\n" : "";
    for (const std::string& each : capture_.missing) absl::StrAppend(&text, each, "\n");
    capture_.bundle.Add("missing.txt", std::move(text));
    return std::move(capture_);
  }

 private:
  void Miss(const std::string& what, const std::string& why) {
    capture_.missing.push_back(absl::StrCat(what, ": ", why));
  }
  void Add(const std::string& name, std::string content) {
    if (capture_.bundle.bytes() + content.size() > kMostBytes) {
      return Miss(name, "there is too much already");
    }
    capture_.bundle.Add(name, std::move(content));
  }

  // "" when the answer is good; else what is wrong, which is noted.
  bool IsGood(const std::string& what, const FleetAnswer& answer) {
    if (!answer.error.empty()) {
      Miss(what, answer.error);
    } else if (answer.status == 503) {
      Miss(what, "the endpoint has no processor time left for it (503)");
    } else if (answer.status == 404) {
      Miss(what, "the endpoint does not have it (404): an older version, or it is gone by now");
    } else if (answer.status != 200) {
      Miss(what, absl::StrCat("the endpoint answers with status ", answer.status));
    } else {
      return true;
    }
    return false;
  }

  void AskPages() {
    std::vector<FleetRequest> requests;
    for (const Address& address : endpoints_) {
      requests.push_back({address, "/api/v1/communicators"});
      if (!options_.is_flight_recorder) requests.push_back({address, "/metrics"});
    }
    AskAll(requests, options_.look.client, [&](std::size_t index, FleetAnswer answer) {
      const FleetRequest& request = requests[index];
      const std::string name = request.address.name();
      if (!IsGood(absl::StrCat(request.target, " of ", name), answer)) return;
      if (request.target == "/metrics") {
        Add(absl::StrCat("endpoints/", name, "/metrics.txt"), std::move(answer.body));
        return;
      }
      NoteCommunicators(request.address, answer.body);
      if (options_.is_flight_recorder) return;
      Add(absl::StrCat("endpoints/", name, "/communicators.json"), std::move(answer.body));
    });
  }

  void NoteCommunicators(const Address& address, const std::string& body) {
    const Json page = Json::parse(body, nullptr, false);
    if (!page.is_object() || !page.contains("communicators")) return;
    std::vector<std::pair<bool, std::string>> found;  // hangs
    for (const Json& each : page["communicators"]) {
      if (!each.is_object() || !each.contains("comm") || !each["comm"].is_string()) continue;
      const std::string comm = each["comm"].get<std::string>();
      if (comm.size() != 16) continue;
      found.emplace_back(each.contains("hang") && each["hang"].is_object(), comm);
    }
    // Those that hang first: the endpoint may have no time for all.
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [hangs, comm] : found) communicators_[address.name()].push_back(std::move(comm));
  }

  // One communicator of each endpoint at a time.
  void AskCalls() {
    for (std::size_t turn = 0;; ++turn) {
      std::vector<FleetRequest> requests;
      for (const Address& address : endpoints_) {
        const std::vector<std::string>& comms = communicators_[address.name()];
        if (turn >= comms.size()) continue;
        requests.push_back(
            {address, absl::StrCat("/api/v1/communicators/", comms[turn], "/calls")});
      }
      if (requests.empty()) return;
      AskAll(requests, options_.look.client, [&](std::size_t index, FleetAnswer answer) {
        const std::string name = requests[index].address.name();
        const std::string comm = communicators_[name][turn];
        if (!IsGood(absl::StrCat("last calls of communicator ", comm, " at ", name), answer))
          return;
        TakeCalls(name, comm, std::move(answer.body));
      });
    }
  }

  void TakeCalls(const std::string& name, const std::string& comm, std::string body) {
    Json page = Json::parse(body, nullptr, false);
    if (!page.is_object() || !page.contains("ranks") || !page["ranks"].is_array()) {
      return Miss(absl::StrCat("last calls of communicator ", comm, " at ", name),
                  "the answer is not from NCCL Pulse");
    }
    for (const Json& rank : page["ranks"]) {
      if (!rank.is_object()) continue;
      const bool has_calls = rank.contains("calls") && rank["calls"].is_array();
      if (has_calls) ++capture_.ranks;
      if (has_calls || !rank.contains("missing")) continue;
      Miss(absl::StrCat("last calls of rank ", rank.value("rank", -1), " of communicator ", comm),
           rank["missing"] == "off" ? "NCCL_PULSE_LAST_CALLS=0 there"
                                    : "its process has more communicators than there is room for");
    }
    if (!options_.is_flight_recorder) {
      Add(absl::StrCat("endpoints/", name, "/calls/", comm, ".json"), std::move(body));
      return;
    }
    pages_.push_back(std::move(page));
  }

  void AddDumps() {
    FlightRecorderDumps dumps = WriteFlightRecorder(pages_);
    for (std::string& each : dumps.left_out) capture_.missing.push_back(std::move(each));
    capture_.ranks = dumps.by_rank.size();
    for (auto& [rank, dump] : dumps.by_rank) {
      Add(absl::StrCat("nccl_trace_rank_", rank), std::move(dump));
    }
  }

  void AddProgram(const std::string& file, const std::vector<std::string>& arguments) {
    ProgramOutput output = RunProgram(arguments, options_.program_patience);
    if (!output.error.empty()) Miss(file, output.error);
    if (!output.text.empty()) Add(file, std::move(output.text));
  }

  // "" when it runs here under its pid; else why not.
  std::string WhyNotHere(const ProcessSnapshot& process) const {
    if (process.end != ProcessEnd::kLive) return "it has ended";
    if (process.hostname != HostName()) {
      return absl::StrCat("it is on ", process.hostname, "; run this there, too");
    }
    if (process.pid_namespace != 0 && process.pid_namespace != OwnPidNamespace()) {
      return "it is in a container, where it has another pid";
    }
    if (access(absl::StrCat("/proc/", process.pid).c_str(), F_OK) != 0) {
      return "there is no process of that pid";
    }
    return "";
  }

  void AddProcesses() {
    for (const ProcessSnapshot& process : capture_.look.set.processes) {
      const std::string why = WhyNotHere(process);
      const std::string file = absl::StrCat("processes/", process.pid, "/settings.txt");
      if (!why.empty()) {
        Miss(absl::StrCat("settings and log of pid ", process.pid), why);
        continue;
      }
      std::ifstream in(absl::StrCat("/proc/", process.pid, "/environ"), std::ios::binary);
      std::stringstream content;
      content << in.rdbuf();
      if (!in.good() && content.str().empty()) {
        Miss(file, "its environment may not be read: another user's process");
        continue;
      }
      std::string settings;
      std::string log;
      for (const std::string_view variable : absl::StrSplit(content.str(), '\0')) {
        if (!IsSetting(variable)) continue;
        absl::StrAppend(&settings, variable, "\n");
        if (absl::StartsWith(variable, "NCCL_DEBUG_FILE=")) log = variable.substr(16);
      }
      Add(file, std::move(settings));
      AddLog(process, log);
    }
    AddStacks();
  }

  // NCCL's log has what the plugin says (%h and %p: NCCL's own letters for host and pid).
  void AddLog(const ProcessSnapshot& process, const std::string& name) {
    const std::string what = absl::StrCat("processes/", process.pid, "/nccl_log.txt");
    if (name.empty()) return Miss(what, "NCCL_DEBUG_FILE is not set; the log went to its output");
    const std::string host = process.hostname.substr(0, process.hostname.find('.'));
    const std::string path =
        absl::StrReplaceAll(name, {{"%h", host}, {"%p", absl::StrCat(process.pid)}});
    struct stat status {};
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      return Miss(what, absl::StrCat("there is no file ", path));
    }
    constexpr int64_t kMostLog = 1 << 20;  // its end
    std::ifstream in(path, std::ios::binary);
    if (status.st_size > kMostLog) in.seekg(status.st_size - kMostLog);
    std::stringstream content;
    content << in.rdbuf();
    if (content.str().empty())
      return Miss(what, absl::StrCat("cannot read ", path, ", or it is empty"));
    Add(what, content.str());
  }

  void AddStacks() {
    if (options_.stack_command.empty()) return Miss("stacks", "no --stack-command was given");
    std::set<const ProcessSnapshot*> suspects;
    for (const JobRoot& root : capture_.look.verdict.roots) {
      for (const auto* ranks : {&root.ranks, &root.perhaps}) {
        for (const JobRank& rank : *ranks) {
          if (rank.process != nullptr) suspects.insert(rank.process);
        }
      }
    }
    if (suspects.empty()) return Miss("stacks", "nobody is suspected");
    for (const ProcessSnapshot* process : suspects) {
      const std::string why = WhyNotHere(*process);
      const std::string file = absl::StrCat("stacks/", process->pid, ".txt");
      if (!why.empty()) {
        Miss(absl::StrCat("stack of pid ", process->pid), why);
        continue;
      }
      AddProgram(file, {"/bin/sh", "-c",
                        absl::StrReplaceAll(options_.stack_command,
                                            {{"{pid}", absl::StrCat(process->pid)}})});
    }
  }

  const std::vector<Address>& endpoints_;
  const CaptureOptions& options_;
  Capture capture_;
  std::map<std::string, std::vector<std::string>> communicators_;  // by endpoint
  std::vector<Json> pages_;
};

}  // namespace

Capture CaptureJob(const std::vector<Address>& endpoints, const CaptureOptions& options) {
  return Capturer(endpoints, options).Make();
}

}  // namespace nccl_pulse
