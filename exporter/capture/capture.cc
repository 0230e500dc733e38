#include "exporter/capture/capture.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/time.h"
#include "exporter/capture/job_ras.h"
#include "exporter/capture/local_process.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/clock_offset.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/job_report.h"
#include "exporter/fleet/run_program.h"
#include "exporter/flight_recorder/writer.h"
#include "exporter/node/gpu_use.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

// Memory limit of the pages that become dumps.
constexpr std::size_t kMostPageBytes = 512 << 20;
constexpr std::size_t kMostCommunicators = 256;  // per endpoint
constexpr std::size_t kMostMissingBytes = 1 << 20;
constexpr std::size_t kMostEndpointName = 48;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Capturer {
 public:
  Capturer(const std::vector<Address>& endpoints, const CaptureOptions& options)
      : endpoints_(endpoints), options_(options) {}

  Capture Make() {
    capture_.look = LookAtJob(endpoints_, options_.look);
    asking_end_ = steady_clock::now() + options_.time_limit / 2;
    end_ = steady_clock::now() + options_.time_limit;
    for (const auto& [problem, names] : capture_.look.unheard) {
      for (const std::string& name : names) Miss("endpoint " + name, problem);
    }
    if (capture_.look.heard > 0) {
      NoteHeard();
      AskPages("/api/v1/communicators");
      AskCalls(/*live=*/true);
      AddClocks();
      if (!options_.only_flight_recorder_dumps) AskPages("/metrics");
      AskCalls(/*live=*/false);
      Guard("dumps and verdict", [this] {
        if (options_.only_flight_recorder_dumps) return AddDumps();
        Guard("ras.json", [this] { AddRas(); });
        Add("verdict.txt", JobText(capture_.look));
        Add("verdict.json", JobJson(capture_.look));
        AddProcesses();
        AddGpus();
        AddProgram("nvidia-smi.txt", {"nvidia-smi", "-q"});
      });
    }
    capture_.missing_live = live_.size();
    std::string text = capture_.missing.empty() ? "Nothing is missing.\n" : "";
    if (more_missing_ > 0) {
      capture_.missing.push_back(absl::StrCat("... and ", more_missing_, " more things"));
    }
    for (const std::string& each : capture_.missing) absl::StrAppend(&text, each, "\n");
    capture_.bundle.Add("missing.txt", std::move(text));
    return std::move(capture_);
  }

 private:
  void Miss(const std::string& what, const std::string& why) {
    MissLine(absl::StrCat(what, ": ", why));
  }
  // Adds a line to the missing data. It is made plain, because it may contain an endpoint's text.
  void MissLine(const std::string& line) {
    constexpr std::size_t kMostLine = 1000;
    std::string plain = PlainText(line, kMostLine);
    missing_bytes_ += plain.size() + 1;
    if (missing_bytes_ > kMostMissingBytes) {
      ++more_missing_;
    } else {
      capture_.missing.push_back(std::move(plain));
    }
  }
  // Runs `work`, which reads an endpoint's untrusted answer. Notes a failure, so that it does not
  // lose the rest.
  template <typename Work>
  void Guard(const std::string& what, Work work) {
    try {
      work();
    } catch (const std::exception& problem) {
      Miss(what, absl::StrCat("it failed: ", problem.what()));
    }
  }

  void NoteHeard() {
    std::set<std::string> unheard;
    for (const auto& [problem, names] : capture_.look.unheard) {
      unheard.insert(names.begin(), names.end());
    }
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      if (unheard.count(endpoints_[i].name()) == 0) heard_.insert(i);
    }
  }
  // Returns a unique folder, whatever the endpoint's name.
  std::string FolderOf(std::size_t endpoint) const {
    return absl::StrCat("endpoints/", absl::Dec(endpoint + 1, absl::kZeroPad4), "-",
                        endpoints_[endpoint].name().substr(0, kMostEndpointName));
  }

  // A request to one endpoint.
  struct Question {
    std::size_t endpoint;
    std::string target;
    std::string what;  // describes the answer
  };
  // Asks the questions, and calls `take` with each answer. Does not retry failed endpoints: each
  // try could take as long. `is_urgent`: busy endpoints are asked again while there is time.
  template <typename Take>
  void Ask(const std::vector<Question>& questions, bool is_urgent, Take take) {
    std::vector<FleetRequest> requests;
    std::vector<const Question*> asked;
    const steady_clock::time_point now = steady_clock::now();
    const auto left = std::chrono::duration_cast<milliseconds>(asking_end_ - now);
    for (const Question& each : questions) {
      if (left.count() <= 0) {
        Miss(each.what, "there was no time left (--time-limit)");
      } else if (heard_.count(each.endpoint) == 0) {
        Miss(each.what, "not requested: the endpoint did not answer an earlier request");
      } else {
        requests.push_back({endpoints_[each.endpoint], each.target});
        asked.push_back(&each);
      }
    }
    if (requests.empty()) return;
    FleetClientOptions client = options_.look.client;
    client.patience = std::min(client.patience, left);
    client.retry_until = is_urgent ? asking_end_ : now;
    client.on_busy = options_.on_busy;
    AskAll(requests, client, [&](std::size_t index, FleetAnswer answer) {
      const Question& question = *asked[index];
      if (!answer.error.empty()) heard_.erase(question.endpoint);
      const std::string problem = ProblemOf(answer, question.target);
      if (!problem.empty()) return Miss(question.what, problem);
      Guard(question.what, [&] { take(question, std::move(answer.body)); });
    });
  }

  void Add(const std::string& name, std::string content) {
    if (capture_.bundle.bytes() + content.size() > options_.most_bytes) {
      return Miss(name, "the capture has reached its limit of size");
    }
    capture_.bundle.Add(name, std::move(content));
  }

  void AskPages(const std::string& target) {
    std::vector<Question> questions;
    for (const std::size_t endpoint : heard_) {
      questions.push_back(
          {endpoint, target, absl::StrCat(target, " of ", endpoints_[endpoint].name())});
    }
    Ask(questions, /*is_urgent=*/true, [&](const Question& question, std::string body) {
      const bool is_metrics = target == "/metrics";
      if (!is_metrics) NoteCommunicators(question.endpoint, body);
      if (options_.only_flight_recorder_dumps) return;
      Add(absl::StrCat(FolderOf(question.endpoint),
                       is_metrics ? "/metrics.txt" : "/communicators.json"),
          std::move(body));
    });
  }

  // Saves the offset of each endpoint's clock from the local one, for `pulse trace --from`.
  void AddClocks() {
    const auto left = std::chrono::duration_cast<milliseconds>(asking_end_ - steady_clock::now());
    if (options_.only_flight_recorder_dumps || left.count() <= 0) return;
    std::vector<std::size_t> asked(heard_.begin(), heard_.end());
    std::vector<Address> addresses;
    for (const std::size_t each : asked) addresses.push_back(endpoints_[each]);
    FleetClientOptions client = options_.look.client;
    client.patience = std::min(client.patience, left);
    const std::vector<std::optional<ClockOffset>> offsets = MeasureClocks(addresses, client);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (!offsets[i]) {
        Miss(absl::StrCat("clock of ", addresses[i].name()), "the endpoint did not answer");
        continue;
      }
      const Json json = {{"ahead_at_least_ns", offsets[i]->low_ns},
                         {"ahead_at_most_ns", offsets[i]->high_ns}};
      Add(absl::StrCat(FolderOf(asked[i]), "/clock.json"), JsonText(json) + "\n");
    }
  }

  void NoteCommunicators(std::size_t endpoint, const std::string& body) {
    const Json page = ParseJson(body);
    const std::string name = endpoints_[endpoint].name();
    const Json& communicators = At(page, "communicators");
    if (!communicators.is_array()) {
      return Miss(absl::StrCat("/api/v1/communicators of ", name),
                  "the answer is not from NCCL Pulse");
    }
    // Hangs first, then others with live ranks.
    std::vector<std::pair<std::tuple<bool, bool>, std::string>> found;
    for (const Json& each : communicators) {
      const std::string comm = TextAt(each, "comm");
      if (!IsCommunicatorId(comm)) continue;
      bool is_live = false;
      for (const Json& rank : At(each, "ranks")) {
        if (At(rank, "active") != true) continue;
        is_live = true;
        live_.emplace(comm, NumberAt(rank, "rank", -1));
      }
      found.emplace_back(std::tuple(At(each, "hang").is_object(), is_live), comm);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (found.size() > kMostCommunicators) {
      Miss(absl::StrCat("last calls of ", found.size() - kMostCommunicators, " communicators at ",
                        name),
           absl::StrCat("it has more than ", kMostCommunicators));
      found.resize(kMostCommunicators);
    }
    for (auto& [order, comm] : found) {
      communicators_[endpoint].push_back({std::move(comm), std::get<1>(order)});
    }
  }

  void AskCalls(bool live) {
    std::vector<Question> questions;
    std::vector<std::string> comms;
    for (const auto& [endpoint, all] : communicators_) {
      for (const Communicator& each : all) {
        if (each.is_live != live) continue;
        comms.push_back(each.comm);
        questions.push_back({endpoint, absl::StrCat("/api/v1/communicators/", each.comm, "/calls"),
                             absl::StrCat("last calls of ", live ? "" : "ended ", "communicator ",
                                          each.comm, " at ", endpoints_[endpoint].name())});
      }
    }
    Ask(questions, live, [&](const Question& question, std::string body) {
      TakeCalls(question, comms[static_cast<std::size_t>(&question - questions.data())],
                std::move(body));
    });
  }

  void TakeCalls(const Question& question, const std::string& comm, std::string body) {
    const std::size_t bytes = JsonMemory(body).value_or(0);
    if (options_.only_flight_recorder_dumps && page_bytes_ + bytes > kMostPageBytes) {
      return Miss(question.what, "the capture has reached its limit of size");
    }
    Json page = ParseJson(body);
    const Json& ranks = At(page, "ranks");
    if (!ranks.is_array()) {
      return Miss(question.what, "the answer is not from NCCL Pulse");
    }
    for (const Json& rank : ranks) {
      if (!rank.is_object()) continue;
      const bool has_calls = At(rank, "calls").is_array();
      if (has_calls) NoteCalls(comm, rank);
      if (has_calls || !rank.contains("missing")) continue;
      const bool has_number = At(rank, "rank").is_number_integer();
      Miss(absl::StrCat("last calls of rank ",
                        has_number ? absl::StrCat(rank["rank"].get<int64_t>()) : "?",
                        " of communicator ", comm),
           rank["missing"] == "off" ? "NCCL_PULSE_LAST_CALLS=0 there"
                                    : "its process has more communicators than there is room for");
    }
    if (!options_.only_flight_recorder_dumps) {
      Add(absl::StrCat(FolderOf(question.endpoint), "/calls/", comm, ".json"), std::move(body));
      return;
    }
    page_bytes_ += bytes;
    pages_.push_back(std::move(page));
  }

  // Notes that a rank's calls were saved. A process has a rank in each of its communicators.
  void NoteCalls(const std::string& comm, const Json& rank) {
    live_.erase({comm, NumberAt(rank, "rank", -1)});
    const auto text = [&rank](const char* key) {
      const auto found = rank.find(key);
      return found == rank.end() ? "" : JsonText(*found);
    };
    callers_.emplace(text("hostname"), text("pid"), text("pid_namespace"));
    capture_.sources = callers_.size();
  }

  void AddDumps() {
    FlightRecorderDumps dumps = WriteFlightRecorder(pages_);
    for (std::string& each : dumps.left_out) MissLine(each);
    capture_.sources = dumps.by_rank.size();
    pages_.clear();
    page_bytes_ = 0;
    for (auto& [rank, dump] : dumps.by_rank) {
      Add(absl::StrCat("nccl_trace_rank_", rank), std::move(dump));
    }
  }

  void AddProgram(const std::string& file, const std::vector<std::string>& arguments) {
    const milliseconds left = TimeLeft();
    if (left.count() <= 0) return Miss(file, "there was no time left (--time-limit)");
    ProgramOutput output = RunProgram(arguments, std::min(options_.program_patience, left));
    if (!output.error.empty()) Miss(file, output.error);
    if (!output.text.empty()) Add(file, std::move(output.text));
  }

  milliseconds TimeLeft() const {
    return std::max(milliseconds(0),
                    std::chrono::duration_cast<milliseconds>(end_ - steady_clock::now()));
  }

  void AddRas() {
    JobLook& look = capture_.look;
    JobRas ras =
        AskRasOfJob(endpoints_, look.set, options_.ras, options_.look.client.patience, end_);
    for (const std::string& note : ras.notes) Miss("ras.json", note);
    if (!ras.report.error.empty()) Miss("ras.json", ras.report.error);
    if (!ras.report.json.empty()) Add("ras.json", ras.report.json);
    if (look.health.missing_ranks == 0) return;
    look.ras = std::move(ras.report);
    look.ras_address = std::move(ras.address);
  }

  // Adds the GPUs' utilization. Within a time limit, because NVML waits for a driver that hangs.
  void AddGpus() {
    const auto gpus = std::make_shared<std::vector<GpuSamples>>();
    const int late = RunWithin(std::min(options_.program_patience, TimeLeft()),
                               [gpus] { *gpus = GpuUses::SamplesOfHost(); });
    if (late != 0) return Miss("gpus.json", "NVML does not answer");
    if (gpus->empty()) return;
    const auto values = [](const std::vector<UseSample>& samples) {
      Json json = Json::array();
      for (const UseSample& each : samples) {
        json.push_back({Seconds(each.realtime_ns), each.percent});
      }
      return json;
    };
    Json json = Json::array();
    for (const GpuSamples& each : *gpus) {
      json.push_back({{"index", each.index},
                      {"pids", each.pids},
                      {"kernel_percent", values(each.kernels)},
                      {"memory_percent", values(each.memory)}});
    }
    Add("gpus.json", JsonText(json) + "\n");
  }

  void AddProcesses() {
    // Processes on other hosts may have the same pid.
    std::set<std::pair<std::string, std::string>> seen;
    for (const ProcessSnapshot& process : capture_.look.set.processes) {
      std::string why = WhyNotHere(process, endpoints_);
      if (!seen.emplace(PidCell(process), why).second) continue;
      const std::string folder = absl::StrCat("processes/", LocalPid(process));
      if (why.empty() && steady_clock::now() >= end_) why = "there was no time left (--time-limit)";
      if (!why.empty()) {
        Miss(absl::StrCat("settings and log of pid ", PidWords(process)), why);
        continue;
      }
      // Limited per process: a driver may hold its memory, and a log's file system may hang.
      std::string state = ReadLocalState(process, milliseconds(1000), &why);
      if (!why.empty()) Miss(absl::StrCat(folder, "/state.txt"), why);
      if (!state.empty()) Add(absl::StrCat(folder, "/state.txt"), std::move(state));
      LocalProcess local = ReadLocalProcess(process, &IsSetting, milliseconds(2000));
      if (!local.settings_error.empty()) {
        Miss(absl::StrCat(folder, "/settings.txt"), local.settings_error);
        continue;
      }
      Add(absl::StrCat(folder, "/settings.txt"), std::move(local.settings));
      if (local.log_error.empty()) {
        Add(absl::StrCat(folder, "/nccl_log.txt"), std::move(local.log));
      } else {
        Miss(absl::StrCat(folder, "/nccl_log.txt"), local.log_error);
      }
    }
    AddStacks();
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
    if (suspects.empty()) return Miss("stacks", "no rank is suspected");
    for (const ProcessSnapshot* process : suspects) {
      const std::string why = WhyNotHere(*process, endpoints_);
      const std::string file = absl::StrCat("stacks/", LocalPid(*process), ".txt");
      if (!why.empty()) {
        Miss(absl::StrCat("stack of pid ", PidWords(*process)), why);
        continue;
      }
      AddProgram(file, {"/bin/sh", "-c",
                        absl::StrReplaceAll(options_.stack_command,
                                            {{"{pid}", absl::StrCat(LocalPid(*process))}})});
    }
  }

  const std::vector<Address>& endpoints_;
  const CaptureOptions& options_;
  Capture capture_;
  steady_clock::time_point asking_end_, end_;
  std::set<std::size_t> heard_;  // endpoints that have answered all requests so far
  struct Communicator {
    std::string comm;
    bool is_live;
  };
  std::map<std::size_t, std::vector<Communicator>> communicators_;  // by endpoint
  std::vector<Json> pages_;
  std::size_t page_bytes_ = 0;
  std::size_t missing_bytes_ = 0, more_missing_ = 0;
  std::set<std::tuple<std::string, std::string, std::string>> callers_;  // host, pid, its namespace
  std::set<std::pair<std::string, int64_t>>
      live_;  // communicator, rank; without ranks whose calls were saved
};

}  // namespace

Capture CaptureJob(const std::vector<Address>& endpoints, const CaptureOptions& options) {
  return Capturer(endpoints, options).Make();
}

}  // namespace nccl_pulse
