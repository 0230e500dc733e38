#include "exporter/fleet/job_look.h"

#include <malloc.h>

#include <algorithm>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/base/disjoint_sets.h"
#include "exporter/base/realtime_clock.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/words.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/job_words.h"

namespace nccl_pulse {
namespace {

using std::chrono::steady_clock;

// How often a look is repeated because it found another communicator hanging.
constexpr int kMostAgain = 2;
// No endpoint goes by less.
constexpr int64_t kLeastHangAfterNs = 1000000000;

std::chrono::milliseconds Milliseconds(int64_t ns) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(ns));
}

class Look {
 public:
  Look(const std::vector<Address>& endpoints, const JobLookOptions& options, Diagnosis* diagnosis)
      : endpoints_(endpoints), options_(options), diagnosis_(diagnosis), all_(options.filter) {
    look_.endpoints = endpoints.size();
    look_.now_realtime_ns = RealtimeNs();
  }

  JobLook Make() {
    std::vector<FleetRequest> requests;
    requests.reserve(endpoints_.size());
    for (const Address& address : endpoints_) requests.push_back({address, "/api/v1/snapshots"});
    FleetClientOptions client = options_.client;
    client.budget = &budget_;
    client.most_bytes_together =
        std::min<std::size_t>(client.most_bytes_together, options_.most_bytes / 2);
    unanswered_ = requests.size();
    options_.ask(requests, client, [this](std::size_t index, FleetAnswer answer) {
      --unanswered_;
      const std::string problem = Take(index, answer);
      if (problem.empty()) {
        ++look_.heard;
      } else {
        look_.unheard[problem].push_back(endpoints_[index].name());
      }
    });
    for (auto& [problem, names] : look_.unheard) std::sort(names.begin(), names.end());
    if (options_.hang_after) {
      longest_ns_ = std::chrono::nanoseconds(*options_.hang_after).count();
    } else if (longest_ns_ == 0) {
      longest_ns_ = std::chrono::nanoseconds(Diagnosis::kDefaultHangAfter).count();
    }
    look_.endpoint_of = std::move(endpoint_of_);
    look_.hang_after_ns = longest_ns_;
    look_.shortest_hang_after_ns = std::min(shortest_ns_, longest_ns_);
    look_.other_jobs = all_.other_jobs();
    look_.set = all_.Take(longest_ns_);
    diagnosis_->set_hang_after(Milliseconds(longest_ns_));
    look_.diagnosis = diagnosis_->Update(look_.set, look_.now_realtime_ns);
    return std::move(look_);
  }

 private:
  // "" if the answer was added to the others, otherwise what is wrong.
  std::string Take(std::size_t index, const FleetAnswer& answer) {
    if (std::string problem = ProblemOf(answer, "/api/v1/snapshots"); !problem.empty()) {
      return problem;
    }
    if (answer.age > kMostAge) {
      return absl::StrCat("what it answers is older than ", kMostAge.count(), " s, and not used");
    }
    SnapshotMessage message;
    std::string error;
    const WorkBudget::Share share(&budget_);
    if (!ReadSnapshots(answer.body, look_.now_realtime_ns, Room(), &message, &error, &share)) {
      return absl::StrCat("it answers with ", error);
    }
    taken_ += message.bytes;
    if (message.hang_after_ns > 0) {
      shortest_ns_ = std::min(shortest_ns_, message.hang_after_ns);
      longest_ns_ = std::max(longest_ns_, message.hang_after_ns);
    }
    for (const auto* processes : {&message.set.processes, &message.set.ended}) {
      for (const ProcessSnapshot& process : *processes) {
        endpoint_of_->try_emplace({process.hostname, process.pid}, index);
      }
    }
    if (all_.Add(std::move(message)) == 0) ++look_.without_job;
    return "";
  }

  // What this endpoint may take, so that something is left for each of the others.
  uint64_t Room() const {
    const uint64_t left = options_.most_bytes - taken_;
    const uint64_t each =
        std::min<uint64_t>(kReservedBytes, options_.most_bytes / endpoints_.size());
    return std::min(kMostEndpointBytes, left - std::min(left, unanswered_ * each));
  }

  const std::vector<Address>& endpoints_;
  const JobLookOptions& options_;
  Diagnosis* diagnosis_;
  SnapshotUnion all_;
  std::shared_ptr<JobLook::EndpointOf> endpoint_of_ = std::make_shared<JobLook::EndpointOf>();
  WorkBudget budget_{options_.most_time};
  uint64_t taken_ = 0, unanswered_ = 0;
  int64_t shortest_ns_ = INT64_MAX, longest_ns_ = 0;  // that an endpoint goes by
  JobLook look_;
};

using Communicators = std::set<std::pair<uint64_t, uint32_t>>;  // by id and number

Communicators::value_type IdOf(const CommunicatorDiagnosis& each) {
  return {each.comm_id, each.number};
}

Communicators Hanging(const DiagnosisResult& diagnosis) {
  Communicators hanging;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.hang) hanging.insert(IdOf(each));
  }
  return hanging;
}

// How many of these communicators are still reported. It is not known whether the others went on.
std::size_t SeenOf(const Communicators& communicators, const DiagnosisResult& diagnosis) {
  return static_cast<std::size_t>(std::count_if(
      diagnosis.begin(), diagnosis.end(),
      [&communicators](const auto& each) { return communicators.count(IdOf(each)) != 0; }));
}

// Keeps only the hangs of these communicators. Returns how many there are.
std::size_t KeepHangs(const Communicators& communicators, DiagnosisResult* diagnosis) {
  std::size_t kept = 0;
  for (CommunicatorDiagnosis& each : *diagnosis) {
    if (!each.hang) continue;
    if (communicators.count(IdOf(each)) != 0) {
      ++kept;
    } else {
      each.hang.reset();
    }
  }
  return kept;
}

// What is no hang yet, and may be one on an endpoint's own page.
void NoteEarlyHangs(JobLook* look) {
  const int64_t shortest_ns = look->shortest_hang_after_ns;
  if (shortest_ns >= look->hang_after_ns) return;
  Diagnosis early{Milliseconds(std::max(shortest_ns, kLeastHangAfterNs))};
  std::size_t communicators = 0;
  int64_t since_ns = look->now_realtime_ns;
  for (const auto& each : early.Update(look->set, look->now_realtime_ns)) {
    if (!each.hang || each.hang->is_usual) continue;
    ++communicators;
    since_ns = std::min(since_ns, each.hang->since_realtime_ns);
  }
  if (communicators == 0) return;
  look->health.notes.insert(
      look->health.notes.begin(),
      absl::StrFormat(
          "%d communicator%s made no progress for up to %s. This command reports a hang "
          "after %s (--hang-after), an endpoint after %s. Run it again.",
          communicators, communicators == 1 ? " has" : "s have",
          DurationWords(ElapsedNs(look->now_realtime_ns, since_ns)),
          DurationWords(look->hang_after_ns), DurationWords(shortest_ns)));
}

}  // namespace

JobLook LookAtJob(const std::vector<Address>& endpoints, const JobLookOptions& options) {
  const auto start = steady_clock::now();
  Diagnosis diagnosis;  // remembers the calls of all looks
  JobLook look;
  Communicators before;  // what hung at the last look
  std::size_t went_on = 0;
  int looks = 0;
  for (int hangs = 0;;) {
    look = Look(endpoints, options, &diagnosis).Make();
    ++looks;
    Communicators now = Hanging(look.diagnosis);
    const std::size_t kept = KeepHangs(before, &look.diagnosis);
    if (!before.empty()) went_on = SeenOf(before, look.diagnosis) - kept;
    look.verdict = JudgeJob(look.set, look.diagnosis, look.now_realtime_ns);
    before = std::move(now);
    // Who does not answer would be waited for in each look.
    const bool may_look = looks < options.most_looks &&
                          steady_clock::now() - start < options.most_looks * options.pause;
    const bool is_another_due =
        before.empty() ? may_look && IsAnotherLookWorthwhile(look.diagnosis, look.verdict)
                       : kept == 0 && hangs++ < kMostAgain;
    if (!is_another_due) break;
    look = JobLook();  // frees its memory, which is needed
    malloc_trim(0);    // in pieces that the next one's do not fit into
    std::this_thread::sleep_for(options.pause);
  }
  look.looks = looks;
  look.went_on = went_on;
  look.health = HealthOf(look.set, look.diagnosis, look.now_realtime_ns);
  if (before.empty()) NoteEarlyHangs(&look);
  if (options.ras.has_value() && look.health.missing_ranks != 0) {
    look.ras_address = options.ras->name();
    look.ras = AskRas(*options.ras, options.client.patience);
  }
  look.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  return look;
}

std::vector<JobLook> SplitByJob(JobLook look) {
  DisjointSets jobs;
  std::unordered_map<uint64_t, std::size_t> job_of;
  const auto join = [&](const ProcessSnapshot& process) {
    const std::size_t own = jobs.Add();
    for (const CommunicatorSnapshot& each : process.communicators) {
      if (each.comm_id == 0) continue;  // not known: it connects nobody
      jobs.Join(job_of.try_emplace(each.comm_id, own).first->second, own);
    }
  };
  for (const ProcessSnapshot& process : look.set.processes) join(process);
  for (const ProcessSnapshot& process : look.set.ended) join(process);

  std::map<std::size_t, JobLook> looks;
  std::map<std::size_t, std::set<std::size_t>> endpoints;
  std::size_t number = 0;
  const auto take = [&](std::vector<ProcessSnapshot>* from, auto field) {
    if (from->empty()) return;
    const std::size_t first = jobs.SetOf(0);
    std::size_t kept = 0;  // of the first job, in its place: it may be the only one, and large
    for (ProcessSnapshot& process : *from) {
      const std::size_t job = jobs.SetOf(number++);
      endpoints[job].insert(look.endpoint_of->at({process.hostname, process.pid}));
      if (job != first) {
        (looks[job].set.*field).push_back(std::move(process));
      } else if (ProcessSnapshot& place = (*from)[kept++]; &place != &process) {
        place = std::move(process);
      }
    }
    from->resize(kept);
    looks[first].set.*field = std::move(*from);
  };
  take(&look.set.processes, &SnapshotSet::processes);
  take(&look.set.ended, &SnapshotSet::ended);
  for (CommunicatorDiagnosis& each : look.diagnosis) {
    const auto found = job_of.find(each.comm_id);
    if (found != job_of.end())
      looks[jobs.SetOf(found->second)].diagnosis.push_back(std::move(each));
  }
  std::vector<JobLook> split;
  for (auto& [job, part] : looks) {
    part.endpoints = part.heard = endpoints[job].size();
    part.endpoint_of = look.endpoint_of;
    part.now_realtime_ns = look.now_realtime_ns;
    part.hang_after_ns = look.hang_after_ns;
    part.shortest_hang_after_ns = look.shortest_hang_after_ns;
    part.set.is_of_all_nodes = look.set.is_of_all_nodes;
    part.set.stands_after_ns = look.set.stands_after_ns;
    part.looks = look.looks;
    part.seconds = look.seconds;
    part.verdict = JudgeJob(part.set, part.diagnosis, part.now_realtime_ns);
    part.health = HealthOf(part.set, part.diagnosis, part.now_realtime_ns);
    split.push_back(std::move(part));
  }
  return split;
}

}  // namespace nccl_pulse
