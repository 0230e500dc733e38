#include "bench/fleet/made_up_rank.h"

#include <ctime>
#include <string>

#include "metrics/header_writer.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kSeriesLimit = 2048;  // the default
// A histogram page for each way of measuring each operation, and a counter page for each lane.
constexpr int kPagesOfCommunicator = 10;
// Of about 450 launches a second the default budget times one in 2^3.
constexpr int kSamplingExponent = 3;
constexpr int kWatchedOf = 100;  // network steps are watched for 1 % of the time
constexpr int kSampledOf = 64;   // callbacks whose cost is measured
constexpr int kFirstPid = 1'204'000;
constexpr uint64_t kInflightNs = 300'000;

int64_t NowNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * static_cast<int64_t>(kNsPerSecond) + now.tv_nsec;
}

uint64_t MonotonicNs() { return static_cast<uint64_t>(NowNs(CLOCK_MONOTONIC)); }

}  // namespace

MadeUpRank::MadeUpRank(const JobShape& job, int global_rank, int communicators)
    : test_(kSeriesLimit, kPagesOfCommunicator * communicators),
      random_(static_cast<uint64_t>(global_rank) + 1) {
  WriteIdentity(job, global_rank);
  for (const Membership& membership : CommunicatorsOf(job, global_rank, communicators)) {
    AddCommunicator(job, global_rank, membership);
  }
  for (Communicator& communicator : communicators_) {
    for (Operation& operation : communicator.operations) {
      Call(communicator, &operation);
      Call(communicator, &operation);
    }
  }
  RenewTimes();
}

void MadeUpRank::WriteIdentity(const JobShape& job, int global_rank) {
  const int local_rank = global_rank % job.gpus_per_node;
  const std::string hostname = HostName(global_rank / job.gpus_per_node);
  const std::string global = std::to_string(global_rank);
  const std::string local = std::to_string(local_rank);
  HeaderWriter::Identity identity;
  identity.pid = kFirstPid + 17 * local_rank;
  identity.nccl_api_version = 6;
  identity.event_mask = 0x8a;
  identity.start_realtime_ns = NowNs(CLOCK_REALTIME);
  identity.plugin_version = "0.1.0";
  identity.timing = "auto";
  identity.hostname = hostname;
  identity.global_rank = global;
  identity.local_rank = local;
  identity.job_id = "4711234";
  HeaderWriter header(segment());
  header.Identify(identity);
  header.NameSources("stream", "stream");
  header.StoreSamplingExponent(kSamplingExponent);
}

void MadeUpRank::AddCommunicator(const JobShape& job, int global_rank,
                                 const Membership& membership) {
  const auto index = static_cast<uint32_t>(communicators_.size());
  const int gpu = global_rank % job.gpus_per_node;
  const std::string gpu_index = std::to_string(gpu);
  const std::string uuid = GpuUuid(global_rank);
  const std::string pci_bus_id = PciBusId(gpu);
  RecordWriter::Identity identity;
  identity.comm_id = membership.comm_id;
  identity.name = membership.kind->name;
  identity.rank = membership.rank;
  identity.nranks = membership.nranks;
  identity.nnodes = membership.nnodes;
  identity.index = index;
  identity.gpu = gpu_index;
  identity.uuid = uuid;
  identity.pci_bus_id = pci_bus_id;
  identity.init_realtime_ns = NowNs(CLOCK_REALTIME);
  Communicator communicator{index,
                            test_.AddCommunicator(index, identity, CompletionSource::kStream),
                            membership.nranks,
                            membership.kind->group == Group::kWorld,
                            {}};
  for (const OperationKind& kind : membership.kind->operations) {
    communicator.operations.push_back({&kind, membership.nnodes > 1, test_.Intern(kind.op),
                                       static_cast<uint32_t>(SizeClassOf(kind.bytes))});
  }
  communicators_.push_back(std::move(communicator));
}

void MadeUpRank::Advance(uint64_t ns) {
  for (Communicator& communicator : communicators_) {
    for (Operation& operation : communicator.operations) {
      const uint64_t period_ns =
          kNsPerSecond / static_cast<uint64_t>(operation.kind->calls_per_second);
      for (operation.due_ns += ns; operation.due_ns >= period_ns; operation.due_ns -= period_ns) {
        Call(communicator, &operation);
      }
    }
  }
  network_observed_ns_ += ns / kWatchedOf;
  HeaderWriter(segment()).StoreNetworkObserved(network_observed_ns_);
  RenewTimes();
}

void MadeUpRank::RenewTimes() {
  const uint64_t now_ns = MonotonicNs();
  HeaderWriter(segment()).RenewTimes(NowNs(CLOCK_REALTIME) - static_cast<int64_t>(now_ns), now_ns);
  for (const Communicator& communicator : communicators_) {
    RecordWriter record = test_.Record(communicator.index);
    // The last launch is still in flight.
    const uint64_t launched_ns = now_ns - kInflightNs;
    record.NoteLastLaunch(launched_ns);
    record.StoreHeartbeat({record.followed_launches() - 1, launched_ns, OldestLaunch::kUnknown});
  }
}

void MadeUpRank::Call(const Communicator& communicator, Operation* operation) {
  const OperationKind& kind = *operation->kind;
  const uint64_t call = operation->calls++;
  const bool timed = call % (1 << kSamplingExponent) == 0;
  {
    LaneWriter lane = test_.Writer(communicator.index, communicator.generation, LaneRole::kLaunch);
    lane.Count(SeriesKey::Calls(operation->name, operation->size_class,
                                test_.Intern("ncclBfloat16"), false),
               1, kind.bytes);
    const UntimedReason untimed = timed ? SeriesKey::kTimed : UntimedReason::kNotSampled;
    if (kind.collective) {
      lane.CountSequenced(SeriesKey::Algorithm(operation->name, untimed, test_.Intern("RING"),
                                               test_.Intern("SIMPLE")),
                          call + 1);
    } else if (!timed) {
      lane.Count(SeriesKey::Untimed(operation->name, untimed), 1, 0);
    }
    lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)].publish_sum(2);
    lane.lane().callbacks[static_cast<int>(CallbackKind::kOperation)].publish_sum(2);
  }
  RecordWriter record = test_.Record(communicator.index);
  record.NoteCall(operation->name, operation->size_class);
  record.CountFollowedLaunch(MonotonicNs(), true);
  if (call % kSampledOf == 0) HeaderWriter(segment()).CountCost(5, 5 * 40);
  Complete(communicator, *operation, timed);
}

void MadeUpRank::Complete(const Communicator& communicator, const Operation& operation,
                          bool timed) {
  const uint64_t duration_ns = DurationNs(operation);
  const uint64_t bytes = operation.kind->bytes;
  if (operation.network) CrossNetwork(communicator, operation, duration_ns);
  LaneWriter lane =
      test_.Writer(communicator.index, communicator.generation, LaneRole::kBackground);
  lane.lane().last_completion_ns.store(MonotonicNs());
  if (!timed) return;
  lane.Observe(LatencyKey(operation.name, operation.size_class, LatencyKind::kDurationStream),
               duration_ns, bytes, bytes * static_cast<uint64_t>(communicator.nranks - 1));
  // Only collectives are timed on all ranks alike.
  if (!operation.kind->collective) return;
  test_.Record(communicator.index)
      .AppendTimedCall({operation.name, LatencyKind::kDurationStream,
                        static_cast<uint32_t>(operation.size_class),
                        static_cast<uint32_t>(operation.calls), bytes, duration_ns, MonotonicNs()});
}

void MadeUpRank::CrossNetwork(const Communicator& communicator, const Operation& operation,
                              uint64_t duration_ns) {
  const uint64_t bytes = operation.kind->bytes;
  LaneWriter lane = test_.Writer(communicator.index, communicator.generation, LaneRole::kProgress);
  lane.lane().callbacks[static_cast<int>(CallbackKind::kProxy)].publish_sum(4);
  lane.Observe(LatencyKey(operation.name, operation.size_class, LatencyKind::kCompletionProxy),
               duration_ns + duration_ns / 4, bytes, 0);
  if (operation.calls % kWatchedOf != 1) return;  // watches the first, so that the series exists
  lane.Observe(LatencyKey(operation.name, operation.size_class, LatencyKind::kDurationNetwork),
               duration_ns - duration_ns / 8, bytes,
               bytes * static_cast<uint64_t>(communicator.nranks - 1));
  lane.lane().callbacks[static_cast<int>(CallbackKind::kStep)].publish_sum(64);
  for (Cell& sent : lane.lane().network_bytes) sent.publish_sum(bytes);
  for (Cell& waited : lane.lane().network_wait_ns) waited.publish_sum(DurationNs(operation) / 8);
}

// From 70 % of the typical duration up; seldom above 170 %.
uint64_t MadeUpRank::DurationNs(const Operation& operation) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t thousandths = 700 + (random_ & 0xff) + (random_ >> 8 & 0xff) +
                               (random_ >> 16 & 0xf) * (random_ >> 20 & 0xf) * 2;
  return operation.kind->typical_ns * thousandths / 1000;
}

}  // namespace nccl_pulse
