// Metric families to Prometheus' protobuf format: io.prometheus.client.MetricFamily messages, each
// after its length. The only format that carries native histograms.
//
// Nothing is lost on the way (metrics/histogram_geometry.h): a cell is a bucket of schema 3, the
// lowest cell is the zero bucket. Durations past the last boundary, 1024 s, stand in the bucket
// behind it, so the count is the sum of the buckets; a quantile that falls there is a lower bound.
//
// Thread: any, no state. Cost: //bench:scrape.
#ifndef EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_
#define EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_

#include <string>
#include <vector>

#include "exporter/exposition/families.h"

namespace nccl_pulse {

std::string ProtobufFormat(const std::vector<Family>& families);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_
