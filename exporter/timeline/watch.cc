#include "exporter/timeline/watch.h"

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

constexpr milliseconds kAgainAfter{1000};    // an endpoint that failed
constexpr milliseconds kLookPatience{1000};  // others wait meanwhile
constexpr int kLateLooks = 3;  // so many times the client's patience, for who was never looked at
constexpr milliseconds kCommunicatorsEvery{2000};
constexpr milliseconds kLongestSleep{50};        // until somebody who wants it to stop is heard
constexpr std::size_t kMostCommunicators = 256;  // of an endpoint
constexpr std::size_t kMostNotes = 1000;

// No step of the wall clock changes it.
int64_t ArrivalNs() {
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

// A rank of which the page does not say it may be live.
bool HasLiveRank(const Json& comm) {
  const Json& ranks = At(comm, "ranks");
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const Json& each) { return At(each, "active") != false; });
}

}  // namespace

JobWatch::JobWatch(const std::vector<Address>& endpoints, const JobLookOptions& options)
    : addresses_(endpoints), options_(options), endpoints_(endpoints.size()) {
  for (const Address& each : endpoints) seen_.endpoints.push_back(each.name());
  seen_.communicators.resize(endpoints.size());
}

void JobWatch::Begin() {
  seen_.clocks = MeasureClocks(addresses_, options_.client);
  AskCommunicators();
}

void JobWatch::MeasureClocksAgain() {
  const std::vector<std::optional<ClockOffset>> now = MeasureClocks(addresses_, options_.client);
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::optional<ClockOffset>& clock = seen_.clocks[i];
    if (!now[i]) continue;  // it does not answer any more
    clock = clock ? ClockOffset{std::min(clock->low_ns, now[i]->low_ns),
                                std::max(clock->high_ns, now[i]->high_ns)}
                  : now[i];
  }
}

std::size_t JobWatch::heard() const {
  return static_cast<std::size_t>(
      std::count_if(endpoints_.begin(), endpoints_.end(),
                    [](const Endpoint& each) { return each.failure.empty(); }));
}

std::size_t JobWatch::communicators() const {
  std::size_t count = 0;
  for (const Endpoint& each : endpoints_) count += each.communicators.size();
  return count;
}

std::vector<JobProcess> JobWatch::processes() const {
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

void JobWatch::Note(std::string note) {
  if (seen_.notes.size() < kMostNotes) seen_.notes.push_back(std::move(note));
}

void JobWatch::NoteFailure(std::size_t endpoint, const std::string& reason) {
  Endpoint& one = endpoints_[endpoint];
  one.due = steady_clock::now() + kAgainAfter;
  if (one.failure != reason)
    Note(absl::StrCat("endpoint ", seen_.endpoints[endpoint], ": ", reason));
  one.failure = reason;
}

void JobWatch::AskCommunicators() {
  std::vector<FleetRequest> requests;
  for (const Address& each : addresses_) requests.push_back({each, "/api/v1/communicators"});
  ranks_ = 0;
  AskAll(requests, options_.client, [this](std::size_t index, const FleetAnswer& answer) {
    Endpoint& endpoint = endpoints_[index];
    if (!answer.error.empty()) return NoteFailure(index, answer.error);
    Json page = answer.status == 200 ? ParseJson(answer.body) : Json();
    if (!At(page, "communicators").is_array()) {
      return NoteFailure(index, answer.status == 200
                                    ? "the answer is not from NCCL Pulse"
                                    : absl::StrCat("it answers with status ", answer.status));
    }
    endpoint.failure.clear();
    NoteCommunicators(index, page);
    seen_.communicators[index] = std::move(page);
  });
}

void JobWatch::NoteCommunicators(std::size_t endpoint, const Json& page) {
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

void JobWatch::Look(const std::vector<Question>& questions, milliseconds patience) {
  if (questions.empty()) return;
  std::vector<FleetRequest> requests;
  for (const Question& each : questions) {
    requests.push_back(
        {addresses_[each.endpoint], absl::StrCat("/api/v1/communicators/", each.comm, "/calls")});
  }
  FleetClientOptions client = options_.client;
  client.patience = std::min(client.patience, patience);
  AskAll(requests, client, [&](std::size_t index, const FleetAnswer& answer) {
    const Question& question = questions[index];
    Endpoint& endpoint = endpoints_[question.endpoint];
    std::vector<Communicator>& all = endpoint.communicators;
    const auto comm = std::find_if(
        all.begin(), all.end(), [&](const Communicator& each) { return each.id == question.comm; });
    if (comm == all.end()) return;
    const Time was_due = comm->due;
    comm->due = comm->is_live ? steady_clock::now() + kLookEvery : Time::max();
    // The client has waited as long as it may.
    if (answer.status == 503 || answer.error.find("(503)") != std::string::npos) {
      ++refused_;
      endpoint.refuses = true;
      endpoint.due = steady_clock::now() + kLookEvery;
      if (comm->is_live) comm->due = was_due;
    } else if (!answer.error.empty()) {
      NoteFailure(question.endpoint, answer.error);
    } else if (answer.status == 404) {
      all.erase(comm);
    } else if (answer.status != 200) {
      NoteFailure(question.endpoint, absl::StrCat("it answers with status ", answer.status));
    } else if (seen_.recording.AddCalls(question.endpoint, ParseJson(answer.body), ArrivalNs()) ==
               0) {
      NoteFailure(question.endpoint, "the answer is not from NCCL Pulse");
    } else {
      endpoint.failure.clear();
      endpoint.refuses = false;
      comm->is_seen = true;
      comm->is_done = !comm->is_live;
      ++seen_.looks;
    }
  });
}

void JobWatch::LookAtDue(Time now) {
  std::vector<Question> questions;
  Time next = now + kLongestSleep;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    Endpoint& endpoint = endpoints_[i];
    if (endpoint.communicators.empty() || endpoint.due > now) continue;
    const Communicator& first =
        *std::min_element(endpoint.communicators.begin(), endpoint.communicators.end(),
                          [now](const Communicator& a, const Communicator& b) {
                            const bool is_a_due = a.due <= now, is_b_due = b.due <= now;
                            return std::tuple(!is_a_due, is_a_due && !a.is_live, a.due) <
                                   std::tuple(!is_b_due, is_b_due && !b.is_live, b.due);
                          });
    if (first.due <= now) {
      questions.push_back({i, first.id});
    } else {
      next = std::min(next, first.due);
    }
  }
  if (questions.empty()) {
    std::this_thread::sleep_until(next);
  } else {
    Look(questions, kLookPatience);
  }
}

bool JobWatch::HasUnseen() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const Endpoint& endpoint) {
    const std::vector<Communicator>& all = endpoint.communicators;
    return std::any_of(all.begin(), all.end(),
                       [](const Communicator& each) { return each.is_live && !each.is_seen; });
  });
}

void JobWatch::LookAtAll() {
  std::vector<std::vector<Communicator>> all(endpoints_.size());
  std::size_t most = 0;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    all[i] = endpoints_[i].communicators;
    std::stable_sort(all[i].begin(), all[i].end(), [](const auto& a, const auto& b) {
      return std::tuple(!a.is_live, a.is_seen) < std::tuple(!b.is_live, b.is_seen);
    });
    most = std::max(most, all[i].size());
  }
  for (std::size_t turn = 0; turn < most; ++turn) {
    std::vector<Question> questions;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      // Who fails is not asked once more for each of its communicators.
      if (turn >= all[i].size() || !endpoints_[i].failure.empty()) continue;
      const Communicator& comm = all[i][turn];
      if (comm.is_done || (!comm.is_live && endpoints_[i].refuses)) continue;
      questions.push_back({i, comm.id});
    }
    Look(questions, turn == 0 ? options_.client.patience : kLookPatience);
  }
}

void JobWatch::Watch(milliseconds window, const std::atomic<bool>& stop) {
  const Time end = steady_clock::now() + window;
  Time communicators_due = steady_clock::now() + kCommunicatorsEvery;
  const Time last = end + kLateLooks * options_.client.patience;
  const auto goes_on = [&](Time now) { return now < end || (now < last && HasUnseen()); };
  for (Time now = steady_clock::now(); goes_on(now) && !stop.load(); now = steady_clock::now()) {
    if (now >= communicators_due) {
      AskCommunicators();
      communicators_due = now + kCommunicatorsEvery;
    }
    LookAtDue(now);
  }
  seen_.recording.SetEnd(ArrivalNs());
  AskCommunicators();
  LookAtAll();
  MeasureClocksAgain();
  if (refused_ != 0) {
    Note(absl::StrCat(refused_,
                      " polls were refused: the endpoint had no processor time left for "
                      "them (503). Calls lost by that are marked GAP"));
  }
  const JobLook look = LookAtJob(addresses_, options_);
  if (look.heard != 0) seen_.verdict = ParseJson(JobJson(look));
}

}  // namespace nccl_pulse
