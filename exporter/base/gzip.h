// Compresses pages for HTTP, and unpacks them with limits.
#ifndef EXPORTER_BASE_GZIP_H_
#define EXPORTER_BASE_GZIP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/base/cpu_budget.h"

namespace nccl_pulse {

// Returns `text` in gzip format, at the cheapest level: pages are repetitive, and the CPU time is
// taken from a training job. Empty for more than 2 GiB, or if zlib gets no memory (300 KiB).
// Thread: any, no state. Cost: //bench:scrape.
std::optional<std::string> Gzip(std::string_view text);

// Unpacks a gzip stream to at most `most` bytes. Empty if the text is larger, if `packed` is not
// exactly one gzip stream, or if unpacking exceeds `share` of the CPU time (null: no limit).
std::optional<std::string> GunzipAtMost(std::string_view packed, std::size_t most,
                                        const WorkBudget::Share* share = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_GZIP_H_
