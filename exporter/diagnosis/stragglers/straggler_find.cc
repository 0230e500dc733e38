// Decides which rank or host is named, from the sums of straggler.cc.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/stragglers/rounds.h"
#include "exporter/diagnosis/stragglers/straggler.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

constexpr double kNsPerSecond = 1e9;

// Standard errors by which, by chance, one of about eight ranks may exceed its share.
constexpr double kMostErrors = 3.2;

// Returns in how many ways `together` can be chosen.
double Choices(std::size_t candidates, std::size_t together) {
  double choices = 1;
  for (std::size_t i = 0; i < together; ++i) {
    choices *= static_cast<double>(candidates - i) / static_cast<double>(i + 1);
  }
  return choices;
}

}  // namespace

class StragglerState::Namer {
 public:
  // `is_perhaps`: without excluding chance.
  Namer(const StragglerState& state, const CommunicatorView& view, bool is_perhaps)
      : state_(state),
        window_(state.window_),
        view_(view),
        is_perhaps_(is_perhaps),
        ranks_(LiveRanks(view)) {}

  std::optional<Straggler> Find() const {
    if (view_.spans_pipeline || state_.LostShare() < kMinLoss || ranks_.size() < 2) {
      return std::nullopt;
    }
    const Candidates by_rank = CandidatesBy(/*by_host=*/false);
    Candidates by_host;
    if (ranks_.front()->is_of_many_hosts) by_host = CandidatesBy(/*by_host=*/true);
    for (std::size_t together = 1; together <= kMostTogether; ++together) {
      for (const Candidates* candidates : {&by_rank, &std::as_const(by_host)}) {
        if (candidates->size() < 2 * together) continue;
        std::optional<Straggler> found = Judge(*candidates, together);
        if (found) return found;
      }
    }
    return std::nullopt;
  }

 private:
  // A rank, or all ranks of a host.
  struct Candidate {
    std::string host;                  // "": a rank
    std::vector<std::size_t> indices;  // of its ranks
    Lateness sum;
    double most_late_calls = 0;  // the most that one of its ranks has
    std::size_t ever_late = 0;   // ranks

    // True if a host's ranks are late about equally often.
    bool AreAlike() const {
      const std::size_t ranks = indices.size();
      if (ranks < 2 || ever_late < 2 || 2 * ever_late < ranks) return false;
      const double part = 1 / static_cast<double>(ranks);
      const double most = part + kMostErrors * std::sqrt(part * (1 - part) / sum.late_calls);
      return most_late_calls <= most * sum.late_calls;
    }
  };
  using Candidates = std::vector<Candidate>;

  // Returns the rank or host first that arrived last most often.
  Candidates CandidatesBy(bool by_host) const {
    const RankGroups groups(ranks_, by_host);
    Candidates candidates(groups.size());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Lateness& of = state_.ranks_.at(ranks_[i]->rank()).lateness;
      Candidate& candidate = candidates[groups.Of(i)];
      if (by_host) candidate.host = ranks_[i]->process->hostname;
      candidate.indices.push_back(i);
      candidate.most_late_calls = std::max(candidate.most_late_calls, of.late_calls);
      if (of.late_calls > 0) ++candidate.ever_late;
      candidate.sum.Add(of);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.sum.late_rounds > b.sum.late_rounds;
    });
    return candidates;
  }

  // Returns the first `together` candidates, judged as if they were one. Returns nothing if they
  // are not to be named.
  std::optional<Straggler> Judge(const Candidates& candidates, std::size_t together) const {
    Lateness sum;
    std::map<std::size_t, double> seconds_of;
    std::set<std::string> hosts;
    for (std::size_t i = 0; i < together; ++i) {
      const Candidate& each = candidates[i];
      if (!is_perhaps_ && !each.host.empty() && !each.AreAlike()) return std::nullopt;
      sum.Add(each.sum);
      for (const std::size_t index : each.indices) seconds_of[index] = each.sum.seconds;
      if (!each.host.empty()) hosts.insert(each.host);
    }
    if (together > 1) {
      const double least = candidates[together - 1].sum.late_rounds;
      const double next = candidates[together].sum.late_rounds;
      const double part = sum.late_rounds / static_cast<double>(together);
      if (least < kMinPartOfTurns * part || next > kMostOfNext * least) return std::nullopt;
    }
    Straggler straggler;
    straggler.seconds_per_second = state_.ShareOfWindow(sum.seconds);
    straggler.late_share = sum.late_rounds / window_.rounds;
    const double least_share = is_perhaps_ || together > 1 ? kMinLateShare : kMinShareOfMean;
    if (straggler.seconds_per_second < kMinLoss || straggler.late_share < least_share) {
      return std::nullopt;
    }
    std::vector<std::size_t> these;
    for (const auto& [index, seconds] : seconds_of) {
      these.push_back(index);
      straggler.ranks.push_back(ranks_[index]->rank());
      straggler.parts.push_back(state_.ShareOfWindow(seconds));
    }
    straggler.rank = straggler.ranks.front();
    straggler.window_seconds = state_.SeenSeconds();
    straggler.matched_calls = static_cast<uint64_t>(window_.matched);
    if (is_perhaps_) return straggler;
    if (!DoOthersComeTogether(these) ||
        !AreLate(straggler.late_share, Choices(candidates.size(), together), these, !hosts.empty(),
                 sum.late_seconds)) {
      return std::nullopt;
    }
    straggler.mean_seconds = sum.late_seconds / sum.late_calls;
    straggler.host = absl::StrJoin(hosts, ", ");
    Say(these, &straggler);
    return straggler;
  }

  // Sets the texts.
  void Say(const std::vector<std::size_t>& these, Straggler* straggler) const {
    const std::string last =
        absl::StrFormat("at %.0f %% of the late calls", straggler->late_share * 100);
    const std::string wait = ShareWords(straggler->seconds_per_second, straggler->window_seconds);
    if (!straggler->host.empty()) {
      straggler->text =
          absl::StrFormat("The %d ranks of %s take turns to arrive last, %s; the others wait %s.",
                          these.size(), straggler->host, last, wait);
      return;
    }
    const RankView& rank = *ranks_[these.front()];
    const std::string others =
        these.size() == 1   ? ""
        : these.size() == 2 ? " by turns with another rank"
                            : absl::StrCat(" by turns with ", these.size() - 1, " other ranks");
    straggler->lateness =
        absl::StrFormat("arrives last%s %s%s; the others wait %s per call, %s.", others, last,
                        static_cast<int32_t>(ranks_.size()) == view_.nranks ? ""
                        : rank.is_of_many_hosts ? ", among the ranks that are seen"
                                                : ", among the ranks of this node",
                        SecondsWords(straggler->mean_seconds), wait);
    const std::string& gpu = rank.communicator->gpu;
    straggler->text =
        these.size() == 1
            ? absl::StrFormat("Rank %d (pid %s%s) %s", straggler->rank, PidWords(*rank.process),
                              gpu.empty() ? "" : absl::StrCat(", GPU ", gpu), straggler->lateness)
            : absl::StrFormat(
                  "Ranks %s take turns to arrive last, %s; the others wait %s per call, %s.",
                  absl::StrJoin(straggler->ranks, ", "), last,
                  SecondsWords(straggler->mean_seconds), wait);
  }

  // Returns false if the ranks always arrive one after the other, as if one rank hands out the
  // work.
  bool DoOthersComeTogether(const std::vector<std::size_t>& these) const {
    std::vector<double> others;
    double own = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const double waited = state_.ranks_.at(ranks_[i]->rank()).waited;
      if (std::binary_search(these.begin(), these.end(), i)) {
        own += waited / static_cast<double>(these.size());
      } else {
        others.push_back(waited);
      }
    }
    if (others.size() < 2) return true;
    std::sort(others.begin(), others.end());
    const double middle = others[(others.size() - 1) / 2];
    const double upper = others[(3 * (others.size() - 1) + 3) / 4];
    return upper - middle < kMostOfOrder * (middle - own);
  }

  // True if ranks or hosts, one of `candidates`, arrived last at this share of the late calls by
  // more than chance. `these`: indices of the ranks. `late_seconds`: their losses in the window.
  bool AreLate(double share, double candidates, const std::vector<std::size_t>& these,
               bool are_hosts, double late_seconds) const {
    const bool are_most = share >= kMinLateShare;
    // With two ranks, chance gives each a half; the share is at least that.
    if (!are_most && candidates < 3) return false;
    const double chance = static_cast<double>(these.size()) / static_cast<double>(ranks_.size());
    if (are_most && IsBeyondChance(share, chance, state_.Rounds(view_), candidates)) return true;
    return AreLateInMean(these, are_hosts, late_seconds, !are_most);
  }

  // True if the same holds for the mean of all calls. `is_alone`: no other may be nearly as late.
  bool AreLateInMean(const std::vector<std::size_t>& these, bool are_hosts, double late_seconds,
                     bool is_alone) const {
    const bool are_exchanges = view_.is_exchange && AreLaunchesExchanges(view_);
    const MeanLateness mean = MeanLatenessOf(ranks_, are_exchanges, state_.rounds_);
    if (mean.rounds < kMinMeanRounds || window_.waits <= 0) return false;
    const RankGroups groups(ranks_, are_hosts);
    double late_ns = 0;
    for (const std::size_t i : these) {
      late_ns += mean.of_rank[i] / static_cast<double>(these.size());
    }
    const double square =
        are_hosts ? window_.host_square / window_.hosts : window_.square / window_.waits;
    const double constant = groups.SquareOf(mean.of_rank);
    // The part of a difference that remains in the mean of a kind of call is not random deviation.
    // If all of it remains, it may still be chance.
    double deviation = square;
    for (const auto& kind : mean.kinds) deviation -= kind.part * groups.SquareOf(kind.of_rank);
    const double variance = std::max(kMostVariance * deviation, kMinVariance * constant);
    // The calls of one round are not independent, so the degrees of freedom come from the rounds
    // and the ranks.
    const double freedom = std::max(1.0, window_.rounds) * static_cast<double>(ranks_.size() - 1);
    const double errors = are_hosts ? kMinErrors : kMinErrors * (1 + kMoreErrors / freedom);
    if (is_alone) {
      if (mean.rounds < kMinRoundsAlone) return false;
      // Ranks differ more in the mean than now: the mean consists of long waits in the past, which
      // do not show how far ranks differ.
      if (constant > kMostOfPast * square) return false;
      std::vector<double> others = groups.Means(mean.of_rank);
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(groups.Of(these.front())));
      const double next_ns = std::max(0.0, *std::max_element(others.begin(), others.end()));
      if (next_ns > kMostOfNext * late_ns ||
          late_ns - next_ns < errors * std::sqrt(2 * variance / mean.rounds)) {
        return false;
      }
    }
    return late_ns > errors * std::sqrt(variance / mean.rounds) &&
           late_ns > kMinPartOfNow * late_seconds / window_.matched * kNsPerSecond;
  }

  const StragglerState& state_;
  const Window& window_;
  const CommunicatorView& view_;
  const bool is_perhaps_;
  const std::vector<const RankView*> ranks_;
};

std::optional<Straggler> StragglerState::Find(const CommunicatorView& view) const {
  const bool are_enough =
      window_.matched >= kMinMatched && window_.late >= kMinLate && window_.rounds > 0;
  return are_enough ? Namer(*this, view, /*is_perhaps=*/false).Find() : std::nullopt;
}

std::optional<LateRank> StragglerState::FindPerhaps(const CommunicatorView& view) const {
  if (window_.rounds <= 0 || Rounds(view) >= kEnoughRounds) return std::nullopt;
  const std::optional<Straggler> found = Namer(*this, view, /*is_perhaps=*/true).Find();
  if (!found) return std::nullopt;
  return LateRank{found->rank, found->seconds_per_second};
}

double StragglerState::Rounds(const CommunicatorView& view) const {
  const bool are_known = round_ns_ > 0 || !view.is_exchange;
  return are_known ? window_.rounds : window_.rounds / kExchangesOfRound;
}

double StragglerState::SecondsOfWindow() const {
  return static_cast<double>(ElapsedNs(updated_realtime_ns_, window_begin_ns_)) / kNsPerSecond;
}

int64_t StragglerState::SeenSeconds() const {
  return std::max<int64_t>(1, std::llround(std::min(SecondsOfWindow(), window_length_)));
}

double StragglerState::WaitedShare() const {
  return window_.matched < kMinMatched || window_.late < kMinLate ? 0 : LostShare();
}

double StragglerState::ShareOfWindow(double seconds) const {
  return SecondsOfWindow() <= 0 ? 0 : std::min(1.0, seconds / SecondsOfWindow());
}

double StragglerState::LostShare() const {
  double seconds = 0;
  for (const auto& [rank, of] : ranks_) seconds += of.lateness.seconds;
  return ShareOfWindow(seconds);
}

void StragglerState::Forgive(int32_t rank) {
  OfRank& of = ranks_[rank];
  of.total_seconds = of.before_seconds;
}

std::vector<RankLoss> StragglerState::Losses(const CommunicatorView& view) const {
  std::vector<RankLoss> losses;
  if (ranks_.size() < 2) return losses;
  for (const RankView& rank : view.ranks) {
    const auto found = ranks_.find(rank.rank());
    if (found == ranks_.end()) continue;
    losses.push_back({rank.rank(), found->second.total_seconds, rank.process->static_labels});
  }
  return losses;
}

}  // namespace nccl_pulse
