// Stragglers: the rank for which the others of a communicator wait, call after call.
//
// A duration on the stream contains the wait for the other ranks, and all ranks time the same calls
// (plugin/tracker/sampler.h). Calls are matched over the ranks by operation, size class and call
// number. The rank with the shortest duration came last; the others waited for it as much longer as
// their durations are. Only operations that no rank can leave before the last one has come are
// compared: AllReduce, AllGather, ReduceScatter, AlltoAll. Launches of several calls are matched by
// the launch's number. They are compared if the counts of all ranks show that each is an exchange
// with all other ranks (exchange.h).
//
//   loss of a call = mean of the others' durations - the shortest duration
//
// The rank that came last has caused the loss. Ranks that came together with it share the loss in
// equal parts.
//
// A launch in a CUDA graph is matched by the graph and the replay's number instead. In each graph
// the first launch with stamps around it is compared. Each rank numbers its own graphs, so they are
// compared only if all ranks have captured and follow the same number of graphs.
//
// The loss is scaled to all calls: one in 2^n is timed. A rank keeps the last 32 timed calls, and
// one call for each of the last 32 seconds (metrics/agreed_call.h): without the latter, endpoints
// that are asked one after the other have no call in common if calls follow each other fast. The
// losses of an interval never exceed the interval: one long wait does not stand for 2^n of its
// kind. A launch in a graph stands for itself in all replays, not for the other launches.
//
// A rank is called a straggler if it costs its peers more than kMinLoss of the time, it came last
// into most late calls of the last half minute, and that is not chance. The calls of one round of
// the job count as one chance (rounds.h): the rank with the longest sequences of a step comes last
// into all calls of the step. So there must be enough rounds: either among these calls, or among
// all calls ever timed, in whose mean the rank is late as well (mean_lateness.h). A call is late if
// ranks waited more than kMinLateNs and more than a part of the mean: ranks wait for a slow rank in
// the first call of a step, and come to the others in any order. A rank is no longer named once it
// has been in time for so many calls and rounds that a slow rank would hardly have been, whatever
// the half minute says. Ranks that are stages of a pipeline are not compared (rank_view.h).
//
// Thread: the server's.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/stragglers/mean_lateness.h"
#include "exporter/diagnosis/stragglers/rounds.h"

namespace nccl_pulse {

// The ranks that are compared, in the order of the view, into which they point.
std::vector<const RankView*> LiveRanks(const CommunicatorView& view);

double SumOfSquares(const std::vector<double>& numbers);

class HostsOfRanks {
 public:
  explicit HostsOfRanks(const std::vector<const RankView*>& ranks);

  std::size_t size() const { return ranks_.size(); }
  // Sums the squares of the hosts' means.
  double SumOfSquares(const std::vector<double>& of_ranks) const;

 private:
  std::vector<std::size_t> host_;  // by rank
  std::vector<double> ranks_;      // how many ranks each host has
};

class StragglerState {
 public:
  // A call that is so much older counts e times less. With a scrape each 5 s, a rank that begins to
  // be late is thus named within 30 s, also in a communicator of two ranks.
  static constexpr double kWindowSeconds = 20;
  // The window is longer, up to this, if it would have fewer calls than one look knows, or few
  // rounds. Otherwise no rank would ever be named there.
  static constexpr double kMostWindowSeconds = 600;
  static constexpr double kRoundsOfWindow = 16;
  // Steps that take longer are rare, and barriers of every hundred steps are not.
  static constexpr double kMostRoundSeconds = 30;
  // A rank is late in the mean of all calls by so many standard errors, over so many rounds.
  static constexpr double kMinErrors = 5;
  // Few degrees of freedom take more: Student's distribution has tails that long.
  static constexpr double kMoreErrors = 8;
  static constexpr double kMinMeanRounds = 10;
  static constexpr double kMinVariance = 0.25;
  // In millions of rounds the least difference between ranks is no chance. So a rank is late in the
  // mean by at least this part of its lateness now.
  static constexpr double kMinPartOfNow = 0.2;
  static constexpr double kMinMatched = 16;
  static constexpr double kMinLate = 8;          // matched calls that are late
  static constexpr double kMinLoss = 0.02;       // seconds per second
  static constexpr uint64_t kMinLateNs = 20000;  // well above the events' own differences
  static constexpr double kMinLateShare = 0.65;
  // It is enough for a rank that is late in the mean far more than any other: the ranks' work may
  // differ from call to call so much that it is not the last in most calls.
  static constexpr double kMinShareOfMean = 0.35;
  // Such a mean has so many rounds: in fewer, one long wait is far more than any other.
  static constexpr double kMinRoundsAlone = 16;
  // Then the squares of the ranks' differences in the mean are at most so many times those of now.
  static constexpr double kMostOfPast = 2;
  // The next rank's lateness in the mean is at most this part of it.
  static constexpr double kMostOfNext = 0.5;
  // One look knows the last 32 calls of a communicator.
  static constexpr double kMostOfOneLook = 32;
  // Where rounds are not known, so many exchanges are treated as one round.
  static constexpr double kExchangesOfRound = 4;
  // With so many rounds known, more of them do not change who is named.
  static constexpr double kEnoughRounds = 32;
  // A late call loses at least this part of the mean loss: ranks differ by less even if none is
  // late.
  static constexpr double kMinPartOfMean = 0.2;
  // No call adds more than so many means to the mean. Otherwise no other call would be late for
  // minutes after one wait of minutes (a checkpoint, a hang that ended).
  static constexpr double kMostMeans = 100;
  // It is over when so many late calls have failed to come, at the rate at which they came before.
  static constexpr double kMissingLate = 8;
  static constexpr std::size_t kMostKinds = 1024;  // a real job has some dozens

  // Counts what is new. The view is of this object's communicator.
  void Update(const CommunicatorView& view, int64_t now_realtime_ns, RoundsOfProcesses* rounds_of);
  // Returns one rank, or all ranks of one host if there are several.
  std::optional<Straggler> Find(const CommunicatorView& view) const;
  // Returns a rank that Find may name after some more calls: the rank, or its host, comes last into
  // most of the few calls that are known.
  std::optional<LateRank> FindPerhaps(const CommunicatorView& view) const;
  std::vector<RankLoss> Losses(const CommunicatorView& view) const;
  // Another rank has caused what the others waited for this rank since the update before.
  void Forgive(int32_t rank);

 private:
  // Operation, size class, way of timing, and the graph if it is a launch in a CUDA graph.
  using Kind = std::tuple<std::string, int, LatencyKind, uint32_t>;
  struct OfKind {
    uint32_t last_call = 0;
    int64_t last_end_ns = 0;
    bool has_last = false;
    uint64_t timed = 0;  // the least of the ranks' numbers of timed calls, at the last match
  };
  struct OfRank {
    double total_seconds = 0;      // ever
    double before_seconds = 0;     // the same at the update before
    double window_seconds = 0;     // as the window counts, like what follows
    double late_calls = 0;         // into which it came last by more than kMinLateNs
    double late_rounds = 0;        // the job's rounds in whose late calls it came last
    double late_seconds = 0;       // what these calls lost, not scaled
    uint64_t matches_at_late = 0;  // matches_ at the last of these calls
    int64_t last_late_end_ns = 0;  // when that one ended
    int64_t init_realtime_ns = 0;
  };

  // Sums over the last calls; older calls count less.
  struct Window {
    double observed = 0;  // seconds
    double matched = 0;   // calls
    double loss = 0;      // seconds, not scaled; no call adds more than kMostMeans
    double late = 0;      // matched calls into which a rank came late
    double square = 0;    // ns²: the waits' squared differences from the mean of their call
    double waits = 0;     // how many waits `square` sums
    double host_square = 0, hosts = 0;  // the same for hosts' means
    double rounds = 0;                  // the job's rounds that have late calls
    void Fade(double fade);
  };
  // One rank's duration of one call.
  struct Entry {
    uint64_t call;  // index of its kind << 32 | call number
    uint32_t rank;  // index into the ranks
    uint64_t duration_ns;
    int64_t end_ns;
  };
  using EntryIterator = std::vector<Entry>::const_iterator;
  struct Seen;
  struct Match;

  // Calls that have not been counted yet, in order.
  std::vector<Entry> NewCalls(const CommunicatorView& view,
                              const std::vector<const RankView*>& ranks, std::vector<Seen>* seen);
  static std::vector<Match> MatchCalls(const std::vector<const RankView*>& ranks,
                                       const HostsOfRanks& hosts, const std::vector<Entry>& entries,
                                       std::vector<Seen>* seen);
  static Match MatchOf(const HostsOfRanks& hosts, EntryIterator first, EntryIterator behind);
  void Weigh(const std::vector<const RankView*>& ranks, std::vector<Seen>* seen);
  // Returns the seconds that passed.
  double Interval(int64_t now_realtime_ns, bool is_new, const std::vector<Match>& matches) const;
  // Adds losses to the window. Returns the factor by which they must shrink to fit the interval.
  double AddLosses(const std::vector<Match>& matches, const std::vector<Seen>& seen,
                   double interval);
  // Adds each loss to the ranks that came last.
  void Attribute(const std::vector<const RankView*>& ranks, const std::vector<Seen>& seen,
                 double shrink, std::vector<Match>* matches);
  double WindowSeconds() const;
  // Says whether a late rank has come in time since.
  bool IsInTimeAgain(const OfRank& of) const;
  std::optional<Straggler> FindHost(const CommunicatorView& view,
                                    const std::vector<const RankView*>& ranks) const;
  // Without a text; nothing if `these`, one of `candidates` with this sum, are not to be named.
  std::optional<Straggler> Judge(const OfRank& of, double candidates, const CommunicatorView& view,
                                 const std::vector<const RankView*>& ranks,
                                 const std::vector<std::size_t>& these) const;
  double Rounds(const CommunicatorView& view) const;
  // Says whether these came last into this share of the late calls by more than chance. `these`:
  // indices of one rank, or of a host's ranks, one of `candidates`. `late_seconds`: theirs in the
  // window.
  bool AreLate(double share, double candidates, const CommunicatorView& view,
               const std::vector<const RankView*>& ranks, const std::vector<std::size_t>& these,
               double late_seconds) const;
  // Says the same for the mean of all calls. `are_alone`: no others may be nearly as late.
  bool AreLateInMean(const MeanLateness& mean, const std::vector<const RankView*>& ranks,
                     const std::vector<std::size_t>& these, double late_seconds,
                     bool are_alone) const;
  // Returns the part of a round that each of these late calls stands for, by when it ended. The
  // calls of one round stand for equal parts of it.
  std::vector<double> PartsOfRounds(std::vector<int64_t> late_ends_ns);

  uint64_t matches_ = 0;           // calls compared so far
  int64_t last_match_end_ns_ = 0;  // when the last compared call ended
  std::map<Kind, OfKind> kinds_;
  std::map<int32_t, OfRank> ranks_;
  int64_t updated_realtime_ns_ = 0;
  Window window_;
  double mean_loss_ = 0;      // seconds for a call, in the last window with enough calls
  uint64_t rounds_ = 0;       // how many the first rank's process has had since its start
  double round_ns_ = 0;       // how long one takes; 0: not known
  int64_t last_late_ns_ = 0;  // when the last late call ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_STRAGGLER_H_
