#include "exporter/fleet/job_look.h"

#include <malloc.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/exposition/snapshot_message.h"

namespace nccl_pulse {
namespace {

using std::chrono::steady_clock;

int64_t Nanoseconds(std::chrono::milliseconds duration) {
  return std::chrono::nanoseconds(duration).count();
}

struct WrittenTime {
  int64_t at_ns = 0, error_ns = 0;
};

// Returns when the answer to a request was written: by its endpoint's clock, if that is possible.
WrittenTime WrittenAt(const FleetAnswer& answer, int64_t asked_realtime_ns) {
  constexpr int64_t kSecondNs = 1000000000;
  const int64_t age_ns = answer.age.count() * kSecondNs;  // rounded down
  const int64_t earliest_ns = asked_realtime_ns - age_ns - (age_ns == 0 ? 0 : kSecondNs);
  const int64_t latest_ns = std::max(earliest_ns, RealtimeNs() - age_ns);
  const int64_t at_ns = std::clamp(WrittenRealtimeNs(answer.body), earliest_ns, latest_ns);
  return {at_ns, std::max(at_ns - earliest_ns, latest_ns - at_ns)};
}

// A stopped process must be known before a hang is reported (kStoppedAfterNs).
void ShortenThresholds(int64_t hang_after_ns, SnapshotSet* set) {
  for (ProcessSnapshot& process : set->processes) {
    process.hang_after_ns = std::min(HangAfterNs(process), hang_after_ns);
  }
}

// Limit of further polls because the last one found another communicator hanging.
constexpr int kMostAgain = 2;

class Look {
 public:
  Look(const std::vector<Address>& endpoints, const JobLookOptions& options, Diagnosis* diagnosis,
       LastHeard* last_heard)
      : endpoints_(endpoints),
        options_(options),
        diagnosis_(diagnosis),
        last_heard_(last_heard),
        all_(options.filter) {
    look_.endpoints = endpoints.size();
    look_.now_realtime_ns = RealtimeNs();
  }

  // `views`: gets the views of the poll's snapshots.
  JobLook Make(std::vector<CommunicatorView>* views) {
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
        heard_.insert(endpoints_[index].name());
      } else {
        look_.unheard[problem].push_back(endpoints_[index].name());
      }
    });
    for (auto& [problem, names] : look_.unheard) std::sort(names.begin(), names.end());
    AddOutside();
    look_.set = all_.Take();
    look_.endpoint_of = std::make_shared<const SnapshotUnion::EndpointOf>(all_.TakeEndpoints());
    look_.other_jobs = all_.other_jobs();
    std::set<std::size_t> with_job;
    for (const auto* processes : {&look_.set.processes, &look_.set.ended}) {
      for (const ProcessSnapshot& process : *processes) {
        // None: it runs without the plugin.
        const auto endpoint = look_.endpoint_of->find({process.hostname, process.pid});
        if (endpoint != look_.endpoint_of->end()) with_job.insert(endpoint->second);
      }
    }
    look_.without_job = look_.heard - with_job.size();
    last_heard_->AddTo(heard_, &look_.set);
    if (options_.hang_after) ShortenThresholds(Nanoseconds(*options_.hang_after), &look_.set);
    look_.diagnosis = diagnosis_->Update(look_.set, look_.now_realtime_ns, views);
    last_heard_->Keep(
        look_.set, look_.diagnosis, look_.now_realtime_ns, [this](const ProcessSnapshot& process) {
          const auto found = look_.endpoint_of->find({process.hostname, process.pid});
          return found == look_.endpoint_of->end() ? "" : endpoints_[found->second].name();
        });
    return std::move(look_);
  }

 private:
  void AddOutside() {
    SnapshotMessage message;
    message.set.processes = options_.outside;
    for (ProcessSnapshot& process : message.set.processes) {
      const RunState state = process.run_state;
      const bool may_run = state == RunState::kRunning || state == RunState::kUninterruptible ||
                           process.seen_pid == 0;  // on another host
      if (may_run) process.last_poll_realtime_ns = look_.now_realtime_ns;
    }
    all_.Add(std::move(message));
  }

  // Adds an answer to the union. Returns "", or the error.
  std::string Take(std::size_t index, const FleetAnswer& answer) {
    if (std::string problem = ProblemOf(answer, "/api/v1/snapshots"); !problem.empty()) {
      return problem;
    }
    if (answer.age > kMostAge) {
      return absl::StrCat("its answer is older than ", kMostAge.count(), " s");
    }
    SnapshotMessage message;
    std::string error;
    const WorkBudget::Share share(&budget_);
    const WrittenTime written = WrittenAt(answer, look_.now_realtime_ns);
    if (!ReadSnapshots(answer.body, written.at_ns, Room(), &message, &error, &share)) {
      return absl::StrCat("it answers with ", error);
    }
    for (auto* processes : {&message.set.processes, &message.set.ended}) {
      for (ProcessSnapshot& process : *processes) process.clock_error_ns = written.error_ns;
    }
    taken_ += message.bytes;
    all_.Add(std::move(message), endpoints_[index].name(), index);
    return "";
  }

  // Returns the memory for this endpoint, so that some is left for each of the others.
  uint64_t Room() const {
    const uint64_t left = options_.most_bytes - taken_;
    const uint64_t each =
        std::min<uint64_t>(kReservedBytes, options_.most_bytes / endpoints_.size());
    return std::min(kMostEndpointBytes, left - std::min(left, unanswered_ * each));
  }

  const std::vector<Address>& endpoints_;
  const JobLookOptions& options_;
  Diagnosis* diagnosis_;
  LastHeard* last_heard_;
  std::set<std::string> heard_;  // endpoints
  SnapshotUnion all_;
  WorkBudget budget_{options_.most_time};
  uint64_t taken_ = 0, unanswered_ = 0;
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

// Returns how many of these communicators `diagnosis` still reports as hanging. The others may have
// made progress or ended.
std::size_t SeenOf(const Communicators& communicators, const DiagnosisResult& diagnosis) {
  return static_cast<std::size_t>(std::count_if(
      diagnosis.begin(), diagnosis.end(),
      [&communicators](const auto& each) { return communicators.count(IdOf(each)) != 0; }));
}

// True if the last poll found all hangs of `diagnosis`, and they have not changed since.
bool AreKnown(const JobLookMemory& memory, const DiagnosisResult& diagnosis) {
  return std::all_of(diagnosis.begin(), diagnosis.end(), [&memory](const auto& each) {
    if (!each.hang) return true;
    const auto known = memory.hangs.find(IdOf(each));
    return known != memory.hangs.end() && each.hang->verdict == known->second.first &&
           each.hang->suspects == known->second.second &&
           each.hang->since_realtime_ns < memory.polled_realtime_ns;
  });
}

void Remember(const JobLook& look, JobLookMemory* memory) {
  memory->hangs.clear();
  for (const CommunicatorDiagnosis& each : look.diagnosis) {
    if (each.hang) memory->hangs[IdOf(each)] = {each.hang->verdict, each.hang->suspects};
  }
  memory->polled_realtime_ns = look.now_realtime_ns;
}

// Removes all hangs except those of `communicators`. Returns how many are left.
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

// Adds a note on waits that are too short for --hang-after, but may be hangs for an endpoint.
void NoteEarlyHangs(int64_t hang_after_ns, JobLook* look) {
  std::size_t communicators = 0;
  int64_t since_ns = look->now_realtime_ns;
  for (const auto& each : Diagnosis().Update(look->set, look->now_realtime_ns)) {
    if (!each.hang || each.hang->is_usual) continue;
    ++communicators;
    since_ns = std::min(since_ns, each.hang->since_realtime_ns);
  }
  if (communicators == 0) return;
  look->health.notes.insert(
      look->health.notes.begin(),
      absl::StrFormat("%s made no progress for up to %s. This command reports a hang "
                      "after %s (--hang-after), its endpoints sooner. Run it again.",
                      Plural(communicators, "communicator has", "communicators have"),
                      DurationWords(ElapsedNs(look->now_realtime_ns, since_ns)),
                      DurationWords(hang_after_ns)));
}

}  // namespace

JobLook LookAtJob(const std::vector<Address>& endpoints, const JobLookOptions& options) {
  const auto start = steady_clock::now();
  Diagnosis diagnosis;
  if (options.hang_after) diagnosis.OverrideHangAfter(*options.hang_after);
  JobLookMemory own;
  JobLookMemory& memory = options.memory != nullptr ? *options.memory : own;
  JobLook look;
  std::vector<CommunicatorView> views;  // of `look`
  Communicators before;                 // communicators that hung at the last poll
  std::size_t went_on = 0;
  int looks = 0;
  for (int hangs = 0;;) {
    look = Look(endpoints, options, &diagnosis, &memory.last_heard).Make(&views);
    Communicators now = Hanging(look.diagnosis);
    if (looks++ == 0 && AreKnown(memory, look.diagnosis)) before = now;
    const std::size_t kept = KeepHangs(before, &look.diagnosis);
    if (!before.empty()) went_on = SeenOf(before, look.diagnosis) - kept;
    look.verdict = JudgeJob(look.set, views, look.diagnosis);
    before = std::move(now);
    // Each poll waits for endpoints that do not answer, so the total time is also limited.
    const bool may_look = looks < options.most_looks &&
                          steady_clock::now() - start < options.most_looks * options.pause;
    const bool is_found = std::any_of(look.verdict.roots.begin(), look.verdict.roots.end(),
                                      [](const JobRoot& root) { return root.finding >= 0; });
    const bool is_another_due =
        before.empty() ? may_look && IsAnotherLookWorthwhile(look.diagnosis, look.verdict)
                       : !is_found && hangs++ < kMostAgain;
    if (!is_another_due) break;
    views.clear();
    look = JobLook();  // the next poll needs the memory
    malloc_trim(0);    // the freed blocks are too small for the next poll's
    std::this_thread::sleep_for(options.pause);
  }
  Remember(look, &memory);
  look.looks = looks;
  look.went_on = went_on;
  look.health = HealthOf(look.set, views, look.diagnosis, look.now_realtime_ns);
  // A caller with a memory polls again.
  if (before.empty() && options.hang_after && options.memory == nullptr) {
    NoteEarlyHangs(Nanoseconds(*options.hang_after), &look);
  }
  look.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  return look;
}

std::optional<int64_t> CompleteSince(const JobLook& look) {
  if (look.health.status == HealthStatus::kIncomplete || look.health.communicators == 0) return {};
  int64_t since_ns = INT64_MAX;
  for (const CommunicatorView& view : GroupByCommunicator(look.set, look.now_realtime_ns)) {
    const bool is_of_live =
        std::any_of(view.ranks.begin(), view.ranks.end(),
                    [](const RankView& rank) { return rank.is_live_process(); });
    if (!is_of_live) continue;
    if (static_cast<int64_t>(view.ranks.size()) < view.nranks) return {};
    for (const RankView& rank : view.ranks) {
      since_ns = std::min(since_ns, rank.communicator->init_realtime_ns);
    }
  }
  return since_ns;
}

std::vector<JobLook> SplitByJob(JobLook look) {
  constexpr std::size_t kOfNotesAlone =
      SIZE_MAX;  // jobs without the plugin and without a named rank
  Jobs jobs(look.set);
  std::map<std::size_t, JobLook> looks;
  std::vector<std::size_t> indices;  // of each communicator, in its job's diagnosis
  for (CommunicatorDiagnosis& each : look.diagnosis) {
    DiagnosisResult& of_job = looks[jobs.OfCommunicator(each.comm_id, each.number)].diagnosis;
    indices.push_back(of_job.size());
    of_job.push_back(std::move(each));
  }
  // The endpoints of each job, with the number of processes that each has rejected.
  std::map<std::size_t, std::map<std::size_t, uint64_t>> endpoints;
  const auto take = [&](std::vector<ProcessSnapshot>* from, auto field) {
    if (from->empty()) return;
    const std::size_t first = jobs.OfProcess(&from->front());
    std::size_t kept = 0;  // of the first job, in its place: it may be the only one, and large
    for (ProcessSnapshot& process : *from) {
      const std::size_t job = jobs.OfProcess(&process);
      // None: its endpoint is silent (last_heard.h).
      const auto endpoint = look.endpoint_of->find({process.hostname, process.pid});
      if (endpoint != look.endpoint_of->end()) {
        endpoints[job][endpoint->second] = process.rejected_beside;
      }
      if (job != first) {
        (looks[job].set.*field).push_back(std::move(process));
      } else if (ProcessSnapshot& free = (*from)[kept++]; &free != &process) {
        free = std::move(process);
      }
    }
    from->resize(kept);
    looks[first].set.*field = std::move(*from);
  };
  take(&look.set.processes, &SnapshotSet::processes);
  take(&look.set.ended, &SnapshotSet::ended);
  std::map<uint64_t, std::size_t> job_of;  // by communicator
  for (const auto& [job, part] : looks) {
    for (const ProcessSnapshot& process : part.set.processes) {
      for (const CommunicatorSnapshot& each : process.communicators) job_of[each.comm_id] = job;
    }
  }
  for (OutsideNote& note : look.set.outside_notes) {
    const auto found = job_of.find(note.comm_id);
    const std::size_t job = found == job_of.end() ? kOfNotesAlone : found->second;
    looks[job].set.outside_notes.push_back(std::move(note));
  }
  std::vector<JobLook> split;
  for (auto& [job, part] : looks) {
    for (CommunicatorDiagnosis& each : part.diagnosis) {
      if (each.hang && each.hang->suspects_seen_in) {
        each.hang->suspects_seen_in = indices[*each.hang->suspects_seen_in];
      }
    }
    part.endpoints = part.heard = job == kOfNotesAlone ? look.heard : endpoints[job].size();
    part.endpoint_of = look.endpoint_of;
    part.now_realtime_ns = look.now_realtime_ns;
    part.set.is_of_all_nodes = look.set.is_of_all_nodes;
    for (const auto& [endpoint, rejected] : endpoints[job]) part.set.unread_processes += rejected;
    if (part.set.unread_processes != 0) part.set.rejected = look.set.rejected;
    part.looks = look.looks;
    part.seconds = look.seconds;
    if (looks.size() == 1 && part.set.unread_processes == look.set.unread_processes) {
      part.verdict = std::move(look.verdict);
      part.health = std::move(look.health);
    } else {
      part.verdict = JudgeJob(part.set, part.diagnosis, part.now_realtime_ns);
      part.health = HealthOf(part.set, part.diagnosis, part.now_realtime_ns);
    }
    split.push_back(std::move(part));
  }
  return split;
}

}  // namespace nccl_pulse
