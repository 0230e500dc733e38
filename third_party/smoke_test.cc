// Proves that every library of third_party/ compiles, links statically and works: each test asks
// one of them for something whose answer is known beforehand.

#include <bcrypt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <yaml-cpp/yaml.h>
#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

ABSL_FLAG(int, answer, 0, "A flag that the test sets.");

namespace {

using ::testing::ElementsAre;

TEST(AbseilTest, SplitsJoinsAndCounts) {
  absl::flat_hash_map<std::string, int> count;
  const std::vector<std::string> words = absl::StrSplit("ring tree ring nvls ring", ' ');
  for (const std::string& word : words) ++count[word];
  EXPECT_EQ(count.size(), 3U);
  EXPECT_EQ(count["ring"], 3);
  EXPECT_EQ(absl::StrCat("n=", absl::StrJoin(words, ",").size()), "n=24");
}

TEST(AbseilTest, ParsesFlags) {
  std::array<char, 8> program = {"pulse"};
  std::array<char, 16> flag = {"--answer=42"};
  std::array<char, 8> rest = {"rest"};
  std::array<char*, 3> argv = {program.data(), flag.data(), rest.data()};
  const std::vector<char*> left = absl::ParseCommandLine(argv.size(), argv.data());
  EXPECT_EQ(absl::GetFlag(FLAGS_answer), 42);
  EXPECT_THAT(left, ElementsAre(program.data(), rest.data()));
}

TEST(PrometheusCppTest, SerializesACounter) {
  prometheus::Registry registry;
  auto& family = prometheus::BuildCounter().Name("calls_total").Help("Calls.").Register(registry);
  family.Add({{"op", "AllReduce"}}).Increment(3);
  EXPECT_EQ(prometheus::TextSerializer().Serialize(registry.Collect()),
            "# HELP calls_total Calls.\n"
            "# TYPE calls_total counter\n"
            "calls_total{op=\"AllReduce\"} 3\n");
}

TEST(ZlibTest, GzipRoundTrip) {
  constexpr int kGzip = MAX_WBITS + 16;
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "series_", i, " ", i * i, "\n");

  z_stream out = {};
  ASSERT_EQ(deflateInit2(&out, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<unsigned char> packed(deflateBound(&out, text.size()));
  out.next_in = reinterpret_cast<unsigned char*>(text.data());
  out.avail_in = static_cast<uInt>(text.size());
  out.next_out = packed.data();
  out.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&out, Z_FINISH), Z_STREAM_END);
  packed.resize(out.total_out);
  EXPECT_EQ(deflateEnd(&out), Z_OK);
  ASSERT_LT(packed.size(), text.size() / 2);
  EXPECT_EQ(packed[0], 0x1f);
  EXPECT_EQ(packed[1], 0x8b);

  z_stream in = {};
  ASSERT_EQ(inflateInit2(&in, kGzip), Z_OK);
  std::string unpacked(text.size() + 1, '\0');
  in.next_in = packed.data();
  in.avail_in = static_cast<uInt>(packed.size());
  in.next_out = reinterpret_cast<unsigned char*>(unpacked.data());
  in.avail_out = static_cast<uInt>(unpacked.size());
  EXPECT_EQ(inflate(&in, Z_FINISH), Z_STREAM_END);
  unpacked.resize(in.total_out);
  EXPECT_EQ(inflateEnd(&in), Z_OK);
  EXPECT_EQ(unpacked, text);
}

// The examples of the protocol buffers' encoding guide: field 1 = 150, field 2 = "testing".
TEST(ProtozeroTest, WritesAndReads) {
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_uint64(1, 150);
  writer.add_string(2, "testing");
  EXPECT_EQ(message, "\x08\x96\x01\x12\x07testing");

  protozero::pbf_reader reader(message);
  ASSERT_TRUE(reader.next(1));
  EXPECT_EQ(reader.get_uint64(), 150U);
  ASSERT_TRUE(reader.next(2));
  EXPECT_EQ(reader.get_string(), "testing");
  EXPECT_FALSE(reader.next());
}

TEST(NlohmannJsonTest, ParsesAndWrites) {
  nlohmann::json document = nlohmann::json::parse(R"({"ranks": [0, 1, 2], "name": "dp"})");
  EXPECT_EQ(document["ranks"].size(), 3U);
  document["ranks"].push_back(3);
  EXPECT_EQ(document.dump(), R"({"name":"dp","ranks":[0,1,2,3]})");
  EXPECT_THAT(nlohmann::json::parse("{", nullptr, false).is_discarded(), true);
}

TEST(YamlCppTest, Parses) {
  const YAML::Node document = YAML::Load("ranks: [0, 1]\nname: dp\n");
  EXPECT_EQ(document["ranks"].size(), 2U);
  EXPECT_EQ(document["name"].Scalar(), "dp");
  EXPECT_THROW(YAML::Load("["), YAML::Exception);
}

TEST(BoringSslTest, HashesAndTalks) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>("abc"), 3, digest.data());
  EXPECT_EQ(digest[0], 0xba);  // FIPS 180-2, appendix B.1
  EXPECT_EQ(digest[31], 0xad);
  const bssl::UniquePtr<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  EXPECT_EQ(SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION), 1);
}

TEST(LibxcryptTest, HashesWithBcrypt) {
  // Of jBCrypt's tests; there with $2a$, which is the same for this password.
  constexpr char kHash[] = "$2b$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";
  std::array<uint8_t, BCRYPT_OUTPUT_SIZE> output{};
  alignas(16) std::array<char, BCRYPT_SCRATCH_SIZE> scratch;
  crypt_bcrypt_rn("abc", 3, kHash, sizeof(kHash) - 1, output.data(), output.size(), scratch.data(),
                  scratch.size());
  EXPECT_STREQ(reinterpret_cast<const char*>(output.data()), kHash);
}

}  // namespace
