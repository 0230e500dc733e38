// StatusTable formats /api/v1/communicators as a table, for `pulse status`.
//
// First come sentences on problems and on what the endpoint can't see, then a table of
// communicators and their ranks, with ranks in trouble marked. Fields that are missing or have
// another type are read as unknown: the endpoint may have another version.
//
// Thread: any, no state.
#ifndef EXPORTER_CLI_STATUS_STATUS_TABLE_H_
#define EXPORTER_CLI_STATUS_STATUS_TABLE_H_

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

struct StatusOptions {
  bool color = false;
  bool all = false;  // include ended communicators
  int width = 100;   // of sentences, in characters
  // Width of tables in characters; columns that don't fit are left out. 0: unlimited.
  int table_width = 0;
};

// `page`: the endpoint's answer to /api/v1/communicators. `before`: an earlier one, for rates;
// null: no rates.
std::string StatusTable(const nlohmann::json& page, const nlohmann::json* before,
                        const StatusOptions& options);

// Returns a line for each process in `processes`, the answer's field `without_plugin`; "" if there
// is none. `now`: the answer's Unix time, in seconds.
std::string WithoutPluginLines(const nlohmann::json& processes, double now);

// Overall result of an answer, for the exit status.
enum class Finding {
  kNone,        // no suspected hang, or only waits that are expected
  kHang,        // a suspected hang
  kIncomplete,  // no hang, but processes were lost or are not running, or too little is seen
};
Finding FindingOf(const nlohmann::json& page);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_STATUS_TABLE_H_
