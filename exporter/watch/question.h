// Parses requests to `pulse watch` into filters, which select the jobs to report on, and formats
// such requests.
//
// Thread: any, no state. Errors: false, with a sentence in `error`.
#ifndef EXPORTER_WATCH_QUESTION_H_
#define EXPORTER_WATCH_QUESTION_H_

#include <string>
#include <string_view>

#include "exporter/fleet/snapshot_union.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

// Parses "job_id=4711&comm=00e1d3a7b2c4f586", percent-encoded. Ignores other keys.
bool ReadQuery(std::string_view query, JobFilter* filter, std::string* error);

// Parses the body of Alertmanager's webhook (version 4): the job in the labels of the first firing
// alert that has any. Sets `is_resolved` if no alert is firing. Source: Alertmanager's
// documentation, "webhook_config".
bool ReadAlerts(std::string_view body, JobFilter* filter, bool* is_resolved, std::string* error);

// Returns a query for ReadQuery: "?job_id=4711", or the communicator if the job has no ID.
std::string ReportQuery(const WatchedJob& job, const JobHang& hang);

// Returns "job 4711", "the job of communicator ..." or "all jobs".
std::string NameOf(const JobFilter& filter);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_QUESTION_H_
