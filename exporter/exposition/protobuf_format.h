// Writes metric families in Prometheus' protobuf format: io.prometheus.client.MetricFamily
// messages, each preceded by its length. Only this format carries native histograms.
//
// Native histograms are exact: a cell of a recorded histogram (metrics/histogram_geometry.h) is a
// bucket of schema 3, and the lowest cell is the zero bucket. Durations above 1024 s, the last
// bound, go to one further bucket, so that the buckets add up to the count. A quantile that falls
// into this bucket is only a lower bound.
//
// Thread: any, no state. Cost: measured by //bench:scrape.
#ifndef EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_
#define EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_

#include <string>
#include <vector>

#include "exporter/exposition/families.h"

namespace nccl_pulse {

std::string ProtobufFormat(const std::vector<Family>& families);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PROTOBUF_FORMAT_H_
