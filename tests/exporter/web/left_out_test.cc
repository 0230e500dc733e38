// What a build with --//exporter/web:with_tls=false, the demo's, says to those who ask for TLS or
// passwords.
#include <fstream>
#include <memory>
#include <string>

#include "exporter/web/guard.h"
#include "exporter/web/tls_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

TEST(LeftOut, RefusesConfigurationOfPasswords) {
  // One that the full program takes.
  const std::string path = testing::TempDir() + "/web.yml";
  std::ofstream(path) << "basic_auth_users:\n  ann: $2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/"
                         "TgeJertyknQpYn2\n";
  std::string error;
  const std::unique_ptr<WebGuard> guard = WebGuard::Open(
      path, [](LogLevel, const std::string&) {}, &error);
  EXPECT_EQ(guard, nullptr);
  EXPECT_THAT(error, HasSubstr(path));
  EXPECT_THAT(error, HasSubstr("without TLS and passwords"));
}

TEST(LeftOut, HasNoClientForTls) {
  std::string error;
  EXPECT_EQ(TlsClient::Make(TlsClientConfig(), &error), nullptr);
  EXPECT_THAT(error, HasSubstr("without TLS"));
}

}  // namespace
}  // namespace nccl_pulse
