// Selects a scraper's format and encoding from its Accept and Accept-Encoding headers (RFC 9110,
// 12.5).
//
// Refuses no client: a client that accepts nothing available gets the text format, uncompressed.
// Ignores elements that it cannot parse.
//
// Thread: any, no state. Cost: linear in the header, no allocation.
#ifndef EXPORTER_EXPOSITION_NEGOTIATION_H_
#define EXPORTER_EXPOSITION_NEGOTIATION_H_

#include <string_view>

#include "exporter/exposition/exposition.h"

namespace nccl_pulse {

// Returns the format with the highest q; among equals the most exactly named, then the first named.
// Clients that accept anything, or send no header (""), get text; wildcards never mean protobuf.
PageFormat NegotiateFormat(std::string_view accept);

// True if gzip is accepted with at least the weight of identity.
bool NegotiateGzip(std::string_view accept_encoding);

std::string_view ContentType(PageFormat format);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_NEGOTIATION_H_
