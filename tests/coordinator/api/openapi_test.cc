// The description of the API agrees with its parser, and docs/api.md has the current table.
#include "coordinator/api/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "coordinator/api/endpoints.h"
#include "decoding/parameter.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator::api_text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Document() { return json::parse(OpenApiJson(ApiLimits(), "1.2.3")); }

json Properties(const char* schema) {
  return Document()["components"]["schemas"][schema]["properties"];
}

// Every value of "$ref" below.
void CollectRefs(const json& value, std::set<std::string>* refs) {
  if (value.is_object() && value.contains("$ref")) refs->insert(value["$ref"]);
  for (const json& inner : value) {
    if (inner.is_structured()) CollectRefs(inner, refs);
  }
}

TEST(OpenApi, HasEveryEndpointOnceAndAllItRefersTo) {
  const json document = Document();
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], "1.2.3");
  std::set<std::string> ids;
  size_t of_clients = 0;
  for (const Endpoint& endpoint : Endpoints()) {
    EXPECT_EQ(endpoint.web(), !document["paths"].contains(endpoint.path)) << endpoint.path;
    if (endpoint.web()) continue;
    ++of_clients;
    std::string method = endpoint.method;
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    const json& operation = document["paths"][endpoint.path][method];
    ASSERT_TRUE(operation.is_object()) << endpoint.path;
    EXPECT_TRUE(ids.insert(operation["operationId"]).second) << endpoint.path;
    EXPECT_EQ(operation.contains("requestBody"), endpoint.takes_body()) << endpoint.path;
    EXPECT_EQ(operation["security"].size(), endpoint.access == Access::kOpen ? 1 : 2);
    EXPECT_EQ(operation["tags"].size(), 1) << endpoint.path;
  }
  EXPECT_EQ(document["paths"].size(), of_clients);
  std::set<std::string> refs;
  CollectRefs(document, &refs);
  EXPECT_GE(refs.size(), 10);
  for (const std::string& ref : refs)
    EXPECT_TRUE(document.contains(json::json_pointer(ref.substr(1)))) << ref;
}

TEST(OpenApi, HasTheStatusesOfEachEndpoint) {
  const json paths = Document()["paths"];
  const auto statuses = [&](const char* path, const char* method) {
    std::set<std::string> found;
    for (const auto& item : paths[path][method]["responses"].items()) found.insert(item.key());
    return found;
  };
  using Set = std::set<std::string>;
  const Set all = {"400", "405", "408", "414", "417", "431", "503", "505"};
  const auto with = [&](Set more) {
    more.insert(all.begin(), all.end());
    return more;
  };
  EXPECT_EQ(statuses("/health", "get"), with({"200"}));
  EXPECT_EQ(statuses("/v1/chat/completions", "post"),
            with({"200", "401", "404", "413", "415", "429", "500", "504"}));
  EXPECT_EQ(statuses("/admin/drain", "post"),
            with({"200", "202", "401", "403", "404", "413", "415"}));
  EXPECT_EQ(statuses("/v1/models/{id}", "get").count("404"), 1);
  EXPECT_EQ(statuses("/metrics", "get").count("401"), 1);
}

TEST(OpenApi, FieldsThatAreNotRequiredMayBeNull) {
  const json schemas = Document()["components"]["schemas"];
  for (const auto& [name, schema] : schemas.items()) {
    if (!absl::EndsWith(name, "Request")) continue;
    const json names = schema.value("required", json::array());
    for (const auto& [field, of] : schema["properties"].items()) {
      const bool required = std::find(names.begin(), names.end(), field) != names.end();
      const bool any = !of.contains("type") && !of.contains("anyOf");
      const bool null = of.contains("anyOf") && of["anyOf"].back() == json{{"type", "null"}};
      EXPECT_TRUE(required || any || null) << name << "." << field;
    }
  }
}

TEST(OpenApi, TheParserKnowsEveryFieldOfTheSchemas) {
  json body = {{"prompt", "a"}};
  const json fields = Properties("CompletionRequest");
  for (const auto& item : fields.items()) {
    if (item.key() != "prompt") body[item.key()] = nullptr;
  }
  EXPECT_GE(body.size(), 50);
  for (auto& value : body) {  // a value that is not null, so that unknown fields are seen
    if (value.is_null()) value = json::array();
  }
  EXPECT_EQ(Bad(ParseText(body.dump(), "", /*strict=*/true)).code, "accepted");
  body["no_field"] = 1;
  EXPECT_EQ(Bad(ParseText(body.dump(), "", /*strict=*/true)).param, "no_field");
}

TEST(OpenApi, TheSchemasHaveEveryParameterWithItsAliasesAndRange) {
  const json completion = Properties("CompletionRequest"), chat = Properties("ChatRequest");
  const json speculative = completion["speculative"]["anyOf"][0]["anyOf"][2]["properties"];
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    const bool inner = std::string(row.object) == "speculative";
    for (const char* field : row.fields) {
      EXPECT_TRUE((inner ? speculative : completion).contains(field)) << field;
      EXPECT_TRUE(inner || chat.contains(field)) << field;
    }
  }
  EXPECT_EQ(completion["temperature"]["anyOf"][0]["maximum"], 2);
  EXPECT_EQ(completion["temperature"]["anyOf"][0]["minimum"], 0);
  EXPECT_EQ(completion["top_p"]["anyOf"][0]["exclusiveMinimum"], 0);
  EXPECT_EQ(completion["beam_width"]["anyOf"][0]["anyOf"][0]["maximum"], 512);
  EXPECT_EQ(speculative["draft_width"]["anyOf"][0]["anyOf"][1]["const"], "auto");
}

TEST(OpenApi, ThePageHasTheCurrentTable) {
  std::ifstream file("docs/api.md");  // tests run in the root of the source tree
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(page, HasSubstr("\n\n" + EndpointTable() + "\n"))
      << "the table of docs/api.md 1 is stale: coppice-reference endpoints";
}

}  // namespace
}  // namespace coppice::coordinator::api_text
