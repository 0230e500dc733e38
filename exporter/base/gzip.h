// A page compressed for the wire.
#ifndef EXPORTER_BASE_GZIP_H_
#define EXPORTER_BASE_GZIP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/base/work_budget.h"

namespace nccl_pulse {

// In gzip format, at the cheapest level: a page is mostly repetition, and the time is a core of
// somebody's training job. Nothing when there is no memory for it (300 KiB and the result).
// Thread: any, no state. Cost: //bench:scrape.
std::optional<std::string> Gzip(std::string_view text);

// Unpacks a text of at most `most` bytes. Nothing: it has more, `packed` is not one whole gzip
// stream, or unpacking it takes longer than `share`, if that is not null.
std::optional<std::string> GunzipAtMost(std::string_view packed, std::size_t most,
                                        const WorkBudget::Share* share = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_GZIP_H_
