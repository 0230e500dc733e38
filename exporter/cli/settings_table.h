// The answers of processes that were asked for their settings, or to change them, as text.
//
// Thread: any, no state. What processes said is printable already (HandoverMessage::Text).
#ifndef EXPORTER_CLI_SETTINGS_TABLE_H_
#define EXPORTER_CLI_SETTINGS_TABLE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/control/control_client.h"

namespace nccl_pulse {

// One line for each setting of each process: value, and where it comes from.
std::string SettingsTable(const std::vector<ControlAnswer>& answers, absl::Time now,
                          absl::TimeZone zone);

// Asks the processes of this node, and prints the table. The exit status of `pulse settings`.
int ShowSettings(absl::Duration patience);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SETTINGS_TABLE_H_
