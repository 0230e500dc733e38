#include "exporter/watch/watcher.h"

#include <algorithm>
#include <future>
#include <set>
#include <tuple>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/disjoint_sets.h"
#include "exporter/base/time.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostSummaryAnswerBytes = 16 << 10;
// An endpoint that has been silent for longer belongs to no job.
constexpr std::chrono::minutes kRemembered{10};
// A job is polled this long after a stall's threshold: the diagnosis counts from the last progress
// of a rank in any communicator, which may be somewhat later than in the stalled one.
constexpr milliseconds kMargin{100};
// Time until a stalled job in which no hang was found is polled again.
constexpr seconds kLookAgainSoon{3};
constexpr std::size_t kLooksAtOnce = 4;
// Rounds begin every 2 s; polls of jobs may take half of that.
constexpr milliseconds kMostLookTime{1000};

// Returns the memory limit for the snapshots of all concurrent polls. With the answers in transit
// it stays below the 384 MiB of deploy/kubernetes/watch.
uint64_t MostBytes(std::size_t endpoints) {
  constexpr uint64_t kForHostile = uint64_t{96} << 20;
  constexpr uint64_t kMost = uint64_t{256} << 20;
  return std::min(kMost, kForHostile + endpoints * kReservedBytes);
}
// Number of polls of a job to find stragglers.
constexpr int kLooksForOneStraggler = 2;
// Lines in the log for each round: an endpoint can make up jobs.
constexpr std::size_t kMostNews = 20;

// True for a real job id. torchrun names every job without an id "none".
bool IsId(const std::string& job_id) { return !job_id.empty() && job_id != "none"; }

JobName NameOfJob(const EndpointSummary::Job& job) {
  return {job.job_id, job.workload.empty() ? job.job_id : job.workload};
}

constexpr char kOfEarlier[] = "; it served only an earlier attempt of this job";

std::set<std::string> IdsOfLive(const JobLook& part) {
  std::set<std::string> ids;
  for (const ProcessSnapshot& process : part.set.processes) ids.insert(process.job_id);
  return ids;
}

std::string WhyNoSummary(const FleetAnswer& answer) {
  const std::string problem = ProblemOf(answer, "/api/v1/summary");
  return problem.empty() ? "its answer is not a summary" : problem;
}

// Returns how many processes of the job are at endpoints with indices from `first` on.
std::size_t CountOfOthers(const JobLook& look, std::size_t first) {
  std::size_t count = 0;
  for (const auto* processes : {&look.set.processes, &look.set.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      const auto endpoint = look.endpoint_of->find({process.hostname, process.pid});
      count += endpoint != look.endpoint_of->end() && endpoint->second >= first ? 1 : 0;
    }
  }
  return count;
}

// Adds `more` to `*all`. Keeps the worse of the two states, whose text comes first.
void Merge(JobFindings more, JobFindings* all) {
  if (more.state < all->state) std::swap(more, *all);
  all->hangs.insert(all->hangs.end(), more.hangs.begin(), more.hangs.end());
  all->stragglers.insert(all->stragglers.end(), more.stragglers.begin(), more.stragglers.end());
  absl::StrAppend(&all->text, all->text.empty() ? "" : "\n", more.text);
  all->names.merge(more.names);
  all->is_stalled |= more.is_stalled;
  all->heard += more.heard;
}

}  // namespace

bool Watcher::FoundStall(const PollState& polls) {
  return std::any_of(polls.findings.begin(), polls.findings.end(),
                     [](const auto& each) { return each.second.is_stalled; });
}

Watcher::Watcher(Options options) : options_(std::move(options)) {}

std::shared_ptr<const WatchState> Watcher::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

Watcher::Time Watcher::NextRound(Time latest) const {
  return next_due_ == Time::max() ? latest : std::min(latest, next_due_ + kMargin);
}

void Watcher::Round() {
  const Time began = options_.clock();
  FindEndpoints(began);
  AskSummaries();
  const Time now = options_.clock();
  const std::vector<Group> groups = GroupEndpoints(now);
  LookWhereDue(groups, now);
  Publish(groups, began);
}

void Watcher::FindEndpoints(Time now) {
  if (now < find_at_) return;
  find_at_ = now + kFindEvery;
  std::vector<Address> found;
  find_error_.clear();
  FleetClientOptions client;
  if (!options_.find(&found, &client, &find_error_)) return;
  client_ = std::move(client);
  std::map<std::string, Endpoint> known;
  for (Endpoint& each : endpoints_) known[UrlOf(each.address)] = std::move(each);
  endpoints_.clear();
  for (Address& address : found) {
    Endpoint& endpoint = known[UrlOf(address)];
    endpoint.address = std::move(address);
    endpoints_.push_back(std::move(endpoint));
  }
}

void Watcher::AskSummaries() {
  std::vector<FleetRequest> requests;
  requests.reserve(endpoints_.size());
  for (const Endpoint& each : endpoints_) requests.push_back({each.address, "/api/v1/summary"});
  FleetClientOptions client = client_;
  client.patience = std::min(client.patience, options_.summary_patience);
  client.most_bytes = client.most_unpacked_bytes = kMostSummaryAnswerBytes;
  options_.look.ask(requests, client, [this](std::size_t index, FleetAnswer answer) {
    Endpoint& endpoint = endpoints_[index];
    std::optional<EndpointSummary> summary;
    if (answer.error.empty() && answer.status == 200) summary = ParseSummary(answer.body);
    endpoint.problem = summary ? "" : WhyNoSummary(answer);
    if (!summary) return;
    endpoint.summary = *std::move(summary);
    endpoint.heard_at = options_.clock() - answer.age;
    endpoint.earlier_jobs.clear();
  });
}

bool Watcher::IsBelieved(const Endpoint& endpoint, Time now) const {
  return endpoint.heard_at != Time() && now - endpoint.heard_at < kBelieved;
}

Watcher::Time Watcher::SilentSince(const Group& group) const {
  Time since{};
  for (const std::size_t each : group) {
    const Endpoint& endpoint = endpoints_[each];
    if (endpoint.problem.empty() || endpoint.summary.stalls.empty()) continue;
    since = std::max(since, endpoint.heard_at);
  }
  return since;
}

bool Watcher::RunsElsewhere(const JobFindings& stalled, const Group& group) const {
  const auto is_of_hang = [&stalled](const std::string& last_digits) {
    return std::any_of(stalled.hangs.begin(), stalled.hangs.end(), [&](const JobHang& each) {
      return absl::EndsWith(each.suspect.comm, last_digits);
    });
  };
  std::set<std::string> of_silent;  // communicators
  bool is_any_cut = false;
  for (const std::size_t each : group) {
    const Endpoint& endpoint = endpoints_[each];
    if (endpoint.problem.empty()) continue;
    of_silent.insert(endpoint.summary.communicators.begin(), endpoint.summary.communicators.end());
    is_any_cut |= endpoint.summary.is_cut;
  }
  return std::any_of(group.begin(), group.end(), [&](std::size_t index) {
    const Endpoint& endpoint = endpoints_[index];
    const EndpointSummary& summary = endpoint.summary;
    const bool runs = std::any_of(
        summary.jobs.begin(), summary.jobs.end(), [&stalled](const EndpointSummary::Job& job) {
          return job.processes > 0 && stalled.names.count(NameOfJob(job)) != 0;
        });
    if (!endpoint.problem.empty() || !runs) return false;
    bool takes_part = false;
    bool has_live = false;
    bool shares = is_any_cut;
    for (const std::string& each : summary.communicators) {
      takes_part |= is_of_hang(each);
      if (std::count(summary.ended.begin(), summary.ended.end(), each) != 0) continue;
      has_live = true;
      shares |= of_silent.count(each) != 0 || is_of_hang(each);
    }
    return !takes_part || (has_live && !shares);
  });
}

void Watcher::KeepSilentStalls(const Group& group, Time now,
                               std::map<Row, JobFindings>* findings) const {
  const Time since = SilentSince(group);
  const double silent_s = duration<double>(now - since).count();
  for (auto each = findings->begin(); each != findings->end();) {
    JobFindings& found = each->second;
    if (found.is_stalled && (since == Time() || RunsElsewhere(found, group))) {
      each = findings->erase(each);
      continue;
    }
    if (found.is_stalled) found.silent_since_s = static_cast<double>(RealtimeNs()) / 1e9 - silent_s;
    ++each;
  }
}

std::vector<Watcher::Group> Watcher::GroupEndpoints(Time now) const {
  DisjointSets sets(endpoints_.size());
  std::unordered_map<std::string, std::size_t> first_with;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    const auto join = [&](std::string what) {
      sets.Join(i, first_with.try_emplace(std::move(what), i).first->second);
    };
    for (const std::string& each : endpoints_[i].summary.communicators) join("c" + each);
    for (const EndpointSummary::Job& each : endpoints_[i].summary.jobs) {
      if (IsId(each.job_id)) join("j" + each.job_id);
    }
  }
  std::map<std::size_t, Group> groups;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    const Endpoint& each = endpoints_[i];
    if (each.heard_at == Time() || now - each.heard_at > kRemembered) continue;
    groups[sets.SetOf(i)].push_back(i);
  }
  std::vector<Group> list;
  for (auto& [set, group] : groups) list.push_back(std::move(group));
  return list;
}

std::string Watcher::KeyOf(const Group& group) const {
  std::string key;
  for (const std::size_t each : group) {
    std::string url = UrlOf(endpoints_[each].address);
    if (key.empty() || url < key) key = std::move(url);
  }
  return key;
}

Watcher::Row Watcher::RowOf(const JobName& name, const std::string& key) {
  return {name, IsId(name.job_id) ? "" : key};
}

// Returns the group's stalls that have reached their threshold. Lowers next_due_ to the time at
// which the next stall will reach its own.
Watcher::StallTimes Watcher::StallTimesOf(const Group& group, Time now) {
  StallTimes stalls;
  for (const std::size_t index : group) {
    const Endpoint& endpoint = endpoints_[index];
    if (!IsBelieved(endpoint, now)) continue;
    for (const EndpointSummary::Stall& each : endpoint.summary.stalls) {
      const double hang_after_s = options_.look.hang_after
                                      ? duration<double>(*options_.look.hang_after).count()
                                      : each.hang_after_s;
      const double left_s = std::clamp(hang_after_s - each.seconds, -1e6, 1e6);
      const Time at = endpoint.heard_at + duration_cast<milliseconds>(duration<double>(left_s));
      if (at > now) {
        next_due_ = std::min(next_due_, at);
      } else {
        stalls.oldest = std::min(stalls.oldest, at);
        stalls.newest = std::max(stalls.newest, at);
      }
    }
  }
  return stalls;
}

bool Watcher::HasLateRank(const Group& group) const {
  return std::any_of(group.begin(), group.end(),
                     [this](std::size_t each) { return endpoints_[each].summary.has_late_rank; });
}

bool Watcher::HasHealthChanged(const Group& group, const PollState& last) const {
  const auto was = [&last](JobState state) {
    return std::any_of(last.findings.begin(), last.findings.end(),
                       [state](const auto& each) { return each.second.state == state; });
  };
  const auto is = [this](HealthStatus status) {
    return [this, status](std::size_t each) {
      return endpoints_[each].summary.health == HealthStatusName(status);
    };
  };
  return was(JobState::kIdle) != std::all_of(group.begin(), group.end(), is(HealthStatus::kIdle)) ||
         (!was(JobState::kIncomplete) && !was(JobState::kEnded) &&
          std::any_of(group.begin(), group.end(), is(HealthStatus::kIncomplete)));
}

void Watcher::LookWhereDue(const std::vector<Group>& groups, Time now) {
  std::map<std::string, PollState> polls;
  std::vector<std::pair<const Group*, PollState*>> due;
  std::pair<const Group*, PollState*> for_stragglers{};
  double most_overdue = 1;  // as a multiple of the time between two polls
  next_due_ = Time::max();
  for (const Group& group : groups) {
    const std::string key = KeyOf(group);
    PollState& last = polls[key];
    if (const auto found = polls_.find(key); found != polls_.end()) {
      last = std::move(found->second);
    }
    const StallTimes stalls = StallTimesOf(group, now);
    if (stalls.any()) {
      const Time::duration again =
          std::clamp<Time::duration>((now - stalls.oldest) / 10, kLookAgain, kLookAgainAtMost);
      if (last.at < stalls.newest || now - last.at >= again) due.emplace_back(&group, &last);
      continue;
    }
    if (FoundStall(last)) {
      KeepSilentStalls(group, now, &last.findings);
      if (FoundStall(last)) continue;
      last = PollState();  // the jobs make progress again
    }
    const bool is_silent = std::none_of(group.begin(), group.end(), [this](std::size_t each) {
      return endpoints_[each].problem.empty();
    });
    if (is_silent) continue;
    const Time::duration every = HasHealthChanged(group, last) ? kLookAgain
                                 : HasLateRank(group)          ? kStragglersAgain
                                                               : kStragglersEvery;
    const double overdue = duration<double>(now - last.stragglers_at) / every;
    if (overdue >= most_overdue) {
      most_overdue = overdue;
      for_stragglers = {&group, &last};
    }
  }
  LookForHangs(due, now);
  // Skipped if a hang might have to wait for this poll.
  if (for_stragglers.first != nullptr && due.empty() && next_due_ > now + kLookAgainSoon) {
    for_stragglers.second->stragglers_at = now;
    Look(*for_stragglers.first, /*is_for_stragglers=*/true, MostBytes(endpoints_.size()),
         for_stragglers.second);
  }
  polls_ = std::move(polls);
}

void Watcher::LookForHangs(const std::vector<std::pair<const Group*, PollState*>>& due, Time now) {
  for (std::size_t begin = 0; begin < due.size(); begin += kLooksAtOnce) {
    const std::size_t together = std::min(due.size() - begin, kLooksAtOnce);
    std::vector<std::future<void>> looks;
    for (std::size_t i = begin; i < begin + together; ++i) {
      looks.push_back(std::async(std::launch::async, [this, together, each = due[i]] {
        // Concurrent polls share the memory limit.
        Look(*each.first, /*is_for_stragglers=*/false, MostBytes(endpoints_.size()) / together,
             each.second);
      }));
    }
    for (std::future<void>& each : looks) each.get();
  }
  for (const auto& [group, last] : due) {
    // A rank may have reached the threshold while another rank of the job moved a moment ago, which
    // is no hang yet. Such a job is polled again soon.
    const bool is_found = FoundStall(*last);
    last->at = is_found || last->is_retry ? now : now - kLookAgain + kLookAgainSoon;
    last->is_retry = !is_found;
  }
}

void Watcher::AddSilent(const Group& silent, Time polled_at,
                        const std::map<std::string, int>& live_parts, JobLook* look) {
  if (silent.empty()) return;
  std::set<std::string> ids;
  for (const JobName& name : NamesOfJob(*look)) ids.insert(name.job_id);
  const std::optional<int64_t> complete_since_ns = CompleteSince(*look);
  // A silent endpoint counts as missing in its last job, and in every job without an ID.
  for (const std::size_t each : silent) {
    Endpoint& endpoint = endpoints_[each];
    const int64_t heard_ns =
        look->now_realtime_ns - std::chrono::nanoseconds(polled_at - endpoint.heard_at).count();
    bool is_of_it = false;
    bool is_missing = false;
    for (const EndpointSummary::Job& job : endpoint.summary.jobs) {
      const std::string& id = job.job_id;
      if (ids.count(id) == 0) continue;
      is_of_it = true;
      endpoint.earlier_jobs.erase(id);
      const auto parts = live_parts.find(id);
      const bool is_connected = IsId(id) && parts != live_parts.end() && parts->second == 1;
      const bool is_replaced =
          endpoint.connected_jobs.count(id) != 0 && heard_ns < complete_since_ns;
      if (complete_since_ns && is_connected && (job.processes == 0 || is_replaced)) {
        endpoint.earlier_jobs.insert(id);
      } else {
        is_missing = true;
      }
    }
    if (!is_of_it) continue;
    look->unheard[absl::StrCat(endpoint.problem, is_missing ? "" : kOfEarlier)].push_back(
        endpoint.address.name());
    look->endpoints += is_missing ? 1 : 0;
  }
}

void Watcher::Look(const Group& group, bool is_for_stragglers, uint64_t most_bytes,
                   PollState* polls) {
  const Time polled_at = options_.clock();
  JobLookOptions options = options_.look;
  options.client = client_;
  options.most_looks = is_for_stragglers ? kLooksForOneStraggler : 1;
  options.most_bytes = most_bytes;
  options.most_time = kMostLookTime;
  options.memory = &polls->memory;
  std::vector<Address> asked;
  Group answering, silent;
  for (const std::size_t each : group) {
    (endpoints_[each].problem.empty() ? answering : silent).push_back(each);
  }
  for (const std::size_t each : answering) asked.push_back(endpoints_[each].address);
  const std::size_t of_group = asked.size();
  // A summary without room for a communicator does not lead to the ranks that are missing.
  const auto add_cut = [&] {
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const Endpoint& endpoint = endpoints_[i];
      if (!endpoint.problem.empty() || !endpoint.summary.is_cut) continue;
      if (!std::binary_search(group.begin(), group.end(), i)) asked.push_back(endpoint.address);
    }
  };
  if (polls->lacks_ranks) add_cut();
  JobLook whole = LookAtJob(asked, options);
  if (!polls->lacks_ranks && whole.health.missing_ranks != 0) {
    add_cut();
    if (asked.size() > of_group) {
      whole = JobLook();  // the next poll needs the memory
      whole = LookAtJob(asked, options);
    }
  }
  const auto unheard = std::move(whole.unheard);
  std::vector<JobLook> parts = SplitByJob(std::move(whole));
  polls->lacks_ranks = false;
  parts.erase(std::remove_if(parts.begin(), parts.end(),
                             [of_group, polls](const JobLook& part) {
                               const std::size_t others = CountOfOthers(part, of_group);
                               const std::size_t all =
                                   part.set.processes.size() + part.set.ended.size();
                               if (others != 0 && others == all) return true;
                               polls->lacks_ranks |= others != 0 || part.health.missing_ranks != 0;
                               return false;
                             }),
              parts.end());
  const std::string key = KeyOf(group);
  std::set<JobName> live;
  std::map<std::string, int> live_parts;  // by job ID
  for (const JobLook& part : parts) {
    if (part.verdict.processes == 0) continue;
    for (const std::string& id : IdsOfLive(part)) ++live_parts[id];
    live.merge(NamesOfJob(part));
  }
  std::map<std::size_t, std::set<std::string>> connected;  // job IDs, by endpoint
  for (const JobLook& part : parts) {
    for (const ProcessSnapshot& process : part.set.processes) {
      const auto endpoint = part.endpoint_of->find({process.hostname, process.pid});
      if (endpoint == part.endpoint_of->end() || endpoint->second >= of_group) continue;
      std::set<std::string>& of_endpoint = connected[answering[endpoint->second]];
      if (live_parts[process.job_id] == 1) of_endpoint.insert(process.job_id);
    }
  }
  for (auto& [index, jobs] : connected) endpoints_[index].connected_jobs = std::move(jobs);
  std::map<Row, JobFindings> findings;
  for (JobLook& part : parts) {
    const std::set<JobName> names = NamesOfJob(part);
    // An earlier attempt of a job that was restarted.
    const bool is_replaced = part.verdict.processes == 0 && part.set.outside_notes.empty() &&
                             live.count(*names.begin()) != 0;
    if (is_replaced) continue;
    AddSilent(silent, polled_at, live_parts, &part);
    for (const auto& [problem, names] : unheard) {
      part.endpoints += names.size();
      part.unheard[problem].insert(part.unheard[problem].end(), names.begin(), names.end());
    }
    const Row row = RowOf(*names.begin(), key);
    JobFindings found = FindingsOf(part, asked);
    if (options_.tell && !found.hangs.empty()) {
      const auto report = std::make_shared<const HangReport>(HangReportOf(part));
      for (JobHang& hang : found.hangs) hang.report = report;
    }
    Merge(std::move(found), &findings[row]);
  }
  const Time now = options_.clock();
  for (auto& [row, found] : findings) found.looked_at = now;
  for (auto& [row, last] : polls->findings) {
    if (now - last.looked_at >= 2 * kBelieved) continue;
    const auto found = findings.find(row);
    if (found != findings.end()) {
      const bool is_new_hang = found->second.state == JobState::kHang && !last.is_stalled;
      if (is_new_hang || found->second.heard >= last.heard) continue;
    }
    findings[row] = std::move(last);
  }
  polls->findings = std::move(findings);
}

JobLook Watcher::Ask(const JobFilter& filter) const {
  std::vector<Address> of_job;
  std::vector<Address> all;
  std::map<std::string, std::vector<std::string>> earlier;  // as JobLook::unheard
  for (const Group& group : GroupEndpoints(options_.clock())) {
    const bool is_of_it = std::any_of(group.begin(), group.end(), [&](std::size_t each) {
      const std::vector<EndpointSummary::Job>& jobs = endpoints_[each].summary.jobs;
      return std::any_of(jobs.begin(), jobs.end(),
                         [&filter](const auto& job) { return job.job_id == filter.job_id; });
    });
    if (!is_of_it) continue;
    for (const std::size_t each : group) {
      const Endpoint& endpoint = endpoints_[each];
      if (endpoint.earlier_jobs.count(filter.job_id) == 0) {
        of_job.push_back(endpoint.address);
      } else {
        earlier[absl::StrCat(endpoint.problem, kOfEarlier)].push_back(endpoint.address.name());
      }
    }
  }
  for (const Endpoint& each : endpoints_) all.push_back(each.address);
  JobLookOptions options = options_.look;
  options.client = client_;
  options.filter = filter;
  options.most_bytes = MostBytes(endpoints_.size());
  options.most_time = kMostLookTime;
  options.most_looks = kLooksForOneStraggler;
  JobLook look = LookAtJob(filter.job_id.empty() || of_job.empty() ? all : of_job, options);
  look.unheard.merge(earlier);
  return look;
}

void Watcher::Publish(const std::vector<Group>& groups, Time began) {
  const Time now = options_.clock();
  auto state = std::make_shared<WatchState>();
  std::map<Row, WatchedJob> rows;
  for (const Group& group : groups) {
    const std::string key = KeyOf(group);
    for (const std::size_t index : group) {
      for (const EndpointSummary::Job& job : endpoints_[index].summary.jobs) {
        if (endpoints_[index].earlier_jobs.count(job.job_id) != 0) continue;
        WatchedJob& row = rows[RowOf(NameOfJob(job), key)];
        row.processes += job.processes;
        row.endpoints.push_back(UrlOf(endpoints_[index].address));
        row.is_heard |= IsBelieved(endpoints_[index], now);
      }
    }
    for (const auto& [row, findings] : polls_[key].findings) {
      WatchedJob& job = rows[row];
      job.findings = findings;
      if (!job.endpoints.empty()) continue;
      // Summaries don't list jobs without the plugin.
      for (const std::size_t each : group) {
        job.endpoints.push_back(UrlOf(endpoints_[each].address));
        job.is_heard |= IsBelieved(endpoints_[each], now);
      }
    }
    for (const auto& [row, findings] : polls_[key].findings) {
      for (const JobName& name : findings.names) {
        const auto other = rows.find(RowOf(name, key));
        if (other == rows.end() || !(row < other->first)) continue;
        WatchedJob& job = rows[row];
        job.processes += other->second.processes;
        job.is_heard |= other->second.is_heard;
        job.endpoints.insert(job.endpoints.end(), other->second.endpoints.begin(),
                             other->second.endpoints.end());
        job.other_ids.push_back(name.job_id);
        rows.erase(other);
      }
    }
  }
  for (auto& [row, job] : rows) {
    // An ended job without findings is not shown.
    if (job.processes == 0 && job.findings.sentence.empty()) continue;
    if (!job.is_heard && !job.findings.is_stalled) job.findings.state = JobState::kEnded;
    job.job_id = row.name.job_id;
    job.workload = row.name.workload;
    state->jobs.push_back(std::move(job));
  }
  std::stable_sort(state->jobs.begin(), state->jobs.end(), [](const auto& a, const auto& b) {
    return a.findings.state < b.findings.state;
  });
  for (const Endpoint& each : endpoints_) {
    if (each.problem.empty()) {
      ++state->answered;
    } else {
      state->silent[each.problem].push_back(each.address.name());
    }
  }
  state->find_error = find_error_;
  state->round_s = static_cast<double>(RealtimeNs()) / 1e9;
  state->round_at = options_.clock();
  state->round_seconds = duration<double>(state->round_at - began).count();
  if (options_.log) LogNews(*state);
  if (options_.tell) options_.tell(*state);
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = std::move(state);
}

// Logs one line for each job whose findings have changed since the last round.
void Watcher::LogNews(const WatchState& state) const {
  const auto gist = [](const JobFindings& findings) {
    std::string text = JobStateName(findings.state);
    for (const JobHang& each : findings.hangs) {
      absl::StrAppend(&text, " ", each.verdict, " ", each.suspect.comm, " ", each.suspect.rank);
    }
    for (const JobSlow& each : findings.stragglers) {
      absl::StrAppend(&text, " ", each.suspect.hostname, " ", each.suspect.pid);
    }
    return text;
  };
  std::map<JobName, std::string> before;
  for (const WatchedJob& job : this->state()->jobs) {
    before[{job.job_id, job.workload}] = gist(job.findings);
  }
  std::size_t news = 0;
  for (const WatchedJob& job : state.jobs) {
    const auto found = before.find({job.job_id, job.workload});
    const bool is_known = found != before.end();
    const std::string now = gist(job.findings);
    const bool is_news = is_known ? found->second != now : job.findings.state <= JobState::kSlow;
    if (!is_news || job.findings.sentence.empty()) continue;
    if (++news > kMostNews) continue;
    options_.log(
        absl::StrCat(job.job_id.empty() ? "a job without ID" : absl::StrCat("job ", job.job_id),
                     ": ", job.findings.sentence));
  }
  if (news > kMostNews) {
    options_.log(absl::StrCat("and news of ", news - kMostNews, " other jobs: see the page"));
  }
}

}  // namespace nccl_pulse
