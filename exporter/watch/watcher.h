// Watcher watches all jobs, in rounds. In each round it polls every endpoint for its summary
// (endpoint_summary.h). If that shows a stalled job or a late rank, it polls the job's endpoints
// for snapshots, and diagnoses them like `pulse diagnose`. Endpoints that share communicators or a
// job ID are a group, which is polled together.
//
// A stalled job is polled when the stall reaches the threshold of a hang, a time known in advance,
// and again after kLookAgain; the longer the stall lasts, the longer the time between polls. Every
// job is polled for stragglers now and then, one per round, because the summary of a node with one
// rank of each communicator cannot show late ranks. A job whose summaries show a late rank, or
// another health than the last poll, is polled more often.
//
// A hang whose waiting endpoints all fall silent stays until all are forgotten, or until an endpoint
// without its communicator reports live processes of the job. An endpoint that knows ended ranks of
// it counts too, if its live ranks share no communicator with the silent endpoints.
//
// The watcher's memory only saves polls and bridges lost answers: another watcher, or this one
// after a restart, gives the same verdicts. The last answer of a silent endpoint counts for
// kBelieved, in a hang for longer (exporter/diagnosis/facts/last_heard.h). A verdict from fewer
// endpoints does not replace a fresh one from more endpoints, unless it is a new hang.
//
// A silent endpoint makes its job kIncomplete, unless it served only an earlier attempt of the job.
// That is assumed if all ranks of the job are seen elsewhere, and the endpoint has no live process of
// it in its last answer, or the job's communicators began after that answer. In the latter case, all
// processes of the job must share communicators, now and when that endpoint was last polled.
//
// Thread: one thread calls Round and Ask, which block; state() any thread. Memory: a summary per
// endpoint, and while a job is polled, its snapshots (exporter/fleet/job_look.h).
#ifndef EXPORTER_WATCH_WATCHER_H_
#define EXPORTER_WATCH_WATCHER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/job_look.h"
#include "exporter/watch/endpoint_summary.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

class Watcher {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Sets the endpoints, and the options to poll them with. On failure returns false and sets
  // `error`.
  using Find = std::function<bool(std::vector<Address>* endpoints, FleetClientOptions* client,
                                  std::string* error)>;

  // Time between two searches for endpoints.
  static constexpr std::chrono::seconds kFindEvery{10};
  // How long the last summary of a silent endpoint counts.
  static constexpr std::chrono::seconds kBelieved{15};
  // Time between two polls of a stalled job: from the first to the second value as it lasts.
  static constexpr std::chrono::seconds kLookAgain{10}, kLookAgainAtMost{60};
  // Time between two polls for stragglers: of any job, and of a job with a late rank.
  static constexpr std::chrono::seconds kStragglersEvery{60}, kStragglersAgain{20};

  struct Options {
    Options() { look.pause = std::chrono::milliseconds(500); }

    Find find;
    JobLookOptions look;  // for polls of jobs; its `client` and `filter` are ignored
    std::chrono::milliseconds summary_patience{1500};  // time limit for an endpoint's summary
    std::function<Time()> clock = [] { return std::chrono::steady_clock::now(); };
    // Called with news about a job, for the log; may be null.
    std::function<void(const std::string& line)> log;
    // Called at the end of each round, on its thread. May be null; JobHang::report is then not
    // filled.
    std::function<void(const WatchState& state)> tell;
  };

  explicit Watcher(Options options);

  // Returns the time of the next round: `latest`, or earlier if a stall reaches its threshold.
  Time NextRound(Time latest) const;
  void Round();
  // Polls one job now, or all jobs if the filter is empty.
  JobLook Ask(const JobFilter& filter) const;

  // Returns the state after the last round.
  std::shared_ptr<const WatchState> state() const;

 private:
  struct Endpoint {
    Address address;
    EndpointSummary summary;
    Time heard_at{};      // time of its last answer; the clock's zero: never
    std::string problem;  // why it did not answer in this round; "": it did
    // IDs of the jobs of its processes whose live processes all shared communicators when the
    // endpoint was last polled for snapshots.
    std::set<std::string> connected_jobs;
    // While it is silent: IDs of the jobs of which it served only an earlier attempt.
    std::set<std::string> earlier_jobs;
  };
  // A row of the page: a job. Jobs without an ID are distinguished by their location.
  struct Row {
    JobName name;
    std::string location;  // of a job without an ID: KeyOf its group; else ""
    bool operator<(const Row& other) const {
      return name < other.name || (!(other.name < name) && location < other.location);
    }
  };
  using Group = std::vector<std::size_t>;  // indices of endpoints, ascending
  // When the first and the last of a group's stalls reached their threshold.
  struct StallTimes {
    Time oldest = Time::max();  // max: none has
    Time newest{};
    bool any() const { return oldest != Time::max(); }
  };
  // The polls of a group so far.
  struct PollState {
    Time at{};              // last poll for hangs, set back if the next one shall come sooner
    bool is_retry = false;  // the last poll found no hang; only the first such is repeated soon
    Time stragglers_at{};   // last poll for stragglers
    // The last poll lacked ranks, or found them at endpoints whose summaries are cut.
    bool lacks_ranks = false;
    std::map<Row, JobFindings> findings;
    JobLookMemory memory;
  };

  // True if the last poll found a hang or a usual wait.
  static bool FoundStall(const PollState& polls);
  void FindEndpoints(Time now);
  void AskSummaries();
  bool IsBelieved(const Endpoint& endpoint, Time now) const;
  // Returns when the last of the group's silent endpoints that had reported a stall answered for
  // the last time; the clock's zero if there is none.
  Time SilentSince(const Group& group) const;
  // True if an endpoint that answers reports live processes of the job, which do not take part in its
  // hangs.
  bool RunsElsewhere(const JobFindings& stalled, const Group& group) const;
  // Removes the findings of hangs and expected waits that are over: that no silent endpoint had
  // reported, or whose job runs elsewhere, such as after a restart on other nodes. Sets
  // JobFindings::silent_since_s of the others.
  void KeepSilentStalls(const Group& group, Time now, std::map<Row, JobFindings>* findings) const;
  std::vector<Group> GroupEndpoints(Time now) const;
  // Returns the group's first URL.
  std::string KeyOf(const Group& group) const;
  // `key`: KeyOf the job's group.
  static Row RowOf(const JobName& name, const std::string& key);
  StallTimes StallTimesOf(const Group& group, Time now);
  bool HasLateRank(const Group& group) const;
  // True if the endpoints report that the group's jobs became idle or are no longer idle, or that a
  // part of them can't be seen any longer.
  bool HasHealthChanged(const Group& group, const PollState& last) const;
  void LookWhereDue(const std::vector<Group>& groups, Time now);
  void LookForHangs(const std::vector<std::pair<const Group*, PollState*>>& due, Time now);
  // Adds the silent endpoints that served a job to the answers about it. `live_parts`: how many of
  // the poll's jobs have live processes with a job ID.
  void AddSilent(const Group& silent, Time polled_at, const std::map<std::string, int>& live_parts,
                 JobLook* look);
  // Thread-safe for different groups.
  void Look(const Group& group, bool is_for_stragglers, uint64_t most_bytes, PollState* polls);
  void Publish(const std::vector<Group>& groups, Time began);
  void LogNews(const WatchState& state) const;

  const Options options_;
  FleetClientOptions client_;
  std::vector<Endpoint> endpoints_;
  std::string find_error_ = "no endpoint was looked for yet";
  Time find_at_{};
  std::map<std::string, PollState> polls_;  // by KeyOf
  Time next_due_ = Time::max();             // when the next stall becomes a hang
  mutable std::mutex mutex_;                // guards state_
  std::shared_ptr<const WatchState> state_ = std::make_shared<WatchState>();
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCHER_H_
