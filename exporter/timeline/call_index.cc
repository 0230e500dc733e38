#include "exporter/timeline/call_index.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "exporter/base/text_hash.h"

namespace nccl_pulse {

uint64_t FlowId(std::string_view what) {
  const uint64_t hash = TextHash(what);
  return hash == 0 ? 1 : hash;
}

int64_t EndOf(const SeenCall& call, int64_t begin_ns) {
  const int64_t length_ns = std::llround(*call.seconds * 1e9);
  return begin_ns > INT64_MAX - length_ns ? INT64_MAX : begin_ns + length_ns;
}

CallIndex::CallIndex(const JobRecording& recording,
                     const std::vector<std::optional<ClockOffset>>& clocks)
    : clocks_(clocks) {
  for (const auto& [key, rank] : recording.ranks()) {
    for (const auto& [number, call] : rank.calls) {
      if (call.collective != 0) collectives_[rank.comm][call.collective].push_back({&rank, &call});
    }
  }
  FindNotCalled(recording);
  FindWaits(recording);
  FindMarks(recording);
  FindBegins(recording);
}

std::optional<int64_t> CallIndex::ApartNs(const SeenRank& a, const SeenRank& b) const {
  if (a.endpoint == b.endpoint) return 0;
  if (a.endpoint >= clocks_.size() || b.endpoint >= clocks_.size()) return std::nullopt;
  const std::optional<ClockOffset>& of_a = clocks_[a.endpoint];
  const std::optional<ClockOffset>& of_b = clocks_[b.endpoint];
  if (!of_a || !of_b) return std::nullopt;
  return std::max(of_a->high_ns - of_b->low_ns, of_b->high_ns - of_a->low_ns);
}

void CallIndex::FindNotCalled(const JobRecording& recording) {
  for (const auto& [key, rank] : recording.ranks()) {
    const std::optional<uint64_t> last = rank.LastCollective();
    const auto found = collectives_.find(rank.comm);
    if (!last || found == collectives_.end()) continue;
    const auto next = found->second.upper_bound(*last);
    if (next == found->second.end()) continue;
    const RankCall first = *std::min_element(next->second.begin(), next->second.end(),
                                             [](const RankCall& a, const RankCall& b) {
                                               return KnownTime(*a.call) < KnownTime(*b.call);
                                             });
    const std::optional<int64_t> apart = ApartNs(rank, *first.rank);
    if (!apart || rank.looked_ns - KnownTime(*first.call) < kLeastLagNs + *apart) continue;
    const std::size_t index = not_called_.size();
    not_called_.push_back({&rank, first, recording.IsSeenAtEnd(rank) ? 0 : rank.looked_ns});
    const auto [missing, is_new] =
        missing_.emplace(std::make_pair(rank.comm, first.call->collective), index);
    // Keeps one rank per call: preferably a rank whose call is still missing when the trace ends.
    if (!is_new && not_called_[index].end_ns == 0) missing->second = index;
  }
}

void CallIndex::FindWaits(const JobRecording& recording) {
  std::map<const SeenRank*, int64_t> until;  // end of the last wait
  for (const auto& [comm, collectives] : collectives_) {
    for (const auto& [number, callers] : collectives) {
      const auto missing = missing_.find({comm, number});
      const bool goes_on = missing != missing_.end();
      const NotCalled* not_called = goes_on ? &not_called_[missing->second] : nullptr;
      const RankCall last = *std::max_element(callers.begin(), callers.end(),
                                              [](const RankCall& a, const RankCall& b) {
                                                return a.call->launched_ns < b.call->launched_ns;
                                              });
      for (const RankCall& each : callers) {
        const int64_t own_ns = each.call->launched_ns;
        if (own_ns == 0) continue;
        const SeenRank* whom = goes_on ? not_called->rank : last.rank;
        const std::optional<int64_t> apart = ApartNs(*each.rank, *whom);
        int64_t& until_ns = until[each.rank];
        if (!apart || until_ns < 0) continue;
        int64_t end_ns = goes_on ? each.rank->looked_ns : last.call->launched_ns;
        bool is_unseen = goes_on && !recording.IsSeenAtEnd(*each.rank);
        if (goes_on && not_called->end_ns != 0) {
          end_ns = std::min(end_ns, not_called->end_ns);
          is_unseen = true;
        }
        const int64_t begin_ns = std::max(own_ns, until_ns);
        if (end_ns - own_ns < kLeastWaitNs + *apart || begin_ns >= end_ns) continue;
        waits_.push_back(
            {each.rank, each.call, begin_ns, goes_on && !is_unseen ? 0 : end_ns, is_unseen, whom});
        until_ns = goes_on ? -1 : end_ns;  // nothing follows an ongoing wait
      }
    }
  }
}

void CallIndex::FindMarks(const JobRecording& recording) {
  for (const auto& [key, rank] : recording.ranks()) {
    std::map<std::pair<bool, int64_t>, int64_t> marks;  // count, by track and time
    for (const auto& [number, call] : rank.calls) {
      const int64_t time_ns = KnownTime(call);
      const int64_t before = marks[{call.launched_ns != 0, time_ns}]++;
      if (before != 0) marks_[&call] = time_ns + before;
    }
  }
}

void CallIndex::FindBegins(const JobRecording& recording) {
  // Work on one stream runs in order, across communicators.
  struct Timed {
    const std::string* host;
    int64_t pid, pid_namespace;
    std::string stream;
    int64_t launched_ns;  // not before its mark, from which an arrow leads to it
    const SeenCall* call;
  };
  std::vector<Timed> timed;
  for (const auto& [key, rank] : recording.ranks()) {
    for (const auto& [number, call] : rank.calls) {
      if (!call.seconds || call.launched_ns == 0) continue;
      // Without a tag the stream is not known.
      timed.push_back({&rank.hostname, rank.pid, rank.pid_namespace,
                       call.stream.empty() ? absl::StrCat(rank.comm, " ", rank.rank) : call.stream,
                       MarkTime(call), &call});
    }
  }
  const auto stream_of = [](const Timed& each) {
    return std::tie(*each.host, each.pid, each.pid_namespace, each.stream);
  };
  std::stable_sort(timed.begin(), timed.end(), [&](const Timed& a, const Timed& b) {
    return std::tuple_cat(stream_of(a), std::tie(a.launched_ns)) <
           std::tuple_cat(stream_of(b), std::tie(b.launched_ns));
  });
  int64_t busy_until_ns = 0;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (i == 0 || stream_of(timed[i]) != stream_of(timed[i - 1])) busy_until_ns = 0;
    const SeenCall& call = *timed[i].call;
    const int64_t begin_ns = std::max(timed[i].launched_ns, busy_until_ns);
    begins_[&call] = begin_ns;
    busy_until_ns = EndOf(call, begin_ns);
  }
}

uint64_t CallIndex::FlowOf(const SeenRank& rank, const SeenCall& call) const {
  if (call.collective == 0) return 0;
  const auto found = collectives_.find(rank.comm);
  if (found == collectives_.end()) return 0;
  const auto callers = found->second.find(call.collective);
  if (callers == found->second.end()) return 0;
  if (callers->second.size() + missing_.count({rank.comm, call.collective}) < 2) return 0;
  return FlowId(absl::StrCat(rank.comm, " ", call.collective));
}

std::size_t CallIndex::flows() const {
  std::size_t flows = 0;
  for (const auto& [comm, collectives] : collectives_) {
    for (const auto& [number, callers] : collectives) {
      if (FlowOf(*callers[0].rank, *callers[0].call) != 0) ++flows;
    }
  }
  return flows;
}

int64_t CallIndex::MarkTime(const SeenCall& call) const {
  const auto found = marks_.find(&call);
  return found == marks_.end() ? KnownTime(call) : found->second;
}

int64_t CallIndex::EarliestBegin(const SeenCall& call) const {
  const auto found = begins_.find(&call);
  return found == begins_.end() ? 0 : found->second;
}

}  // namespace nccl_pulse
