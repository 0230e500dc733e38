#include "exporter/base/version.h"

#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

// BUILD.bazel gives the commit, as tools/release does.
TEST(BuildVersion, HasTheCommitBehindTheVersion) {
  EXPECT_EQ(BuildVersion(), std::string(kVersion) + "+0123456789ab");
  EXPECT_LT(BuildVersion().size(), 32u) << "plugin_version in metrics/segment_layout.h";
}

}  // namespace
}  // namespace nccl_pulse
