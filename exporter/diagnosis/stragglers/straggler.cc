#include "exporter/diagnosis/stragglers/straggler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/stragglers/rounds.h"

namespace nccl_pulse {
namespace {

constexpr double kSecond = 1e9;
constexpr int64_t kSecondNs = 1000000000;
// Limit of a loss, well within an int64_t: a hostile endpoint may report any duration.
constexpr double kMostNs = 1e18;
// A time may differ by as much between two answers of an endpoint whose clock is wrong.
constexpr int64_t kMostApartNs = 5 * kSecondNs;
// Ranks arrived together with the last rank if they arrived at most this part of the others' wait
// before it. Ranks that have waited for each other in another communicator arrive together.
constexpr double kTogether = 0.1;

double SumOfSquares(const std::vector<double>& numbers) {
  return std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0);
}

// 0: not known.
double CallsOfRound(const CommunicatorSnapshot& communicator, const TimedCallSnapshot& kind,
                    uint64_t rounds) {
  if (kind.kind == LatencyKind::kDurationGraph) return 1;  // calls are numbered by replays
  const uint64_t calls = CallsOfKind(communicator, kind);
  if (rounds == 0 || calls == 0) return 0;
  return std::max(1.0, static_cast<double>(calls) / static_cast<double>(rounds));
}

// Returns -1 where calls are numbered across sizes: ranks may have parts of different sizes in an
// exchange, and kernel timing numbers all calls of an operation.
int ComparedClass(const TimedCallSnapshot& call) {
  const bool is_across = IsGrouped(call.op) || call.kind == LatencyKind::kDurationKernel;
  return is_across ? -1 : call.size_class;
}

}  // namespace

std::vector<const RankView*> LiveRanks(const CommunicatorView& view) {
  std::vector<const RankView*> live;
  for (const RankView& rank : view.ranks) {
    if (rank.state == RankView::State::kLive) live.push_back(&rank);
  }
  return live;
}

RankGroups::RankGroups(const std::vector<const RankView*>& ranks, bool by_host) {
  std::map<std::string_view, std::size_t> indices;
  for (const RankView* rank : ranks) {
    const std::size_t next = size();
    group_.push_back(by_host ? indices.try_emplace(rank->process->hostname, next).first->second
                             : next);
    if (group_.back() == next) ranks_.push_back(0);
    ++ranks_[group_.back()];
  }
}

std::vector<double> RankGroups::Means(const std::vector<double>& of_ranks) const {
  std::vector<double> means(size());
  for (std::size_t i = 0; i < group_.size(); ++i) {
    means[group_[i]] += of_ranks[i] / ranks_[group_[i]];
  }
  return means;
}

double RankGroups::SquareOf(const std::vector<double>& of_ranks) const {
  return SumOfSquares(Means(of_ranks)) / static_cast<double>(size());
}

// A call that all ranks have timed.
struct StragglerState::Match {
  uint64_t call;                  // as in CommonCalls
  EntryIterator first, behind;    // of each rank
  std::vector<std::size_t> last;  // indices of the ranks that came last, together
  double loss;                    // seconds
  double square, host_square;     // ns², see Window
  int64_t end_ns, first_end_ns, last_end_ns;
  double calls = 0;     // number of calls that it represents: all since the previous match ...
  int64_t from_ns = 0;  // ... which ended at this time

  std::size_t kind() const { return call >> 32; }
  uint32_t number() const { return static_cast<uint32_t>(call); }
};

void StragglerState::Window::Fade(double fade) {
  for (double* each :
       {&observed, &matched, &loss, &late, &square, &waits, &host_square, &hosts, &rounds}) {
    *each *= fade;
  }
}

void StragglerState::Lateness::Add(const Lateness& other) {
  seconds += other.seconds;
  late_calls += other.late_calls;
  late_rounds += other.late_rounds;
  late_seconds += other.late_seconds;
}

void StragglerState::Update(const CommunicatorView& view, int64_t now_realtime_ns,
                            RoundsOfProcesses* rounds_of) {
  const std::vector<const RankView*> ranks = LiveRanks(view);
  // With a single rank, no wait is seen here.
  if (ranks.size() < 2) return;
  bool is_new = updated_realtime_ns_ == 0;
  std::vector<OfRank*> of_ranks;
  for (const RankView* rank : ranks) {
    const auto [at, inserted] = ranks_.try_emplace(rank->rank());
    of_ranks.push_back(&at->second);
    const int64_t init_ns = rank->communicator->init_realtime_ns;
    const int64_t apart_ns = ElapsedNs(init_ns, at->second.init_realtime_ns);
    is_new |= !inserted && (apart_ns > kMostApartNs || apart_ns < -kMostApartNs);
    at->second.init_realtime_ns = init_ns;
  }
  // The communicator was created again with the same ID, so calls are numbered from 0.
  if (is_new) {
    kinds_.clear();
    last_late_ns_ = 0;
  }
  const CommonCalls common = NewCalls(view, ranks);
  const RankGroups hosts(ranks, /*by_host=*/true);
  std::vector<Match> matches;
  auto first = common.entries.begin();
  for (const uint64_t call : common.calls) {
    const auto behind = first + static_cast<std::ptrdiff_t>(ranks.size());
    matches.push_back(MatchOf(hosts, call, first, behind));
    first = behind;
  }
  if (!matches.empty()) rounds_ = rounds_of->Of(*ranks.front()->process);
  Weigh(*ranks.front()->communicator, &matches);
  int64_t first_ns = now_realtime_ns;
  int64_t last_ns = 0;
  for (const Match& match : matches) {
    first_ns = std::min(first_ns, match.first_end_ns);
    last_ns = std::max(last_ns, match.last_end_ns);
  }
  // At the first update the calls themselves show how much time they cover.
  const int64_t passed_ns =
      is_new ? ElapsedNs(last_ns, first_ns) : ElapsedNs(now_realtime_ns, updated_realtime_ns_);
  const double interval = std::clamp(static_cast<double>(passed_ns) / kSecond, 0.0, 3600.0);
  if (ElapsedNs(updated_realtime_ns_, now_realtime_ns) > kSecondNs) {  // the clock was set back
    window_begin_ns_ = now_realtime_ns;
    last_late_ns_ = 0;
    for (auto& [rank, of] : ranks_) of.lost_in.clear();
  }
  if (updated_realtime_ns_ == 0) window_begin_ns_ = first_ns;
  updated_realtime_ns_ = now_realtime_ns;
  window_length_ = is_new ? WindowSeconds(interval, static_cast<double>(matches.size()))
                          : WindowSeconds(window_.observed, window_.matched);
  const int64_t length_ns = static_cast<int64_t>(window_length_) * kSecondNs;
  window_begin_ns_ =
      std::max(window_begin_ns_, (now_realtime_ns - length_ns) / kSecondNs * kSecondNs);
  const double fade = std::exp(-interval / window_length_);
  window_.Fade(fade);
  window_.observed += interval;
  window_.matched += static_cast<double>(matches.size());
  window_.waits += static_cast<double>(matches.size() * ranks.size());
  window_.hosts += static_cast<double>(matches.size() * hosts.size());
  for (auto& [rank, of] : ranks_) {
    of.before_seconds = of.total_seconds;
    Lateness& late = of.lateness;
    for (double* each : {&late.late_calls, &late.late_rounds, &late.late_seconds, &of.waited}) {
      *each *= fade;
    }
  }
  const double shrink = AddLosses(of_ranks, matches, interval);
  Attribute(of_ranks, shrink, now_realtime_ns, &matches);
}

StragglerState::CommonCalls StragglerState::NewCalls(const CommunicatorView& view,
                                                     const std::vector<const RankView*>& ranks) {
  if (kinds_.size() >= kMostKinds) kinds_.clear();
  const bool captured_alike = AreCapturedAlike(ranks);
  const bool are_exchanges = view.is_exchange && AreLaunchesExchanges(view);
  constexpr uint64_t kNotCompared = UINT64_MAX;
  // Returns the call as in CommonCalls, or kNotCompared.
  const auto key_of = [&](const TimedCallSnapshot& call) {
    const bool is_duration = call.kind == LatencyKind::kDurationStream ||
                             call.kind == LatencyKind::kDurationKernel ||
                             call.kind == LatencyKind::kDurationGraph;
    // Launches of several calls ("Grouped") are comparable only if each is an exchange.
    if (!is_duration || !(WaitsForAll(call.op) || (are_exchanges && IsGrouped(call.op)))) {
      return kNotCompared;
    }
    if (call.kind == LatencyKind::kDurationGraph && !captured_alike) return kNotCompared;
    const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&call](const OfKind& each) {
      return each.call.kind == call.kind && each.call.graph == call.graph &&
             each.call.op == call.op && ComparedClass(each.call) == ComparedClass(call);
    });
    const auto kind = static_cast<std::size_t>(found - kinds_.begin());
    if (kind == kMostKinds) return kNotCompared;
    if (found == kinds_.end()) kinds_.push_back({call});
    const auto number = static_cast<uint32_t>(call.call_number);
    const OfKind& of = kinds_[kind];
    // By difference: call numbers have 32 bits and wrap around.
    if (of.has_last && static_cast<int32_t>(number - of.last_call) <= 0) return kNotCompared;
    return uint64_t{kind} << 32 | number;
  };
  const auto for_each_call = [&ranks](const auto& visit) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const CommunicatorSnapshot& communicator = *ranks[i]->communicator;
      for (const auto* calls : {&communicator.timed_calls, &communicator.picked_calls}) {
        for (const TimedCallSnapshot& call : *calls) visit(i, call);
      }
    }
  };
  std::size_t count = 0;
  for_each_call([&](std::size_t /*rank*/, const auto& /*call*/) { ++count; });
  std::vector<uint64_t> keys;  // of the calls of all ranks, in their order
  keys.reserve(count);
  // The calls of the first rank, in order, each with the number of ranks, from the first on, that
  // report it once.
  std::vector<std::pair<uint64_t, std::size_t>> first;
  for_each_call([&](std::size_t rank, const TimedCallSnapshot& call) {
    keys.push_back(key_of(call));
    if (rank == 0 && keys.back() != kNotCompared) first.emplace_back(keys.back(), 0);
  });
  std::sort(first.begin(), first.end());
  first.erase(std::unique(first.begin(), first.end()), first.end());
  const auto find = [&first](uint64_t key) -> std::size_t* {
    const auto at = std::lower_bound(first.begin(), first.end(), std::pair(key, std::size_t{0}));
    return at != first.end() && at->first == key ? &at->second : nullptr;
  };
  auto key = keys.begin();
  for_each_call([&](std::size_t rank, const auto& /*call*/) {
    std::size_t* const reported = find(*key++);
    if (reported == nullptr) return;
    if (*reported == rank + 1) *reported = SIZE_MAX;  // the rank reports it twice
    if (*reported == rank) ++*reported;
  });
  CommonCalls common;
  for (auto& [call, reported] : first) {
    const bool is_common = reported == ranks.size();
    reported = is_common ? common.calls.size() : SIZE_MAX;  // from here on its place
    if (is_common) common.calls.push_back(call);
  }
  common.entries.resize(common.calls.size() * ranks.size());
  key = keys.begin();
  for_each_call([&](std::size_t rank, const TimedCallSnapshot& call) {
    const std::size_t* const place = find(*key++);
    if (place == nullptr || *place == SIZE_MAX) return;
    common.entries[*place * ranks.size() + rank] = {call.duration_ns, call.end_realtime_ns};
  });
  return common;
}

StragglerState::Match StragglerState::MatchOf(const RankGroups& hosts, uint64_t call,
                                              EntryIterator first, EntryIterator behind) {
  const auto count = static_cast<double>(behind - first);
  const uint64_t shortest_ns = std::min_element(first, behind, [](const Entry& a, const Entry& b) {
                                 return a.duration_ns < b.duration_ns;
                               })->duration_ns;
  const auto longer_ns = [shortest_ns](const Entry& each) {
    return static_cast<double>(each.duration_ns - shortest_ns);
  };
  double sum = 0;
  int64_t first_end_ns = INT64_MAX;
  int64_t last_end_ns = 0;
  for (auto each = first; each != behind; ++each) {
    sum += longer_ns(*each);
    first_end_ns = std::min(first_end_ns, each->end_ns);
    last_end_ns = std::max(last_end_ns, each->end_ns);
  }
  const double loss_ns = sum / (count - 1);
  std::vector<double> of_ranks;
  of_ranks.reserve(static_cast<std::size_t>(behind - first));
  std::vector<std::size_t> last;
  for (auto each = first; each != behind; ++each) {
    of_ranks.push_back(longer_ns(*each) - sum / count);
    if (longer_ns(*each) <= kTogether * loss_ns)
      last.push_back(static_cast<std::size_t>(each - first));
  }
  return {call,
          first,
          behind,
          std::move(last),
          loss_ns / kSecond,
          SumOfSquares(of_ranks),
          SumOfSquares(hosts.Means(of_ranks)),
          first->end_ns,
          first_end_ns,
          last_end_ns};
}

// Sets the weight of each match: it also represents the calls before it that were not timed, or
// that the ring has lost.
void StragglerState::Weigh(const CommunicatorSnapshot& communicator, std::vector<Match>* matches) {
  const OfKind* kind = nullptr;
  uint32_t begin = 0;
  int64_t begin_ns = 0;
  const OfKind* longest =
      nullptr;  // covers the longest time, so it shows best how long a round takes
  int64_t longest_ns = 0;
  double call_ns = 0;
  // Calls of a kind are together, in order. The first one ever only begins the time that is
  // covered.
  for (Match& match : *matches) {
    OfKind& of = kinds_[match.kind()];
    if (kind != &of) {
      kind = &of;
      begin = of.has_last ? of.last_call : match.number();
      begin_ns = of.has_last ? of.last_end_ns : match.end_ns;
    }
    const auto since = static_cast<int32_t>(match.number() - of.last_call);
    match.calls = of.has_last ? std::max(since, 1) : 0;
    match.from_ns = of.last_end_ns;
    if (of.has_last && since <= 0) continue;
    of.last_call = match.number();
    of.last_end_ns = match.end_ns;
    of.has_last = true;
    const int64_t covered_ns = ElapsedNs(match.end_ns, begin_ns);
    if (covered_ns <= longest_ns) continue;
    longest = kind;
    longest_ns = covered_ns;
    call_ns = static_cast<double>(covered_ns) / static_cast<double>(match.number() - begin);
  }
  if (longest == nullptr) return;
  round_ns_ = std::min(call_ns * CallsOfRound(communicator, longest->call, rounds_),
                       kMostRoundSeconds * kSecond);
}

double StragglerState::AddLosses(const std::vector<OfRank*>& ranks,
                                 const std::vector<Match>& matches, double interval) {
  double loss = 0;
  double usual_loss = 0;
  double squares = 0, host_squares = 0;
  double scaled = 0;
  std::vector<double> waited(ranks.size());
  for (const Match& match : matches) {
    scaled += match.loss * match.calls;
    loss += match.loss;
    const double usual =
        mean_loss_ > 0 ? std::min(match.loss, kMostMeans * mean_loss_) : match.loss;
    usual_loss += usual;
    if (match.loss <= 0) continue;
    const double part = usual / match.loss;
    squares += match.square * part * part;
    host_squares += match.host_square * part * part;
    for (auto each = match.first; each != match.behind; ++each) {
      waited[each - match.first] += static_cast<double>(each->duration_ns) * part;
    }
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->waited += waited[i];
  window_.loss += usual_loss;
  window_.square += squares;
  window_.host_square += host_squares;
  if (window_.matched >= kMinMatched) mean_loss_ = window_.loss / window_.matched;
  // The losses are at most the time that passed, unless the matched calls alone add up to more.
  const double limit = std::max(interval, loss);
  return scaled > limit ? limit / scaled : 1;
}

void StragglerState::Attribute(const std::vector<OfRank*>& ranks, double shrink,
                               int64_t now_realtime_ns, std::vector<Match>* matches) {
  const double late_from = window_.matched > 0
                               ? std::max(static_cast<double>(kMinLateNs) / kSecond,
                                          kMinPartOfMean * window_.loss / window_.matched)
                               : 0;
  for (Match& match : *matches) match.end_ns = std::min(match.end_ns, now_realtime_ns);
  std::sort(matches->begin(), matches->end(),
            [](const Match& a, const Match& b) { return a.end_ns < b.end_ns; });
  std::vector<int64_t> late_ends_ns;
  for (const Match& match : *matches) {
    if (match.loss >= late_from) late_ends_ns.push_back(match.end_ns);
  }
  const std::vector<double> rounds = PartsOfRounds(std::move(late_ends_ns));
  auto of_round = rounds.begin();
  for (const Match& match : *matches) {
    const bool is_late = match.loss >= late_from;
    const double round = is_late ? *of_round++ : 0;
    window_.late += is_late ? 1 : 0;
    window_.rounds += round;
    const double part = 1 / static_cast<double>(match.last.size());
    const double seconds = match.loss * match.calls * shrink * part;
    const auto loss_ns = static_cast<int64_t>(std::min(match.loss * kSecond, kMostNs));
    const int64_t from_ns = match.calls > 1 ? match.from_ns : ElapsedNs(match.end_ns, loss_ns);
    for (const std::size_t last : match.last) {
      OfRank& of = *ranks[last];
      of.total_seconds += seconds;
      AddLost(from_ns, match.end_ns, seconds, &of);
      if (!is_late) continue;
      of.lateness.Add({0, part, round * part, match.loss * part});
    }
  }
  for (auto& [rank, of] : ranks_) {
    of.lost_in.erase(of.lost_in.begin(), of.lost_in.lower_bound(window_begin_ns_ / kSecondNs));
    of.lateness.seconds = 0;
    for (const auto& [second, seconds] : of.lost_in) of.lateness.seconds += seconds;
  }
}

void StragglerState::AddLost(int64_t from_ns, int64_t until_ns, double seconds, OfRank* of) const {
  if (from_ns >= until_ns) {
    of->lost_in[until_ns / kSecondNs] += seconds;
    return;
  }
  const double each_ns = seconds / static_cast<double>(ElapsedNs(until_ns, from_ns));
  for (int64_t begin_ns = std::max(from_ns, window_begin_ns_); begin_ns < until_ns;) {
    const int64_t second = begin_ns / kSecondNs;
    const int64_t end_ns = std::min(until_ns, (second + 1) * kSecondNs);
    of->lost_in[second] += static_cast<double>(end_ns - begin_ns) * each_ns;
    begin_ns = end_ns;
  }
}

std::vector<double> StragglerState::PartsOfRounds(std::vector<int64_t> late_ends_ns) {
  std::vector<double> parts(late_ends_ns.size(), 1);
  if (late_ends_ns.empty() || round_ns_ <= 0) return parts;
  for (std::size_t begin = 0; begin < late_ends_ns.size();) {
    std::size_t end = begin + 1;
    const auto since_begin_ns = [&](std::size_t i) {
      return static_cast<double>(ElapsedNs(late_ends_ns[i], late_ends_ns[begin]));
    };
    while (end < late_ends_ns.size() && since_begin_ns(end) < round_ns_) ++end;
    // A call represents the part of a round since the previous call, at most a whole round.
    double round = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const auto since_ns = static_cast<double>(ElapsedNs(late_ends_ns[i], last_late_ns_));
      round += last_late_ns_ == 0 ? 1 : std::clamp(since_ns / round_ns_, 0.0, 1.0);
      last_late_ns_ = std::max(last_late_ns_, late_ends_ns[i]);
    }
    std::fill(parts.begin() + static_cast<std::ptrdiff_t>(begin),
              parts.begin() + static_cast<std::ptrdiff_t>(end),
              round / static_cast<double>(end - begin));
    begin = end;
  }
  return parts;
}

double StragglerState::WindowSeconds(double observed, double matched) const {
  if (matched <= 0) return kWindowSeconds;
  const double calls_take = kMostOfOneLook * observed / matched;
  const double rounds_take = kRoundsOfWindow * round_ns_ / kSecond;
  return std::clamp(std::max(calls_take, rounds_take), kWindowSeconds, kMostWindowSeconds);
}

}  // namespace nccl_pulse
