// A page compressed for the wire.
#ifndef EXPORTER_BASE_GZIP_H_
#define EXPORTER_BASE_GZIP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace nccl_pulse {

// In gzip format, at the cheapest level: a page is mostly repetition, and the time is a core of
// somebody's training job. Nothing when there is no memory for it (300 KiB and the result).
// Thread: any, no state. Cost: //bench:scrape.
std::optional<std::string> Gzip(std::string_view text);

// The other direction, of text that has at most `most` bytes. Nothing when it has more, or when
// this is not one whole gzip stream.
std::optional<std::string> GunzipAtMost(std::string_view packed, std::size_t most);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_GZIP_H_
