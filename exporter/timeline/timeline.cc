#include "exporter/timeline/timeline.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "exporter/base/json_field.h"
#include "exporter/timeline/call_index.h"
#include "exporter/timeline/observation.h"
#include "exporter/timeline/perfetto.h"
#include "exporter/timeline/rank_tracks.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;
using Track = PerfettoTrace::Track;

struct Process {
  std::string hostname, global_rank;
  int64_t pid = 0;
  std::vector<const SeenRank*> ranks;
};

// Tracks of one name for any number of simultaneous slices and marks. trace_processor stacks these,
// and drops those below depth 512.
class Rows {
 public:
  Rows(PerfettoTrace* trace, Track parent, std::string name, std::string about)
      : trace_(*trace), parent_(parent), name_(std::move(name)), about_(std::move(about)) {}

  // Returns the track for the next slice or mark.
  Track Next() {
    if (used_++ % kMost == 0) track_ = trace_.AddTrack(name_, parent_, about_);
    return track_;
  }

 private:
  static constexpr std::size_t kMost = 256;

  PerfettoTrace& trace_;
  const Track parent_;
  const std::string name_, about_;
  Track track_ = 0;
  std::size_t used_ = 0;
};

class TimelineDrawer {
 public:
  TimelineDrawer(const Observation& seen, TimelineSummary* summary)
      : seen_(seen), summary_(*summary), index_(seen.recording, seen.clocks) {}

  std::string Draw() {
    FindSuspects();
    for (const NotCalled& each : index_.not_called()) findings_[each.rank].not_called = &each;
    for (const RankWait& each : index_.waits()) findings_[each.rank].waits.push_back(&each);
    summary_.flows = index_.flows();
    summary_.missing_live = MissingLive();
    DrawVerdicts();
    DrawAbout();
    for (const Process& each : SortedProcesses()) DrawProcess(each);
    return trace_.Finish();
  }

 private:
  void Suspect(const std::string& comm, int64_t rank, const std::string& verdict) {
    suspects_.emplace(std::make_pair(comm, rank), verdict);
  }

  // The job's verdict knows more than a communicator's, which for a mismatch suspects all its
  // ranks.
  void FindSuspects() {
    for (const Json& root : At(seen_.verdict, "roots")) {
      for (const Json& rank : At(root, "ranks")) {
        Suspect(TextAt(rank, "comm"), NumberAt(rank, "rank", -1), TextAt(root, "verdict"));
      }
    }
    if (!suspects_.empty()) return;
    for (const Json& page : seen_.communicators) {
      for (const Json& each : At(page, "communicators")) {
        const Json& hang = At(each, "hang");
        for (const Json& rank : At(hang, "suspects")) {
          if (!rank.is_number_integer()) continue;
          Suspect(TextAt(each, "comm"), rank.get<int64_t>(), TextAt(hang, "verdict"));
        }
      }
    }
  }

  // Returns the ranks that an endpoint reports as live, without calls on any page.
  std::size_t MissingLive() const {
    std::set<std::pair<std::string, int64_t>> seen, missing;
    for (const auto& [key, rank] : seen_.recording.ranks()) {
      if (rank.has_calls) seen.emplace(rank.comm, rank.rank);
    }
    for (const Json& page : seen_.communicators) {
      for (const Json& comm : At(page, "communicators")) {
        for (const Json& rank : At(comm, "ranks")) {
          std::pair who(TextAt(comm, "comm"), NumberAt(rank, "rank", -1));
          if (At(rank, "active") == true && seen.count(who) == 0) missing.insert(who);
        }
      }
    }
    return missing.size();
  }

  void DrawVerdicts() {
    struct Open {
      int64_t since_ns;
      TraceEvent event;
    };
    std::vector<Open> open;
    std::vector<Open> marks;
    const int64_t verdict_ns = TimeAt(seen_.verdict, "time");
    if (verdict_ns != 0) {
      TraceEvent event{absl::StrCat("the job: ", TextAt(seen_.verdict, "finding"))};
      event.notes = {{"sentence", TextAt(seen_.verdict, "sentence")}};
      marks.push_back({verdict_ns, std::move(event)});
    }
    for (const Json& page : seen_.communicators) {
      const int64_t time_ns = TimeAt(page, "time");
      for (const Json& each : At(page, "communicators")) {
        const std::string comm = TextAt(each, "comm");
        const std::string name = TextAt(each, "name").empty() ? comm : TextAt(each, "name");
        const Json& hang = At(each, "hang");
        if (hang.is_object()) {
          TraceEvent event{absl::StrCat("HANG ", TextAt(hang, "verdict"), ": ", name)};
          event.notes = {{"text", TextAt(hang, "text")}, {"comm", comm}};
          const int64_t since_ns = TimeAt(hang, "since");
          open.push_back({since_ns == 0 ? time_ns : since_ns, std::move(event)});
        }
        const Json& straggler = At(each, "straggler");
        if (straggler.is_object() && time_ns != 0) {
          std::vector<std::string> ranks;
          for (const Json& rank : At(straggler, "ranks")) ranks.push_back(rank.dump());
          TraceEvent event{absl::StrCat("STRAGGLER rank ", absl::StrJoin(ranks, ", "), ": ", name)};
          event.notes = {{"text", TextAt(straggler, "text")}, {"comm", comm}};
          marks.push_back({time_ns, std::move(event)});
        }
      }
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const Open& a, const Open& b) { return a.since_ns < b.since_ns; });
    Rows rows(&trace_, job_, "verdicts",
              "Hangs, from their last progress. Stragglers and the verdict on the job, "
              "at the time of the request.");
    for (Open& each : marks) trace_.Mark(rows.Next(), each.since_ns, std::move(each.event));
    for (Open& each : open) trace_.Begin(rows.Next(), each.since_ns, std::move(each.event));
  }

  std::vector<Process> SortedProcesses() const {
    std::map<std::tuple<std::string, int64_t, int64_t>, Process> processes;
    for (const auto& [key, rank] : seen_.recording.ranks()) {
      Process& process = processes[{rank.hostname, rank.pid, rank.pid_namespace}];
      process.hostname = rank.hostname;
      process.pid = rank.pid;
      if (!rank.global_rank.empty()) process.global_rank = rank.global_rank;
      process.ranks.push_back(&rank);
    }
    std::vector<Process> sorted;
    for (auto& [key, process] : processes) sorted.push_back(std::move(process));
    const auto number_of = [](const Process& process) {
      int number = 0;
      return absl::SimpleAtoi(process.global_rank, &number) ? number : INT_MAX;
    };
    std::stable_sort(sorted.begin(), sorted.end(), [&](const Process& a, const Process& b) {
      return number_of(a) < number_of(b);
    });
    return sorted;
  }

  void DrawProcess(const Process& process) {
    std::set<std::string> gpus;
    std::string suspicion;
    for (const SeenRank* rank : process.ranks) {
      if (!rank->gpu.empty()) gpus.insert(rank->gpu);
      const auto found = suspects_.find({rank->comm, rank->rank});
      if (found == suspects_.end()) continue;
      findings_[rank].suspicion = found->second;
      suspicion = found->second;
    }
    std::string name =
        process.global_rank.empty() ? "process" : absl::StrCat("rank ", process.global_rank);
    if (!process.hostname.empty()) absl::StrAppend(&name, " on ", process.hostname);
    if (!gpus.empty()) absl::StrAppend(&name, ", GPU ", absl::StrJoin(gpus, "+"));
    absl::StrAppend(&name, ", pid ", process.pid);
    if (!suspicion.empty()) absl::StrAppend(&name, "  << SUSPECT: ", suspicion);
    const Track track = trace_.AddTrack(name, job_);
    ++summary_.processes;
    for (const SeenRank* rank : process.ranks) {
      DrawRank(*rank, index_, findings_[rank], track, &trace_, &summary_);
    }
  }

  void DrawAbout() {
    const int64_t time_ns = seen_.recording.end_ns();
    if (time_ns == 0) return;
    Rows rows(&trace_, job_, "about this trace",
              "Sources and errors of times, and missing data. "
              "docs/debug-a-slow-job.md#timeline");
    const auto say = [&](const std::string& text) { trace_.Mark(rows.Next(), time_ns, {text}); };
    say("times are each node's CLOCK_REALTIME; none is corrected");
    for (std::size_t i = 0; i < seen_.endpoints.size(); ++i) {
      const bool is_there = i < seen_.clocks.size();
      TraceEvent event{absl::StrCat("clock of ", seen_.endpoints[i], ": ",
                                    ClockWords(is_there ? seen_.clocks[i] : std::nullopt))};
      if (is_there && seen_.clocks[i]) {
        event.notes = {{"ahead_at_least_ns", seen_.clocks[i]->low_ns},
                       {"ahead_at_most_ns", seen_.clocks[i]->high_ns}};
      }
      trace_.Mark(rows.Next(), time_ns, std::move(event));
    }
    if (seen_.recording.dropped() != 0) {
      say(absl::StrCat(seen_.recording.dropped(), " calls did not fit: at most ", kMostCalls,
                       " are kept, of each rank the newest"));
    }
    for (const std::string& note : seen_.notes) say(note);
  }

  const Observation& seen_;
  TimelineSummary& summary_;
  const CallIndex index_;
  PerfettoTrace trace_;
  // Parent of all other tracks, so that they keep their order: ui.perfetto.dev sorts tracks without
  // a parent by name, and puts tracks without children last.
  const Track job_ = trace_.AddTrack("NCCL job");
  std::map<std::pair<std::string, int64_t>, std::string> suspects_;
  std::map<const SeenRank*, RankFinding> findings_;
};

std::string Microseconds(int64_t ns) {
  if (ns < 10'000'000) return absl::StrFormat("%.0f us", static_cast<double>(ns) / 1e3);
  return absl::StrFormat("%.3g ms", static_cast<double>(ns) / 1e6);
}

}  // namespace

std::string ClockWords(const std::optional<ClockOffset>& offset) {
  if (!offset) return "its error is not known";
  const auto [low_ns, high_ns] = *offset;
  if (low_ns > 0) {
    return absl::StrCat("ahead of the clock here by ", Microseconds(low_ns), " to ",
                        Microseconds(high_ns));
  }
  if (high_ns < 0) {
    return absl::StrCat("behind the clock here by ", Microseconds(-high_ns), " to ",
                        Microseconds(-low_ns));
  }
  return absl::StrCat("at most ", Microseconds(-low_ns), " behind the clock here, at most ",
                      Microseconds(high_ns), " ahead of it");
}

std::string DrawTimeline(const Observation& seen, TimelineSummary* summary) {
  return TimelineDrawer(seen, summary).Draw();
}

}  // namespace nccl_pulse
