// Watches all jobs: asks every endpoint for its summary in each round, and where something stands
// or somebody is late, the endpoints of that job for their snapshots, over which the engine of
// `pulse diagnose` runs. Who has to be asked together follows from the summaries: endpoints that
// share communicators or the id of a job.
//
// What makes no progress is looked at the moment its time is over, which is known before, and then
// again in kLookAgain, or later the longer it stands. Every job is looked at for stragglers now and
// then, one in a round, since a node with one rank of each communicator cannot know who is late.
//
// A hang whose endpoints all fall silent stays, until one of them answers or is forgotten.
//
// It remembers only what spares a look or bridges a lost answer: another watcher, or this one after
// a restart, says the same. An endpoint that does not answer is believed for kBelieved what it said
// last, in a hang for longer (exporter/diagnosis/facts/last_heard.h), and a verdict of fewer endpoints does not replace a fresh one of more on the same job. Only a
// new hang is reported at once.
//
// Thread: one calls Round and Ask, which block; state() any. Memory: a summary of each endpoint,
// and while it looks what exporter/fleet/job_look.h says.
#ifndef EXPORTER_WATCH_WATCHER_H_
#define EXPORTER_WATCH_WATCHER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
  // Where the endpoints are, and how to ask them. False, with the reason in `error`.
  using Find = std::function<bool(std::vector<Address>* endpoints, FleetClientOptions* client,
                                  std::string* error)>;

  static constexpr std::chrono::seconds kFindEvery{10};
  static constexpr std::chrono::seconds kBelieved{15};
  static constexpr std::chrono::seconds kLookAgain{10}, kLookAgainAtMost{60};
  static constexpr std::chrono::seconds kStragglersEvery{60}, kStragglersAgain{20};

  struct Options {
    Options() { look.pause = std::chrono::milliseconds(500); }

    Find find;
    JobLookOptions look;  // but for the client and the filter
    std::chrono::milliseconds summary_patience{1500};
    std::function<Time()> clock = [] { return std::chrono::steady_clock::now(); };
    // Called with what is new about a job, for the log; may be null.
    std::function<void(const std::string& line)> log;
    // Called at the end of each round, on its thread; may be null. Hangs have their JSON only with
    // it.
    std::function<void(const WatchState& state)> tell;
  };

  explicit Watcher(Options options);

  // Returns when something has to be looked at, at most `latest`.
  Time NextRound(Time latest) const;
  void Round();
  // A look at one job, at once; with everything that its endpoints know where the filter is empty.
  JobLook Ask(const JobFilter& filter) const;

  std::shared_ptr<const WatchState> state() const;

 private:
  struct Endpoint {
    Address address;
    EndpointSummary summary;
    Time heard_at{};      // when it answered last; the clock's zero: never
    std::string problem;  // why it did not answer in this round
  };
  // A row of the page. Jobs that nobody has named are told apart by where they are.
  struct Row {
    JobName name;
    std::string place;  // of a job without an id
    bool operator<(const Row& other) const {
      return name < other.name || (!(other.name < name) && place < other.place);
    }
  };
  using Group = std::vector<std::size_t>;  // of endpoints, in their order
  // It tells what stands in a group by now for as long as it takes to be called a hang.
  struct Standing {
    Time oldest = Time::max();  // since when for as long; max: nothing does
    Time newest{};
    bool any() const { return oldest != Time::max(); }
  };
  struct Looked {
    Time at{};  // for hangs
    bool is_retry = false;
    Time stragglers_at{};
    std::map<Row, JobFindings> findings;
    LastHeard last_heard;
  };

  // A hang or a usual wait was found.
  static bool HasStood(const Looked& looked);
  void FindEndpoints(Time now);
  void AskSummaries();
  bool IsBelieved(const Endpoint& endpoint, Time now) const;
  // Returns when the last silent endpoint of the group with something that stood was heard; the clock's
  // zero: there is none.
  Time SilentSince(const Group& group) const;
  std::vector<Group> GroupEndpoints(Time now) const;
  std::string KeyOf(const Group& group) const;
  Row RowOf(const std::string& job_id, const std::string& workload, const Group& group) const;
  Standing StandingOf(const Group& group, Time now);
  bool IsSomebodyLate(const Group& group) const;
  // True if the endpoints say of the group's jobs that they are idle, or no longer, or that something of
  // them can't be seen any more.
  bool HasHealthChanged(const Group& group, const Looked& last) const;
  void LookWhereDue(const std::vector<Group>& groups, Time now);
  void LookForHangs(const std::vector<std::pair<const Group*, Looked*>>& due, Time now);
  void Look(const Group& group, bool is_for_stragglers, uint64_t most_bytes, Looked* looked) const;
  void Publish(const std::vector<Group>& groups, Time began);
  void LogNews(const WatchState& state) const;

  const Options options_;
  FleetClientOptions client_;
  std::vector<Endpoint> endpoints_;
  std::string find_error_ = "no endpoint was looked for yet";
  Time find_at_{};
  std::map<std::string, Looked> looked_;  // by KeyOf
  Time next_due_ = Time::max();           // when something will have stood for long enough
  mutable std::mutex mutex_;              // of the pointer
  std::shared_ptr<const WatchState> state_ = std::make_shared<WatchState>();
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCHER_H_
