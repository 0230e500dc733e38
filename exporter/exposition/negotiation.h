// Which format and which encoding a scraper gets: its Accept and Accept-Encoding headers (RFC 9110,
// 12.5) against what there is.
//
// Never a refusal: who accepts nothing that there is gets the text format, uncompressed. What does
// not parse counts as not said.
//
// Thread: any, no state. Cost: linear in the header, no allocation.
#ifndef EXPORTER_EXPOSITION_NEGOTIATION_H_
#define EXPORTER_EXPOSITION_NEGOTIATION_H_

#include <string_view>

#include "exporter/exposition/exposition.h"

namespace nccl_pulse {

// The format with the highest q; among equals the one that is named most exactly, then the one that
// is named first. Whoever takes anything gets text; wildcards never mean protobuf. "" (no header)
// is anything.
PageFormat NegotiateFormat(std::string_view accept);

// Whether to compress: gzip is accepted, and no less than the identity.
bool NegotiateGzip(std::string_view accept_encoding);

std::string_view ContentType(PageFormat format);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_NEGOTIATION_H_
