// Stragglers: the rank for which the others of a communicator wait, call after call.
//
// A duration on the stream contains the waiting for the other ranks, and all ranks time the same
// calls (plugin/tracker/sampler.h). So of one call, matched over the ranks by (operation, size
// class, call number), the rank with the shortest duration came last, and the others waited for it
// as much longer as theirs are. Only operations that no rank can leave before the last one has come
// are compared: AllReduce, AllGather, ReduceScatter, AlltoAll. Launches of several calls have the
// number of the launch: they are compared where each is an exchange with all other ranks, by the
// counts of all of them (exchange.h).
//
//   loss of a call = mean of the others' durations - the shortest duration
//
// The loss goes to the rank that came last, and in equal parts to those that came together with it.
//
// A launch in a CUDA graph is matched by the graph and the replay's number instead: of each graph
// the same launch is compared, the first that has stamps around it. Each rank numbers its own graphs,
// so only where all ranks have captured and follow as many.
//
// Scaled to all calls: one in 2^n is timed, and of those a rank keeps the last 32, and one of each of
// the last 32 seconds (metrics/agreed_call.h). Without these, endpoints that are asked one after the
// other know no call in common where calls follow each other fast. The sum of an interval never
// exceeds the interval: one long wait does not stand for 2^n of its kind. A launch in a graph stands
// for itself in all replays, not for the other launches.
//
// A rank is called a straggler when it costs its peers more than kMinLoss of the time, and of the
// matched calls of the last half minute or so into which somebody came late it came last into most,
// and that is not chance. To chance the calls of one round of the job are one (rounds.h): who has the
// longest sequences of a step comes last into all of its calls. So either the rounds of these calls
// are enough, or those of all calls ever timed, in whose mean it is late, too (mean_lateness.h). Late
// is what is waited for more than kMinLateNs and more than a part of the mean: of a step's calls
// ranks wait for a slow one in the first, and come to the others in any order. Who has been in time for so many calls
// and rounds since that it would hardly be if it still were slow is named no more, whatever the half minute says. Not among ranks that are stages of a pipeline (rank_view.h).
//
// Thread: the server's.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLER_H_
#define EXPORTER_DIAGNOSIS_STRAGGLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/mean_lateness.h"
#include "exporter/diagnosis/rank_view.h"
#include "exporter/diagnosis/rounds.h"

namespace nccl_pulse {

// The ranks that are compared, in the order of the view, into which they point.
std::vector<const RankView*> LiveRanks(const CommunicatorView& view);

double SumOfSquares(const std::vector<double>& numbers);

class HostsOfRanks {
 public:
  explicit HostsOfRanks(const std::vector<const RankView*>& ranks);

  std::size_t size() const { return ranks_.size(); }
  // Of the mean of each host's ranks.
  double SumOfSquares(const std::vector<double>& of_ranks) const;

 private:
  std::vector<std::size_t> host_;  // of each rank
  std::vector<double> ranks_;      // of each host, how many
};

class StragglerState {
 public:
  // What is older counts e times less. Short enough that at a scrape of 5 s a rank that begins to
  // be late is named within 30 s, however long it was not, and of two ranks, too.
  static constexpr double kWindowSeconds = 20;
  // Where calls are so seldom that these are fewer than one look knows, or rounds so long that they
  // are few: as long as it takes, up to this. Otherwise nobody would ever be named there.
  static constexpr double kMostWindowSeconds = 600;
  static constexpr double kRoundsOfWindow = 16;
  // Steps that take longer are rare, and barriers of every hundred steps are not.
  static constexpr double kMostRoundSeconds = 30;
  // Standard errors by which one is late in the mean of all calls, and how many rounds these take.
  static constexpr double kMinErrors = 5;
  // Of few degrees of freedom more: Student's distribution has tails that long.
  static constexpr double kMoreErrors = 8;
  static constexpr double kMinMeanRounds = 10;
  static constexpr double kMinVariance = 0.25;
  // Of what it is late now: in millions of rounds the least difference between ranks is no chance.
  static constexpr double kMinPartOfNow = 0.2;
  static constexpr double kMinMatched = 16;
  static constexpr double kMinLate = 8;          // of these
  static constexpr double kMinLoss = 0.02;       // seconds per second
  static constexpr uint64_t kMinLateNs = 20000;  // well above the events' own differences
  static constexpr double kMinLateShare = 0.65;
  // Of who is late in the mean, and nobody else nearly as much: what each has to do may differ from
  // call to call so much that it is not the last in most of them.
  static constexpr double kMinShareOfMean = 0.35;
  // Then what ranks differ by in the mean is no more than so many times what they differ by now; of
  // squares.
  static constexpr double kMostOfPast = 2;
  // Of its lateness in the mean, how much that of the next one is at most.
  static constexpr double kMostOfNext = 0.5;
  // One look knows the last 32 calls of a communicator.
  static constexpr double kMostOfOneLook = 32;
  // Where rounds are not known, exchanges are taken for so many each.
  static constexpr double kExchangesOfRound = 4;
  // With so many rounds known, more of them do not change who is named.
  static constexpr double kEnoughRounds = 32;
  // Of the mean loss of a call: what is less is how ranks come when nobody is waited for.
  static constexpr double kMinPartOfMean = 0.2;
  // In the mean no call counts for more means than this: after one wait of minutes (a checkpoint, a
  // hang that went on) nothing else would be late for as long.
  static constexpr double kMostMeans = 100;
  // It is over when so many late calls have failed to come, at the rate at which they came before.
  static constexpr double kMissingLate = 8;
  static constexpr std::size_t kMostKinds = 1024;  // a real job has some dozens

  // Counts what is new. The view is of this object's communicator.
  void Update(const CommunicatorView& view, int64_t now_realtime_ns, RoundsOfProcesses* rounds_of);
  // One rank, or else all ranks of one of several hosts (straggler_host.cc).
  std::optional<Straggler> Find(const CommunicatorView& view) const;
  // Whom Find does not name and may by some more calls: it, or its host, comes last into most of
  // those that are known, and they are few.
  std::optional<LateRank> FindPerhaps(const CommunicatorView& view) const;
  std::vector<RankLoss> Losses(const CommunicatorView& view) const;
  // What the others waited for this rank since the update before is another one's doing.
  void Forgive(int32_t rank);

 private:
  // Operation, size class, how timed, and of a launch in a CUDA graph which graph.
  using Kind = std::tuple<std::string, int, LatencyKind, uint32_t>;
  struct OfKind {
    uint32_t last_call = 0;
    int64_t last_end_ns = 0;
    bool has_last = false;
    uint64_t timed = 0;  // by the rank that times fewest, at the last update with a match
  };
  struct OfRank {
    double total_seconds = 0;      // ever
    double before_seconds = 0;     // the same at the update before
    double window_seconds = 0;     // as the window counts, like what follows
    double late_calls = 0;         // into which it came last by more than kMinLateNs
    double late_rounds = 0;        // of the job, in whose late calls it came last
    double late_seconds = 0;       // not scaled, of those
    uint64_t matches_at_late = 0;  // matches_ at the last of them
    int64_t last_late_end_ns = 0;  // when that one ended
    int64_t init_realtime_ns = 0;
  };

  // What was seen of late: what is older counts less.
  struct Window {
    double observed = 0;  // seconds
    double matched = 0;   // calls
    double loss = 0;      // seconds, not scaled, of these; none more than kMostMeans
    double late = 0;      // of these, calls into which somebody came late
    double square = 0;    // ns², of what ranks waited more or less than the mean of a call
    double waits = 0;     // how many these are
    double host_square = 0, hosts = 0;  // the same of hosts' means
    double rounds = 0;                  // of the job in which late calls were
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
  // Seconds that passed.
  double Interval(int64_t now_realtime_ns, bool is_new, const std::vector<Match>& matches) const;
  // Into the window. By how much they must shrink to fit into the interval.
  double AddLosses(const std::vector<Match>& matches, const std::vector<Seen>& seen,
                   double interval);
  // To those that came last.
  void Attribute(const std::vector<const RankView*>& ranks, const std::vector<Seen>& seen,
                 double shrink, std::vector<Match>* matches);
  double WindowSeconds() const;
  // Whether it was late, and comes in time by now.
  bool IsInTimeAgain(const OfRank& of) const;
  std::optional<Straggler> FindHost(const CommunicatorView& view,
                                    const std::vector<const RankView*>& ranks) const;
  double Rounds(const CommunicatorView& view) const;
  // Whether who came last into this share of the late calls did so not by chance; indices into the
  // ranks: one, or a host's, one of `candidates`. `late_seconds`: of the window's.
  bool AreLate(double share, double candidates, const CommunicatorView& view,
               const std::vector<const RankView*>& ranks, const std::vector<std::size_t>& these,
               double late_seconds) const;
  // The same of the mean of all calls. `are_alone`: and no others are nearly as late.
  bool AreLateInMean(const MeanLateness& mean, const std::vector<const RankView*>& ranks,
                     const std::vector<std::size_t>& these, double late_seconds,
                     bool are_alone) const;
  // Of each of these late calls, by when it ended, what part of a round it stands for. Those of a
  // round stand for equal parts of it.
  std::vector<double> PartsOfRounds(std::vector<int64_t> late_ends_ns);

  uint64_t matches_ = 0;           // calls compared so far
  int64_t last_match_end_ns_ = 0;  // when the last of them ended
  std::map<Kind, OfKind> kinds_;
  std::map<int32_t, OfRank> ranks_;
  int64_t updated_realtime_ns_ = 0;
  Window window_;
  double mean_loss_ = 0;      // of the last window with enough calls, seconds
  uint64_t rounds_ = 0;       // of the process with the first rank, since its start
  double round_ns_ = 0;       // how long one takes; 0: not known
  int64_t last_late_ns_ = 0;  // when the last late call ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLER_H_
