#include "metrics/header_writer.h"

#include "metrics/shared_bytes.h"

namespace nccl_pulse {

void HeaderWriter::Identify(const Identity& identity) {
  header_.pid = identity.pid;
  header_.pid_namespace = identity.pid_namespace;
  header_.nccl_api_version = identity.nccl_api_version;
  header_.event_mask = identity.event_mask;
  header_.start_realtime_ns = identity.start_realtime_ns;
  CopyToShared(header_.plugin_version, identity.plugin_version);
  CopyToShared(header_.timing, identity.timing);
  CopyToShared(header_.hostname, identity.hostname);
  CopyToShared(header_.global_rank, identity.global_rank);
  CopyToShared(header_.local_rank, identity.local_rank);
  CopyToShared(header_.job_id, identity.job_id);
  CopyToShared(header_.static_labels, identity.static_labels);
  CopyToShared(header_.nccl_environment, identity.nccl_environment);
}

void HeaderWriter::NameSources(std::string_view durations, std::string_view completions) {
  CopyToShared(header_.duration_source, durations);
  CopyToShared(header_.completion_source, completions);
}

void HeaderWriter::RenewTimes(int64_t realtime_offset_ns, uint64_t now_ns) {
  header_.realtime_offset_ns.store(realtime_offset_ns);
  header_.last_poll_monotonic_ns.store(now_ns);
}

void HeaderWriter::StoreForeignMask(uint32_t foreign, uint64_t changes) {
  header_.foreign_event_mask.store(foreign);
  header_.event_mask_changes.store(changes);
}

bool HeaderWriter::TakeSeries(uint64_t most) {
  uint64_t before = header_.series_used.load();
  do {
    if (before >= most) return false;
    // Relaxed: a budget orders nothing. A compare-and-swap, so that the limit is never exceeded.
  } while (!header_.series_used.replace(before, before + 1));
  return true;
}

void HeaderWriter::AddRecycledCalls(uint32_t row, uint64_t calls, uint64_t bytes) {
  header_.recycled_bytes[row].add(bytes);  // first, as calls are counted
  header_.recycled_calls[row].add(calls);
}

}  // namespace nccl_pulse
