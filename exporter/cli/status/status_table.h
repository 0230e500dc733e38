// StatusTable formats /api/v1/communicators as a table, for `pulse status`.
//
// Problems and blind spots come first, as sentences. Then come communicators with their ranks;
// ranks in trouble are marked. Fields that are missing or have another type are read as unknown:
// the endpoint may have another version.
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
  int width = 100;   // columns, for sentences
  // Columns of a table; further columns are left out. 0: unlimited.
  int table_width = 0;
};

// `before`: an earlier page of the same endpoint, for rates; null: no rates.
std::string StatusTable(const nlohmann::json& page, const nlohmann::json* before,
                        const StatusOptions& options);

// Lists `without_plugin` of the page, a line for each process. "": it has none.
std::string WithoutPluginLines(const nlohmann::json& processes, double now);

// Summary of the page, for exit statuses.
enum class Finding {
  kNone,        // no suspected hang, or only one within the usual wait
  kHang,        // a suspected hang
  kIncomplete,  // no hang, but processes were lost or are not running, or too little is seen
};
Finding FindingOf(const nlohmann::json& page);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_STATUS_TABLE_H_
