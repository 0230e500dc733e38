// What the plugin includes everywhere brings in no more than it needs: the segment's layout no
// containers, settings and the stream timer neither snapshots nor prometheus-cpp.
// clang-format off
#include "metrics/segment_layout.h"

#if defined(_GLIBCXX_STRING) || defined(_GLIBCXX_VECTOR) || defined(_GLIBCXX_MAP)
#error "metrics/segment_layout.h includes containers"
#endif

#include "plugin/cuda/stream_timer.h"
#include "plugin/runtime/settings.h"

#if defined(METRICS_SNAPSHOT_H_) || defined(EXPORTER_EXPOSITION_CATALOGUE_H_)
#error "the plugin's headers include snapshots or the catalogue"
#endif

namespace prometheus {
enum class MetricType { kNoneOfPrometheusCpp };  // does not compile beside its own
}  // namespace prometheus

#include "gtest/gtest.h"
// clang-format on

// It compiles: that is the test.
TEST(Includes, BringNoMoreThanIsNeeded) {}
