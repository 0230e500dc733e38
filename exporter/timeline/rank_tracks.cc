#include "exporter/timeline/rank_tracks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/size_words.h"

namespace nccl_pulse {
namespace {

using Track = PerfettoTrace::Track;

TraceEvent EventOf(const SeenCall& call, std::string name) {
  TraceEvent event{std::move(name)};
  event.notes = {{"op", call.op},
                 {"bytes", static_cast<int64_t>(call.bytes)},
                 {"number", static_cast<int64_t>(call.number)},
                 {"group", static_cast<int64_t>(call.group)},
                 {"state", call.state}};
  if (call.collective != 0) {
    event.notes.emplace_back("collective", static_cast<int64_t>(call.collective));
  }
  if (!call.datatype.empty()) event.notes.emplace_back("datatype", call.datatype);
  if (!call.stream.empty()) event.notes.emplace_back("stream", call.stream);
  if (call.seconds) event.notes.emplace_back("seconds", *call.seconds);
  if (call.begun) event.notes.emplace_back("begun", *call.begun);
  return event;
}

class RankDrawer {
 public:
  RankDrawer(const SeenRank& rank, const CallIndex& index, const RankFinding& finding, Track parent,
             PerfettoTrace* trace, TimelineSummary* summary)
      : rank_(rank),
        index_(index),
        finding_(finding),
        parent_(parent),
        trace_(*trace),
        summary_(*summary) {}

  void Draw() {
    DrawNotCalled();
    DrawCalls();
    DrawTimed();
    DrawOpen();
    DrawWaits();
    DrawGaps();
    DrawCounters();
  }

 private:
  // Joins the two drawings of a call: as a mark and on the stream.
  uint64_t OwnFlow(const SeenCall& call) const {
    return FlowId(absl::StrCat(rank_.comm, "|", rank_.hostname, "|", rank_.pid, "|", rank_.rank,
                               "|", call.number));
  }

  void DrawNotCalled() {
    if (finding_.not_called == nullptr) return;
    const SeenCall& call = *finding_.not_called->first.call;
    const int64_t end_ns = finding_.not_called->end_ns;
    TraceEvent event{
        absl::StrCat(end_ns == 0 ? "HAS NOT CALLED " : "HAD NOT CALLED, at the last poll, ",
                     CallWords(call), " (collective ", call.collective, ")")};
    event.notes = {{"collective", static_cast<int64_t>(call.collective)},
                   {"called_first_by", RankWords(*finding_.not_called->first.rank)}};
    event.flows = {index_.FlowOf(rank_, call)};
    const Track track = trace_.AddTrack(
        "HAS NOT CALLED", parent_,
        "Another rank of the communicator has made a call that this rank had not made 100 ms "
        "later. The slice ends when this rank was last polled.");
    // At the mark of the rank that called it, where the arrow begins.
    trace_.Begin(track, index_.MarkTime(call), std::move(event));
    if (end_ns == 0) {
      ++summary_.not_called;
    } else {
      trace_.End(track, end_ns);
      ++summary_.not_called_unseen;
    }
  }

  void DrawCalls() {
    Track timed = 0, untimed = 0;
    for (const auto& [number, call] : rank_.calls) {
      TraceEvent event = EventOf(call, CallWords(call));
      if (const uint64_t flow = index_.FlowOf(rank_, call)) event.flows.push_back(flow);
      if (index_.EarliestBegin(call) != 0) event.flows.push_back(OwnFlow(call));
      ++summary_.calls;
      if (call.launched_ns != 0) {
        if (timed == 0) {
          timed =
              trace_.AddTrack("calls", parent_,
                              "Each call at its launch by NCCL. Arrows lead to the same call on "
                              "other ranks.");
        }
        trace_.Mark(timed, index_.MarkTime(call), std::move(event));
        continue;
      }
      if (untimed == 0) {
        untimed = trace_.AddTrack("calls without a time", parent_,
                                  "Calls whose time is not known, in order. Each is drawn at the "
                                  "first poll that saw it.");
      }
      event.notes.emplace_back("time", "not known; made before this moment");
      trace_.Mark(untimed, index_.MarkTime(call), std::move(event));
      ++summary_.without_time;
    }
  }

  void DrawTimed() {
    std::map<std::string, std::vector<const SeenCall*>> streams;
    for (const auto& [number, call] : rank_.calls) {
      if (index_.EarliestBegin(call) != 0) streams[call.stream].push_back(&call);
    }
    for (auto& [stream, calls] : streams) {
      std::stable_sort(calls.begin(), calls.end(), [this](const SeenCall* a, const SeenCall* b) {
        return index_.EarliestBegin(*a) < index_.EarliestBegin(*b);
      });
      const std::string name = stream.empty() ? "GPU" : absl::StrCat("GPU, stream ", stream);
      const Track track =
          trace_.AddTrack(name, parent_,
                          "Calls that were timed on their stream. The length is measured. The "
                          "begin is the earliest possible one, after earlier work on the stream.");
      const Track bandwidth = trace_.AddCounter(
          absl::StrCat(name, ": bytes per second"), parent_, PerfettoTrace::Unit::kBytes,
          "Bytes of a timed call over its duration, which includes waiting for other ranks. "
          "0: no timed call.");
      for (const SeenCall* call : calls) {
        const int64_t begin_ns = index_.EarliestBegin(*call);
        const int64_t end_ns = EndOf(*call, begin_ns);
        TraceEvent event{CallWords(*call)};
        event.notes = {{"number", static_cast<int64_t>(call->number)}, {"seconds", *call->seconds}};
        event.flows = {OwnFlow(*call)};
        trace_.Begin(track, begin_ns, std::move(event));
        trace_.End(track, end_ns);
        ++summary_.timed;
        if (end_ns == begin_ns) continue;
        trace_.Count(bandwidth, begin_ns, static_cast<double>(call->bytes) / *call->seconds);
        trace_.Count(bandwidth, end_ns, 0);
      }
    }
  }

  // Draws the oldest and the newest open call; the rest lies between.
  void DrawOpen() {
    const SeenCall* oldest = nullptr;
    const SeenCall* newest = nullptr;
    std::size_t count = 0;
    for (const auto& [number, call] : rank_.calls) {
      if (!rank_.IsOpen(call)) continue;
      if (oldest == nullptr) oldest = &call;
      newest = &call;
      ++count;
    }
    if (oldest == nullptr) return;
    ++summary_.open;
    const Track track =
        trace_.AddTrack("NOT ENDED", parent_,
                        "The oldest and the newest call not known to have ended at the last poll.");
    const auto begin = [&](const SeenCall& call, const std::string& which) {
      const char* state = call.state == "not_launched" ? "called, not launched" : "not ended";
      TraceEvent event = EventOf(call, absl::StrCat(CallWords(call), ": ", state, which));
      trace_.Begin(track, KnownTime(call), std::move(event));
    };
    begin(*oldest, count == 1 ? "" : absl::StrCat(" (the oldest of ", count, ")"));
    // Nested in the oldest call's slice, also if a hostile page has other times.
    if (newest != oldest && KnownTime(*newest) >= KnownTime(*oldest))
      begin(*newest, " (the newest)");
  }

  void DrawWaits() {
    Track track = 0;
    for (const RankWait* wait : finding_.waits) {
      if (track == 0) {
        track = trace_.AddTrack("waits", parent_,
                                "Time from this rank's launch of a collective to the last rank's. "
                                "Its GPU may have been busy with earlier work.");
      }
      const char* const words = wait->end_ns == 0 ? "still waits for rank "
                                : wait->is_unseen ? "waits, at the last poll, for rank "
                                                  : "waits for rank ";
      TraceEvent event{absl::StrCat(words, wait->last->rank, ": ", CallWords(*wait->call))};
      event.notes = {{"collective", static_cast<int64_t>(wait->call->collective)},
                     {"for", RankWords(*wait->last)}};
      trace_.Begin(track, wait->begin_ns, std::move(event));
      if (wait->end_ns != 0) trace_.End(track, wait->end_ns);
    }
  }

  void DrawGaps() {
    Track track = 0;
    int64_t until_ns = 0;
    for (const CallGap& gap : rank_.Gaps()) {
      if (track == 0) {
        track = trace_.AddTrack("GAP: calls that were not seen", parent_,
                                "Newer calls replaced these before they were read.");
      }
      const uint64_t calls = gap.last - gap.first + 1;
      summary_.gap_calls += calls;
      TraceEvent event{absl::StrCat("calls ", gap.first, " to ", gap.last, " were not seen")};
      event.notes = {{"calls", static_cast<int64_t>(calls)}};
      const int64_t begin_ns = std::max(gap.after_ns, until_ns);
      until_ns = std::max(gap.before_ns, begin_ns);
      trace_.Begin(track, begin_ns, std::move(event));
      trace_.End(track, until_ns);
    }
  }

  void DrawCounters() {
    if (rank_.open_calls.empty()) return;
    const Track track =
        trace_.AddCounter("calls not known to have ended", parent_, PerfettoTrace::Unit::kCount,
                          "At each poll. Completions are known some tens of milliseconds late.");
    for (const auto& [time_ns, calls] : rank_.open_calls) {
      trace_.Count(track, time_ns, static_cast<double>(calls));
    }
  }

  const SeenRank& rank_;
  const CallIndex& index_;
  const RankFinding& finding_;
  const Track parent_;
  PerfettoTrace& trace_;
  TimelineSummary& summary_;
};

}  // namespace

std::string CallWords(const SeenCall& call) {
  return absl::StrCat(call.op.empty() ? "call" : call.op, " ",
                      BytesWords(static_cast<double>(call.bytes)));
}

std::string RankWords(const SeenRank& rank) {
  return absl::StrCat("rank ", rank.rank, " of ", rank.name.empty() ? rank.comm : rank.name, " (",
                      rank.hostname.empty() ? "" : absl::StrCat(rank.hostname, ", "), "pid ",
                      rank.pid, ")");
}

void DrawRank(const SeenRank& rank, const CallIndex& index, const RankFinding& finding,
              PerfettoTrace::Track parent, PerfettoTrace* trace, TimelineSummary* summary) {
  std::string name = absl::StrCat(rank.name.empty() ? "" : absl::StrCat(rank.name, " "), rank.comm,
                                  ": rank ", rank.rank, " of ", rank.nranks);
  if (!finding.suspicion.empty()) absl::StrAppend(&name, "  << SUSPECT: ", finding.suspicion);
  if (!rank.has_calls) {
    absl::StrAppend(&name, "  (no calls: ", rank.missing.empty() ? "not read" : rank.missing, ")");
  }
  const Track track = trace->AddTrack(name, parent);
  ++summary->ranks;
  RankDrawer(rank, index, finding, track, trace, summary).Draw();
}

}  // namespace nccl_pulse
