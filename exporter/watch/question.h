// Finds which job a request to the watcher is about.
//
// Thread: any, no state. Errors: false, with a sentence in `error`.
#ifndef EXPORTER_WATCH_QUESTION_H_
#define EXPORTER_WATCH_QUESTION_H_

#include <string>
#include <string_view>

#include "exporter/fleet/snapshot_union.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

// "job_id=4711&comm=00e1d3a7b2c4f586", percent-encoded; other keys are for others.
bool ReadQuery(std::string_view query, JobFilter* filter, std::string* error);

// The body of Alertmanager's webhook (version 4): the job that its firing alerts name. Of several
// jobs the first alert's. `is_resolved`: nothing fires any more. Source: Alertmanager's
// documentation, "webhook_config".
bool ReadAlerts(std::string_view body, JobFilter* filter, bool* is_resolved, std::string* error);

std::string PercentEncoded(const std::string& text);
// Returns "?job_id=4711", or by communicator for a hang of a job without an ID: what ReadQuery reads.
std::string ReportQuery(const WatchedJob& job, const JobHang& hang);

// 16 hexadecimal digits.
bool ReadCommId(std::string_view text, JobFilter* filter, std::string* error);

// "job 4711", "the job of communicator ...", "all jobs".
std::string NameOf(const JobFilter& filter);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_QUESTION_H_
