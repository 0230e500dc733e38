#include "exporter/timeline/call_poller.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/fleet/clock_offset.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAgainAfter{1000};    // for an endpoint that failed
constexpr milliseconds kLookPatience{1000};  // for an answer: other endpoints wait meanwhile
constexpr milliseconds kCommunicatorsEvery{2000};
constexpr milliseconds kLongestSleep{50};        // limits the delay of a stop
constexpr std::size_t kMostCommunicators = 256;  // per endpoint
constexpr std::size_t kMostNotes = 1000;

// Steady clock: unaffected by steps of the wall clock.
int64_t ArrivalNs() {
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

// True if a rank is live, or the page does not say.
bool HasLiveRank(const Json& comm) {
  const Json& ranks = At(comm, "ranks");
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const Json& each) { return At(each, "active") != false; });
}

}  // namespace

CallPoller::CallPoller(const std::vector<Address>& endpoints, const JobLookOptions& options)
    : addresses_(endpoints), options_(options), endpoints_(endpoints.size()) {
  for (const Address& each : endpoints) seen_.endpoints.push_back(each.name());
  seen_.communicators.resize(endpoints.size());
}

void CallPoller::Begin() {
  seen_.clocks = MeasureClocks(addresses_, options_.client);
  AskCommunicators();
  if (LiveUnseen() == 0) return;
  for (Endpoint& endpoint : endpoints_) {
    for (Communicator& each : endpoint.communicators) each.had_ended = !each.is_live;
  }
}

void CallPoller::MeasureClocksAgain() {
  const std::vector<std::optional<ClockOffset>> now = MeasureClocks(addresses_, options_.client);
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::optional<ClockOffset>& clock = seen_.clocks[i];
    if (!now[i]) continue;  // no longer answers
    clock = clock ? ClockOffset{std::min(clock->low_ns, now[i]->low_ns),
                                std::max(clock->high_ns, now[i]->high_ns)}
                  : now[i];
  }
}

std::size_t CallPoller::heard() const {
  return static_cast<std::size_t>(
      std::count_if(endpoints_.begin(), endpoints_.end(),
                    [](const Endpoint& each) { return each.failure.empty(); }));
}

std::size_t CallPoller::communicators() const {
  std::size_t count = 0;
  for (const Endpoint& each : endpoints_) count += each.communicators.size();
  return count;
}

std::vector<JobProcess> CallPoller::processes() const {
  std::map<std::tuple<std::string, int64_t, uint32_t>, std::size_t> found;
  for (std::size_t i = 0; i < seen_.communicators.size(); ++i) {
    for (const Json& comm : At(seen_.communicators[i], "communicators")) {
      for (const Json& rank : At(comm, "ranks")) {
        const Json& process = At(rank, "process");
        if (TextAt(process, "state") != "live") continue;
        found.emplace(std::tuple(TextAt(process, "hostname"), NumberAt(process, "pid"),
                                 static_cast<uint32_t>(NumberAt(process, "pid_namespace"))),
                      i);
      }
    }
  }
  std::vector<JobProcess> processes;
  for (const auto& [who, endpoint] : found) {
    const auto& [hostname, pid, pid_namespace] = who;
    processes.push_back({endpoint, hostname, pid, pid_namespace});
  }
  return processes;
}

void CallPoller::Note(std::string note) {
  if (seen_.notes.size() < kMostNotes) seen_.notes.push_back(std::move(note));
}

void CallPoller::NoteFailure(std::size_t endpoint, const std::string& reason) {
  Endpoint& one = endpoints_[endpoint];
  one.due = steady_clock::now() + kAgainAfter;
  if (one.failure != reason)
    Note(absl::StrCat("endpoint ", seen_.endpoints[endpoint], ": ", reason));
  one.failure = reason;
}

void CallPoller::AskCommunicators() {
  std::vector<FleetRequest> requests;
  for (const Address& each : addresses_) requests.push_back({each, "/api/v1/communicators"});
  ranks_ = 0;
  AskAll(requests, options_.client, [this](std::size_t index, const FleetAnswer& answer) {
    Endpoint& endpoint = endpoints_[index];
    const std::string problem = ProblemOf(answer, "/api/v1/communicators");
    if (!problem.empty()) return NoteFailure(index, problem);
    Json page = ParseJson(answer.body);
    if (!At(page, "communicators").is_array()) {
      return NoteFailure(index, "the answer is not from NCCL Pulse");
    }
    const std::size_t others = page_bytes_ - endpoint.page_bytes;
    const std::size_t bytes = JsonMemory(answer.body).value_or(0);
    if (others + bytes > kMostPageBytes) {
      return NoteFailure(index, "its communicators take too much memory beside the others'");
    }
    page_bytes_ = others + bytes;
    endpoint.page_bytes = bytes;
    endpoint.failure.clear();
    NoteCommunicators(index, page);
    seen_.communicators[index] = std::move(page);
  });
}

void CallPoller::NoteCommunicators(std::size_t endpoint, const Json& page) {
  Endpoint& one = endpoints_[endpoint];
  std::map<std::string, Communicator> known;
  for (Communicator& each : one.communicators) known.emplace(each.id, std::move(each));
  one.communicators.clear();
  for (const Json& each : page["communicators"]) {
    const std::string id = TextAt(each, "comm");
    if (!IsCommunicatorId(id)) continue;
    ranks_ += At(each, "ranks").size();
    Communicator comm = known[id];
    comm.id = id;
    comm.is_live = HasLiveRank(each);
    one.communicators.push_back(std::move(comm));
  }
  std::stable_partition(one.communicators.begin(), one.communicators.end(),
                        [](const Communicator& each) { return each.is_live; });
  if (one.communicators.size() <= kMostCommunicators) return;
  if (!one.has_too_many) {
    Note(absl::StrCat(seen_.endpoints[endpoint], " has ", one.communicators.size(),
                      " communicators: ", kMostCommunicators, " are polled"));
  }
  one.has_too_many = true;
  one.communicators.resize(kMostCommunicators);
}

void CallPoller::Look(const std::vector<Question>& questions, const FleetClientOptions& client) {
  if (questions.empty()) return;
  std::vector<FleetRequest> requests;
  for (const Question& each : questions) {
    requests.push_back(
        {addresses_[each.endpoint], absl::StrCat("/api/v1/communicators/", each.comm, "/calls")});
  }
  AskAll(requests, client, [&](std::size_t index, const FleetAnswer& answer) {
    const Question& question = questions[index];
    Endpoint& endpoint = endpoints_[question.endpoint];
    std::vector<Communicator>& all = endpoint.communicators;
    const auto comm = std::find_if(
        all.begin(), all.end(), [&](const Communicator& each) { return each.id == question.comm; });
    if (comm == all.end()) return;
    const Time was_due = comm->due;
    comm->due = steady_clock::now() + kLookEvery;
    if (answer.status == 503) {
      ++refused_;
      endpoint.due = steady_clock::now() + kLookEvery;
      comm->due = was_due;
    } else if (answer.status == 404) {
      all.erase(comm);
    } else if (const std::string problem = ProblemOf(answer, requests[index].target);
               !problem.empty()) {
      NoteFailure(question.endpoint, problem);
    } else if (seen_.recording.AddCalls(question.endpoint, ParseJson(answer.body), ArrivalNs()) ==
               0) {
      NoteFailure(question.endpoint, "the answer is not from NCCL Pulse");
    } else {
      endpoint.failure.clear();
      comm->is_seen = true;
      ++seen_.looks;
    }
  });
}

void CallPoller::LookAtDue(Time now) {
  std::vector<Question> questions;
  Time next = now + kLongestSleep;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    Endpoint& endpoint = endpoints_[i];
    if (endpoint.communicators.empty() || endpoint.due > now) continue;
    // Ended communicators have no new calls and are read at the end.
    const auto first =
        std::min_element(endpoint.communicators.begin(), endpoint.communicators.end(),
                         [](const Communicator& a, const Communicator& b) {
                           return std::tuple(!a.is_live, a.due) < std::tuple(!b.is_live, b.due);
                         });
    if (!first->is_live) continue;
    if (first->due <= now) {
      questions.push_back({i, first->id});
    } else {
      next = std::min(next, first->due);
    }
  }
  if (questions.empty()) {
    std::this_thread::sleep_until(next);
  } else {
    FleetClientOptions client = options_.client;
    client.patience = std::min(client.patience, kLookPatience);
    client.retry_until = now;
    Look(questions, client);
  }
}

std::size_t CallPoller::LiveUnseen() const {
  std::size_t unseen = 0;
  for (const Endpoint& endpoint : endpoints_) {
    for (const Communicator& each : endpoint.communicators) {
      if (each.is_live && !each.is_seen) ++unseen;
    }
  }
  return unseen;
}

void CallPoller::LookAtAll() {
  enum { kUnseen, kSeen, kEnded, kKinds };
  std::vector<Question> questions[kKinds];
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    // A failed endpoint is not asked again for each of its communicators.
    if (!endpoints_[i].failure.empty()) continue;
    for (const Communicator& each : endpoints_[i].communicators) {
      if (each.had_ended) continue;
      questions[!each.is_live ? kEnded : each.is_seen ? kSeen : kUnseen].push_back({i, each.id});
    }
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    FleetClientOptions client = options_.client;
    if (kind == kUnseen) client.retry_until = steady_clock::now() + kLateLooks * client.patience;
    if (kind == kEnded) client.retry_until = steady_clock::now();
    Look(questions[kind], client);
  }
}

void CallPoller::Poll(milliseconds window, const std::function<void(std::size_t)>& tell) {
  const Time end = steady_clock::now() + window;
  Time communicators_due = steady_clock::now() + kCommunicatorsEvery;
  const auto is_stopped = [this] {
    return options_.client.stop != nullptr && options_.client.stop->load();
  };
  for (Time now = steady_clock::now(); now < end && !is_stopped(); now = steady_clock::now()) {
    if (now >= communicators_due) {
      AskCommunicators();
      communicators_due = now + kCommunicatorsEvery;
    }
    LookAtDue(now);
  }
  seen_.recording.SetEnd(ArrivalNs());
  AskCommunicators();
  if (const std::size_t unseen = LiveUnseen(); unseen != 0 && tell) tell(unseen);
  LookAtAll();
  MeasureClocksAgain();
  if (refused_ != 0) {
    Note(absl::StrCat(refused_,
                      " polls were refused, the endpoint was busy (503). Calls lost by that "
                      "are marked GAP"));
  }
  const JobLook look = LookAtJob(addresses_, options_);
  if (look.heard != 0) seen_.verdict = ParseJson(JobJson(look));
}

}  // namespace nccl_pulse
