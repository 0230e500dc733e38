// What Prometheus is told about where the endpoint is.
#include "exporter/node/service_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

std::string HostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

nlohmann::json Targets(const std::string& address, int port, bool https = false) {
  return nlohmann::json::parse(ServiceTargets(address, port, https));
}

TEST(ServiceTargetsTest, AllInterfacesAreNamedByTheHost) {
  for (const char* address : {"[::]:9410", "0.0.0.0:9410"}) {
    EXPECT_EQ(Targets(address, 9410)[0]["targets"], nlohmann::json({HostName() + ":9410"}));
  }
}

TEST(ServiceTargetsTest, OneAddressStandsAsItIs) {
  for (const std::string address : {"127.0.0.1:9411", "[::1]:9411"}) {
    const nlohmann::json targets = Targets(address, 9411, /*https=*/true);
    EXPECT_EQ(targets[0]["targets"], nlohmann::json({address}));
    EXPECT_EQ(targets[0]["labels"]["__scheme__"], "https");
    EXPECT_EQ(targets[0]["labels"]["__meta_nccl_pulse_host"], HostName());
  }
  EXPECT_EQ(Targets("127.0.0.1:9411", 9411)[0]["labels"]["__scheme__"], "http");
}

TEST(ServiceTargetsTest, AUnixSocketIsNoTarget) {
  EXPECT_EQ(Targets("unix:/run/pulse", 0), nlohmann::json::array());
}

}  // namespace
}  // namespace nccl_pulse
