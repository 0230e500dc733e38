#include "exporter/endpoint/pages.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/proc.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/outside_ranks.h"
#include "exporter/diagnosis/facts/same_ids.h"
#include "exporter/exposition/json/calls_json.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/exposition/json/summary_json.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/exposition/protobuf_format.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/exposition/text_format.h"
#include "exporter/http/limits.h"
#include "exporter/node/run_state.h"

namespace nccl_pulse {
namespace {

// Weights of the CPU time for pages. The open status page polls the JSON every 2 s; scrapers come
// every 15 s. Watchers take a summary every 2 s, and snapshots twice in 10 s during a stall.
constexpr int kFormatWeight = 5, kCommunicatorsWeight = 10, kSnapshotsWeight = 2;
constexpr int kSummaryWeight = 3;
// The last calls of one communicator: `pulse trace` and `pulse capture` request them while others
// poll the JSON.
constexpr int kCallsWeight = 6;
// Stalls of this length may be reported as hangs: less than the shortest possible setting.
constexpr int64_t kOrderAfterNs = 500000000;

// The answer depends on these request headers.
constexpr std::string_view kVary = "Vary: Accept, Accept-Encoding\r\n";
constexpr std::string_view kVaryGzip =
    "Vary: Accept, Accept-Encoding\r\nContent-Encoding: gzip\r\n";

constexpr std::string_view kCommunicatorsPath = "/api/v1/communicators/";

// Gives every process the shorter of its own threshold and the endpoint's (0: none was set).
void SetThresholds(int64_t own_ns, SnapshotSet* set) {
  for (auto* processes : {&set->processes, &set->ended}) {
    for (ProcessSnapshot& process : *processes) {
      process.hang_after_ns = ShorterThreshold(process.hang_after_ns, own_ns);
      if (process.hang_after_ns == 0) process.hang_after_ns = kDefaultHangAfterNs;
    }
  }
}

}  // namespace

Pages::Pages(const ServerOptions* options, Node* node,
             std::function<bool(bool in_any_case)> cut_off_slowest)
    : options_(*options),
      node_(*node),
      failure_(options->log),
      cache_(CacheOptions(std::move(cut_off_slowest))) {}

std::vector<Handler> Pages::Handlers() {
  return {
      {"/metrics", "metrics as text, OpenMetrics or protobuf (header Accept)",
       [this](const HttpRequest& request) {
         return Answer(static_cast<std::size_t>(NegotiateFormat(request.accept)), request);
       }},
      {"/api/v1/communicators", "communicators, ranks and findings",
       [this](const HttpRequest& request) { return Answer(kCommunicators, request); }},
      {kCommunicatorsPath, "ID/calls: the last calls of a communicator",
       [this](const HttpRequest& request) { return AnswerCalls(request); }},
      {"/api/v1/snapshots", "snapshots for pulse diagnose and pulse watch (protobuf)",
       [this](const HttpRequest& request) { return Answer(kSnapshots, request); }},
      {"/api/v1/summary", "stalls and late ranks, for pulse watch",
       [this](const HttpRequest& request) { return Answer(kSummary, request); }},
  };
}

HttpResponse Pages::AnswerCalls(const HttpRequest& request) {
  std::string_view comm = std::string_view(request.path).substr(kCommunicatorsPath.size());
  if (!absl::ConsumeSuffix(&comm, "/calls")) return {404};
  if (!IsCommunicatorId(comm)) {
    return TextResponse(400, "400 Bad Request\na communicator's id has 16 hexadecimal digits\n");
  }
  HttpResponse response = Answer(kCalls, request, absl::AsciiStrToLower(comm));
  if (response.status != 404) return response;
  return TextResponse(404, "404 Not Found\nno communicator of this id is known here\n");
}

HttpResponse Pages::Answer(std::size_t kind, const HttpRequest& request,
                           const std::string& argument) {
  PageCache::Answer answer = cache_.Get(kind, argument, NegotiateGzip(request.accept_encoding));
  HttpResponse response = {answer.status, kTextType, std::move(answer.body),
                           std::string(answer.is_packed ? kVaryGzip : kVary)};
  if (answer.status == 200) {
    response.type = kind == kSnapshots    ? kSnapshotMessageType
                    : kind < kPageFormats ? ContentType(static_cast<PageFormat>(kind))
                                          : kJsonType;
  }
  if (answer.age.count() > 0) {
    absl::StrAppend(&response.headers, "Age: ", answer.age.count(), "\r\n");
  }
  if (answer.status == 503) {
    absl::StrAppend(&response.headers, "Retry-After: ", answer.retry_after.count(), "\r\n");
  }
  return response;
}

int64_t Pages::HangAfterNs() const {
  return options_.hang_after ? std::chrono::nanoseconds(options_.hang_after()).count() : 0;
}

SnapshotSet Pages::ReadAll(ReadWish wish) {
  // The diagnosis compares the order of calls only in a hang: reads none while there is progress.
  wish.order_of_stalled_since_ns = RealtimeNs() - kOrderAfterNs;
  const int64_t own_ns = HangAfterNs();
  SnapshotSet set = options_.source(wish);
  for (ProcessSnapshot& process : set.processes) {
    if (process.pid == getpid()) AddRunState(process.pid, RealtimeNs(), &process);
  }
  node_.Read(&set, MonotonicNow(), wish);
  JoinOutsideRanks(&set);
  SetThresholds(own_ns, &set);
  gpu_uses_.Add(RealtimeNs(), &set);
  ForgetSharedRanks(&set);
  pace_.Update(&set, options_.pace_clock ? options_.pace_clock() : RealtimeNs());
  stats_.segments_read += std::count_if(
      set.processes.begin(), set.processes.end(),
      [](const ProcessSnapshot& process) { return process.end == ProcessEnd::kLive; });
  return set;
}

std::vector<Family> Pages::ReadFamilies(PageFormat format) {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  stats_.process = ReadProcessUse();
  return BuildFamilies(set, options_.static_labels, stats_, options_.exposition, format,
                       diagnosis_.Update(set, now_ns), now_ns);
}

std::string Pages::MakeCommunicators() {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  const auto without = options_.without_plugin ? options_.without_plugin() : std::nullopt;
  return CommunicatorsJson(set, now_ns, diagnosis_.Update(set, now_ns),
                           without ? &*without : nullptr);
}

std::string Pages::MakeSnapshots() {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return WriteSnapshots(set, now_ns, HangAfterNs());
}

std::string Pages::MakeSummary() {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return SummaryJson(set, diagnosis_.Update(set, now_ns), now_ns);
}

std::optional<std::string> Pages::MakeCalls(const std::string& comm) {
  const std::optional<uint64_t> comm_id = ParseCommunicatorId(comm);
  if (!comm_id) return std::nullopt;
  const SnapshotSet set = ReadAll({ReadWish::LastCalls::kOfOne, *comm_id});
  const int64_t now_ns = RealtimeNs();
  std::string text = CallsJson(set, *comm_id, now_ns, diagnosis_.Update(set, now_ns));
  if (text.empty()) return std::nullopt;
  return text;
}

PageCache::Options Pages::CacheOptions(std::function<bool(bool in_any_case)> cut_off_slowest) {
  PageCache::Options options;
  // In the order of Kind.
  options.kinds = {
      {[this](auto&) { return TextFormat(ReadFamilies(PageFormat::kText)); }, kFormatWeight},
      {[this](auto&) { return OpenMetricsFormat(ReadFamilies(PageFormat::kOpenMetrics)); },
       kFormatWeight},
      {[this](auto&) { return ProtobufFormat(ReadFamilies(PageFormat::kProtobuf)); },
       kFormatWeight},
      {[this](auto&) { return MakeCommunicators(); }, kCommunicatorsWeight},
      {[this](auto&) { return MakeSnapshots(); }, kSnapshotsWeight},
      {[this](auto&) { return MakeSummary(); }, kSummaryWeight},
      {[this](auto& comm) { return MakeCalls(comm); }, kCallsWeight}};
  options.clock = [] { return MonotonicNow(); };
  options.cpu_time = ThreadCpuTime;
  options.cut_off_slowest = std::move(cut_off_slowest);
  options.on_failure = [this](const std::string& reason) {
    failure_.Give("HTTP endpoint: cannot make the page: ", reason);
  };
  options.on_work = [this](double seconds, bool made) {
    if (made) stats_.pages += 1;
    stats_.seconds += seconds;
    // Returns the memory that a page leaves fragmented: the next page would not fit into it. Not in
    // a job's process, where that would delay the job's own threads.
    if (made && options_.peers.agent) malloc_trim(0);
  };
  options.cpu_share = options_.cpu_share * kPagesShare;
  return options;
}

}  // namespace nccl_pulse
