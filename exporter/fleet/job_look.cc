#include "exporter/fleet/job_look.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/job_words.h"
#include "exporter/node/realtime_clock.h"

namespace nccl_pulse {
namespace {

using std::chrono::steady_clock;

// How often a look is repeated because it found another communicator hanging.
constexpr int kMostAgain = 2;
// No endpoint goes by less.
constexpr int64_t kLeastHangAfterNs = 1000000000;

std::string StatusWords(int status) {
  switch (status) {
    case 401:
    case 403:
      return absl::StrCat("it does not accept these credentials (", status, ")");
    case 404:
      return "it has no /api/v1/snapshots (404): an older version, or another program";
    case 503:
      return "it has no processor time left for an answer (503)";
    default:
      return absl::StrCat("it answers with status ", status);
  }
}

class Look {
 public:
  Look(const std::vector<Address>& endpoints, const JobLookOptions& options, Diagnosis* diagnosis)
      : endpoints_(endpoints), options_(options), diagnosis_(diagnosis), all_(options.filter) {
    look_.endpoints = endpoints.size();
    look_.now_realtime_ns = RealtimeNs();
  }

  JobLook Make() {
    std::vector<FleetRequest> requests;
    requests.reserve(endpoints_.size());
    for (const Address& address : endpoints_) requests.push_back({address, "/api/v1/snapshots"});
    AskAll(requests, options_.client, [this](std::size_t index, FleetAnswer answer) {
      const std::string problem = Take(answer);
      if (problem.empty()) {
        ++look_.heard;
      } else {
        look_.unheard[problem].push_back(endpoints_[index].name());
      }
    });
    for (auto& [problem, names] : look_.unheard) std::sort(names.begin(), names.end());
    const int64_t hang_after_ns = std::chrono::nanoseconds(options_.hang_after).count();
    look_.shortest_hang_after_ns = std::min(shortest_ns_, hang_after_ns);
    look_.set = all_.Take(hang_after_ns);
    look_.diagnosis = diagnosis_->Update(look_.set, look_.now_realtime_ns);
    return std::move(look_);
  }

 private:
  // "" if the answer was added to the others, otherwise what is wrong.
  std::string Take(const FleetAnswer& answer) {
    if (!answer.error.empty()) return answer.error;
    if (answer.status != 200) return StatusWords(answer.status);
    if (answer.age > kMostAge) {
      return absl::StrCat("what it answers is older than ", kMostAge.count(), " s, and not used");
    }
    SnapshotMessage message;
    std::string error;
    const uint64_t room = std::min(kMostEndpointBytes, kMostMemoryBytes - taken_);
    if (!ReadSnapshots(answer.body, look_.now_realtime_ns, room, &message, &error)) {
      return absl::StrCat("it answers with ", error);
    }
    taken_ += message.bytes;
    if (message.hang_after_ns > 0) shortest_ns_ = std::min(shortest_ns_, message.hang_after_ns);
    if (all_.Add(std::move(message)) == 0) ++look_.without_job;
    return "";
  }

  const std::vector<Address>& endpoints_;
  const JobLookOptions& options_;
  Diagnosis* diagnosis_;
  SnapshotUnion all_;
  uint64_t taken_ = 0;
  int64_t shortest_ns_ = INT64_MAX;  // that an endpoint goes by
  JobLook look_;
};

using Communicators = std::set<std::pair<uint64_t, uint32_t>>;  // by id and number

Communicators::value_type IdOf(const CommunicatorDiagnosis& each) {
  return {each.comm_id, each.number};
}

Communicators Hanging(const DiagnosisResult& diagnosis) {
  Communicators hanging;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.hang) hanging.insert(IdOf(each));
  }
  return hanging;
}

// How many of these communicators are still reported. It is not known whether the others went on.
std::size_t SeenOf(const Communicators& communicators, const DiagnosisResult& diagnosis) {
  return static_cast<std::size_t>(std::count_if(
      diagnosis.begin(), diagnosis.end(),
      [&communicators](const auto& each) { return communicators.count(IdOf(each)) != 0; }));
}

// Keeps only the hangs of these communicators. Returns how many there are.
std::size_t KeepHangs(const Communicators& communicators, DiagnosisResult* diagnosis) {
  std::size_t kept = 0;
  for (CommunicatorDiagnosis& each : *diagnosis) {
    if (!each.hang) continue;
    if (communicators.count(IdOf(each)) != 0) {
      ++kept;
    } else {
      each.hang.reset();
    }
  }
  return kept;
}

// What is no hang yet, and may be one on an endpoint's own page.
void NoteEarlyHangs(std::chrono::milliseconds hang_after, JobLook* look) {
  const int64_t shortest_ns = look->shortest_hang_after_ns;
  if (shortest_ns >= std::chrono::nanoseconds(hang_after).count()) return;
  Diagnosis early{std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(std::max(shortest_ns, kLeastHangAfterNs)))};
  std::size_t communicators = 0;
  int64_t since_ns = look->now_realtime_ns;
  for (const auto& each : early.Update(look->set, look->now_realtime_ns)) {
    if (!each.hang || each.hang->is_usual) continue;
    ++communicators;
    since_ns = std::min(since_ns, each.hang->since_realtime_ns);
  }
  if (communicators == 0) return;
  look->health.notes.insert(look->health.notes.begin(),
                            absl::StrFormat("%d communicator%s made no progress for up to %s: no "
                                            "hang here before %s (--hang-after), but "
                                            "one on an endpoint that goes by %s. Ask again.",
                                            communicators, communicators == 1 ? " has" : "s have",
                                            AgeWords(ElapsedNs(look->now_realtime_ns, since_ns)),
                                            AgeWords(std::chrono::nanoseconds(hang_after).count()),
                                            AgeWords(shortest_ns)));
}

}  // namespace

JobLook LookAtJob(const std::vector<Address>& endpoints, const JobLookOptions& options) {
  const auto start = steady_clock::now();
  Diagnosis diagnosis(options.hang_after);  // remembers the calls of all looks
  JobLook look;
  Communicators before;  // what hung at the last look
  std::size_t went_on = 0;
  int looks = 0;
  for (int hangs = 0;;) {
    look = Look(endpoints, options, &diagnosis).Make();
    ++looks;
    Communicators now = Hanging(look.diagnosis);
    const std::size_t kept = KeepHangs(before, &look.diagnosis);
    if (!before.empty()) went_on = SeenOf(before, look.diagnosis) - kept;
    look.verdict = JudgeJob(look.set, look.diagnosis, look.now_realtime_ns);
    before = std::move(now);
    // Who does not answer would be waited for in each look.
    const bool may_look = looks < options.most_looks &&
                          steady_clock::now() - start < options.most_looks * options.pause;
    const bool is_another_due =
        before.empty() ? may_look && IsAnotherLookWorthwhile(look.diagnosis, look.verdict)
                       : kept == 0 && hangs++ < kMostAgain;
    if (!is_another_due) break;
    look = JobLook();  // frees its memory, which is needed
    std::this_thread::sleep_for(options.pause);
  }
  look.looks = looks;
  look.went_on = went_on;
  look.health = HealthOf(look.set, look.diagnosis, look.now_realtime_ns);
  if (before.empty()) NoteEarlyHangs(options.hang_after, &look);
  if (options.ras.has_value() && look.health.missing_ranks != 0) {
    look.ras_address = options.ras->name();
    look.ras = AskRas(*options.ras, options.client.patience);
  }
  look.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  return look;
}

}  // namespace nccl_pulse
