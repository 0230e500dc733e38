// StragglerState finds stragglers: ranks for which the other ranks of a communicator wait, call
// after call.
//
// A duration on the stream includes the wait for other ranks, and all ranks time the same calls
// (plugin/tracker/sampler.h). Calls are matched between ranks by operation, size class and call
// number. The rank with the shortest duration arrived last, and the others waited for it. Only
// operations that no rank can leave before the last one has arrived are compared: AllReduce,
// AllGather, ReduceScatter, AlltoAll. Launches of several calls are matched by the launch's number,
// if counts show that each launch is an exchange of all ranks (AreLaunchesExchanges).
//
//   loss of a call = mean of the others' durations - the shortest duration
//
// The loss is attributed to the last rank, or in equal parts to ranks that arrived together last.
//
// Launches in CUDA graphs are matched by graph and replay number. In each graph the first launch
// with stamps around it is compared. Each rank numbers its own graphs, so they are compared only if
// all ranks have captured, and follow, the same number of graphs.
//
// A matched call counts for all calls of its kind since the previous match, because one in 2^n is
// timed. The losses of an interval never exceed the interval, because one long wait must not count
// as 2^n waits. A launch in a graph counts for its own replays, not for other launches. A rank
// keeps the last 32 timed calls, and one call for each of the last 32 seconds
// (metrics/agreed_call.h). Without the call of each second, endpoints that are polled one after the
// other would have no common call if calls are frequent.
//
// The waited share is the loss divided by the seconds of the window that have been seen. A first
// poll already sees the last 32 s.
//
// A rank is a straggler if, over the window (20 s to 10 minutes), all of this holds:
//   - its peers wait for it more than kMinLoss of the time;
//   - it arrives last at kMinLateShare of the late calls, or kMinShareOfMean (see there);
//   - chance is ruled out.
//
// Calls of one round of the job count once (rounds.h), because the rank with a step's longest
// sequences arrives last at all calls of the step. Chance is ruled out if the window has enough
// rounds, or else if the rank is also late in the mean of all calls timed since the start
// (mean_lateness.h).
//
// A call is late if its loss exceeds kMinLateNs and kMinPartOfMean of the mean loss. Other calls
// are ignored: a slow rank delays the first call of a step, and the ranks arrive at the other calls
// in any order. Pipeline stages are not compared (rank_view.h).
//
// Several ranks or hosts that are late together or in turn are named if they arrive last at
// kMinLateShare of the late calls, about equally often, and the next one far less often. If the
// other ranks arrive one after the other, no rank is named: ranks that get their work in an order
// are late in that order.
//
// Thread: one at a time.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/stragglers/mean_lateness.h"
#include "exporter/diagnosis/stragglers/rounds.h"

namespace nccl_pulse {

// Returns the ranks to compare, in the order of the view. They point into the view.
std::vector<const RankView*> LiveRanks(const CommunicatorView& view);

// The ranks of each host, or each rank alone.
class RankGroups {
 public:
  RankGroups(const std::vector<const RankView*>& ranks, bool by_host);

  std::size_t size() const { return ranks_.size(); }
  std::size_t Of(std::size_t rank) const { return group_[rank]; }
  // Returns the groups' means.
  std::vector<double> Means(const std::vector<double>& of_ranks) const;
  // Returns the mean square of the groups' means.
  double SquareOf(const std::vector<double>& of_ranks) const;

 private:
  std::vector<std::size_t> group_;  // by rank
  std::vector<double> ranks_;       // number of ranks per group
};

class StragglerState {
 public:
  // Time constant: a call that is this much older counts 1/e as much. With a scrape every 5 s, a
  // newly slow rank is named within 30 s, even in a communicator of two ranks.
  static constexpr double kWindowSeconds = 20;
  // The window is extended up to this if it has few rounds, or fewer calls than a poll returns.
  // Otherwise no rank would ever be named in such jobs.
  static constexpr double kMostWindowSeconds = 600;
  static constexpr double kRoundsOfWindow = 16;
  // Longest round. Longer steps are rare, but barriers once in a hundred steps are common.
  static constexpr double kMostRoundSeconds = 30;
  // Least lateness in the mean of all calls, in standard errors.
  static constexpr double kMinErrors = 5;
  // More is required with few degrees of freedom, because of the long tails of Student's
  // distribution.
  static constexpr double kMoreErrors = 8;
  static constexpr double kMinMeanRounds = 10;
  // Limits of the variance: as a part of the mean's square, and as a multiple of the deviation in
  // the few rounds of the window.
  static constexpr double kMinVariance = 0.25, kMostVariance = 2;
  // Over millions of rounds any difference between ranks is significant. So the lateness in the
  // mean must be at least this part of the present lateness.
  static constexpr double kMinPartOfNow = 0.2;
  static constexpr double kMinMatched = 16;      // calls that were matched between ranks
  static constexpr double kMinLate = 8;          // late matched calls
  static constexpr double kMinLoss = 0.02;       // seconds per second
  static constexpr uint64_t kMinLateNs = 20000;  // well above the events' own differences
  static constexpr double kMinLateShare = 0.65;
  // Share of late calls that suffices for a rank that is far later in the mean than any other: if
  // work varies from call to call, it may not be the last in most calls.
  static constexpr double kMinShareOfMean = 0.35;
  // Least number of rounds for that mean: in fewer rounds, one long wait would dominate.
  static constexpr double kMinRoundsAlone = 16;
  // That rank is not named if the ranks' spread (mean square) in the mean of all calls exceeds this
  // multiple of their spread in the window: the mean then consists of long waits in the past.
  static constexpr double kMostOfPast = 2;
  // The next latest rank is at most this much as late: in the mean, or in late rounds if several
  // ranks are late by turns.
  static constexpr double kMostOfNext = 0.5;
  // Least part of an equal share of the late calls, for each of several stragglers.
  static constexpr double kMinPartOfTurns = 0.5;
  static constexpr std::size_t kMostTogether = 8;  // stragglers that are late by turns
  // Largest difference between the other ranks' waits, as a part of their median wait. If they
  // differ more, ranks arrive one after the other, and no rank is named.
  static constexpr double kMostOfOrder = 0.4;
  // Limit of a communicator's timed calls in one poll.
  static constexpr double kMostOfOneLook = 32;
  // Exchanges treated as one round if rounds are not known.
  static constexpr double kExchangesOfRound = 4;
  // More rounds than this do not change the result.
  static constexpr double kEnoughRounds = 32;
  // Least loss of a late call, as a part of the mean loss: healthy ranks differ by less.
  static constexpr double kMinPartOfMean = 0.2;
  // Limit of a call's contribution to the mean, in means. Otherwise, after one wait of minutes (a
  // checkpoint, an ended hang), no call would count as late for minutes.
  static constexpr double kMostMeans = 100;
  static constexpr std::size_t kMostKinds = 1024;  // a real job has some dozens

  // Counts new calls. `view`: of this object's communicator.
  void Update(const CommunicatorView& view, int64_t now_realtime_ns, RoundsOfProcesses* rounds_of);
  // Returns the straggler: one rank, all ranks of one host, or several that are late by turns.
  std::optional<Straggler> Find(const CommunicatorView& view) const;
  // Returns a rank that Find may name after more calls: the rank, or its host, arrives last at most
  // of the few known calls.
  std::optional<LateRank> FindPerhaps(const CommunicatorView& view) const;
  // Returns what share of the window the ranks wait for each other; 0: too few calls are known.
  double WaitedShare() const;
  // Returns how much of the window has been seen, in whole seconds: at least one.
  int64_t SeenSeconds() const;
  std::vector<RankLoss> Losses(const CommunicatorView& view) const;
  // Removes the rank's losses since the previous update, because another rank has caused them.
  void Forgive(int32_t rank);

 private:
  // Calls of one operation, size class, way of timing and, in a CUDA graph, graph.
  struct OfKind {
    TimedCallSnapshot call;  // one of them
    uint32_t last_call = 0;
    int64_t last_end_ns = 0;
    bool has_last = false;
  };
  // How late a rank, or several as if they were one, arrived in the window.
  struct Lateness {
    double seconds = 0;       // lost by the others
    double late_calls = 0;    // late calls at which it arrived last
    double late_rounds = 0;   // rounds of the job in which it arrived last at a late call
    double late_seconds = 0;  // loss of the matched ones of these calls

    void Add(const Lateness& other);
  };
  struct OfRank {
    Lateness lateness;
    double total_seconds = 0;   // lost by the others since this object was made
    double before_seconds = 0;  // `total_seconds` at the previous update
    // Seconds lost in each second (Unix time) of the window.
    std::map<int64_t, double> lost_in{};
    double waited = 0;  // ns in matched calls, each capped as in the mean loss
    int64_t init_realtime_ns = 0;
  };

  // Sums over recent calls; older calls count less.
  struct Window {
    double observed = 0;  // seconds that have been seen
    double matched = 0;   // calls matched between ranks
    double loss = 0;      // seconds, of matched calls alone; no call adds more than kMostMeans
    double late = 0;      // matched calls at which a rank arrived late
    double square = 0;    // ns²: the waits' squared differences from the mean of their call
    double waits = 0;     // number of waits in `square`
    double host_square = 0, hosts = 0;  // as `square` and `waits`, for the means of hosts
    double rounds = 0;                  // the job's rounds that have late calls
    void Fade(double fade);
  };
  // One rank's duration of one call.
  struct Entry {
    uint64_t duration_ns;
    int64_t end_ns;
  };
  using EntryIterator = std::vector<Entry>::const_iterator;
  struct CommonCalls {
    std::vector<uint64_t> calls;  // index of the kind << 32 | call number, in order
    std::vector<Entry> entries;   // of each call, one for each rank in their order
  };
  struct Match;
  class Namer;  // decides which rank or host is named, from these sums

  // Returns the calls that have not been counted yet and that each rank reports once.
  CommonCalls NewCalls(const CommunicatorView& view, const std::vector<const RankView*>& ranks);
  static Match MatchOf(const RankGroups& hosts, uint64_t call, EntryIterator first,
                       EntryIterator behind);
  // Sets the number of calls that each match represents, and the duration of a round.
  void Weigh(const CommunicatorSnapshot& communicator, std::vector<Match>* matches);
  // Adds losses to the window. Returns the factor by which they must shrink to fit the interval.
  double AddLosses(const std::vector<OfRank*>& ranks, const std::vector<Match>& matches,
                   double interval);
  // Adds each loss to the ranks that arrived last.
  void Attribute(const std::vector<OfRank*>& ranks, double shrink, int64_t now_realtime_ns,
                 std::vector<Match>* matches);
  // Adds a loss to the seconds of the window between two times.
  void AddLost(int64_t from_ns, int64_t until_ns, double seconds, OfRank* of) const;
  // Returns `seconds` as a share of the window, at most 1: a call may have begun before it.
  double ShareOfWindow(double seconds) const;
  // Returns the share of the window that the ranks lost to each other.
  double LostShare() const;
  // Returns the seconds from the window's begin to the last update.
  double SecondsOfWindow() const;
  double WindowSeconds(double observed, double matched) const;
  double Rounds(const CommunicatorView& view) const;
  // Returns the weight of each late call, in rounds: calls that end in the same round share its
  // weight of 1 equally.
  std::vector<double> PartsOfRounds(std::vector<int64_t> late_ends_ns);

  std::vector<OfKind> kinds_;
  std::map<int32_t, OfRank> ranks_;
  int64_t updated_realtime_ns_ = 0;
  Window window_;
  int64_t window_begin_ns_ = 0;  // Unix time from which losses count
  double window_length_ = 0;     // seconds
  double mean_loss_ = 0;         // seconds for a call, in the last window with enough calls
  uint64_t rounds_ = 0;          // of the first rank's process, since its start
  double round_ns_ = 0;          // duration of a round; 0: not known
  int64_t last_late_ns_ = 0;     // when the last late call ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_
