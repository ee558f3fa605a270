#include "coordinator/api/answer_format.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/api/format_fields.h"
#include "coordinator/message/answer_structure.h"
#include "grammar/compile.h"
#include "grammar/json_document.h"

namespace coppice::coordinator {
namespace {

using OrderedFormat = nlohmann::ordered_json;

constexpr size_t kMostReasonBytes = 300;
constexpr absl::string_view kSchemaMember = "/json_schema";

std::string TextOf(const OrderedFormat& json) {
  return json.dump(-1, ' ', false, OrderedFormat::error_handler_t::replace);
}

// A format as a part of a structural tag.
OrderedFormat AsPart(const FormatSpec& spec) {
  OrderedFormat part;
  part["type"] = FormatKindName(spec.kind);
  switch (spec.kind) {
    case FormatSpec::Kind::kRegex:
      part["pattern"] = spec.text;
      break;
    case FormatSpec::Kind::kGrammar:
      part["grammar"] = spec.text;
      break;
    case FormatSpec::Kind::kJsonSchema:
      part["json_schema"] = OrderedFormat::parse(spec.text, nullptr, /*allow_exceptions=*/false);
      break;
    case FormatSpec::Kind::kStructuralTag: {
      const auto tag = OrderedFormat::parse(spec.text, nullptr, /*allow_exceptions=*/false);
      return tag.is_object() ? tag.value("format", OrderedFormat()) : tag;
    }
    case FormatSpec::Kind::kCatalogue:
    case FormatSpec::Kind::kNone:
      break;
  }
  return part;
}

// One of two structural tags.
std::string Either(const std::string& one, const std::string& other) {
  OrderedFormat tag;
  tag["whitespace"] = "single";
  tag["format"]["type"] = "or";
  for (const std::string& text : {one, other})
    tag["format"]["elements"].push_back(OrderedFormat::parse(text)["format"]);
  return TextOf(tag);
}

absl::StatusOr<std::string> Structure(const tokenizer::Tokenizer& tokenizer,
                                      const GenerateRequest& request) {
  // The text is that of one special token.
  const auto is_special = [&tokenizer](absl::string_view text) {
    const std::vector<TokenId> ids = tokenizer.EncodeChat(text, {}, /*add_special_tokens=*/false);
    return ids.size() == 1 && tokenizer.TokenBytes(ids[0], /*skip_special=*/true).empty() &&
           tokenizer.TokenBytes(ids[0], /*skip_special=*/false) == text;
  };
  const bool asks = request.asked_format.kind != FormatSpec::Kind::kNone;
  MessageSyntax syntax = *request.syntax;
  if (syntax.tools.empty())
    return BehindReasoning(syntax, TextOf(AsPart(request.asked_format)), is_special);
  if (!asks || syntax.choice != ToolChoice::kAuto) return AnswerStructure(syntax, is_special);
  syntax.choice = ToolChoice::kRequired;
  const auto calls = AnswerStructure(syntax, is_special);
  if (!calls.ok()) return calls;
  const auto content = BehindReasoning(syntax, TextOf(AsPart(request.asked_format)), is_special);
  if (!content.ok()) return content;
  return Either(*calls, *content);
}

// Whether a format can be served beside the other fields, so that calls that need not come are bound.
bool CanBind(const GenerateRequest& request) {
  return !request.ignore_eos && request.params.min_tokens == 0 &&
         !sampling::IsJoint(request.params.sampling.mode);
}

}  // namespace

void BindAnswer(const ApiContext& context, JsonFields* fields, GenerateRequest* request) {
  if (request->syntax == nullptr) return;
  const MessageSyntax& syntax = *request->syntax;
  const bool asks = !request->format_field.empty();
  if (syntax.tools.empty() && !asks) return;
  if (request->catalogue.content != nullptr) {
    if (!syntax.tools.empty()) {
      fields->Fail(kUnsupportedCombination, request->format_field,
                   "cannot be combined with tools: an answer is an item or a call");
    }
    return;
  }
  if (!ServesFormats(context)) {
    if (syntax.choice != ToolChoice::kAuto && !syntax.tools.empty()) {
      fields->Fail("unsupported_field", "tool_choice",
                   "must be auto or none: the vocabulary of the model cannot write every text");
    }
    return;  // calls are recognised if the model writes them
  }
  if (!asks && syntax.choice == ToolChoice::kAuto && !CanBind(*request)) return;
  if (asks && !syntax.tools.empty() && syntax.choice != ToolChoice::kAuto) {
    fields->IgnoreField(request->format_field, kUnsupportedCombination,
                        "has no effect where tool_choice demands a call");
    request->params.format_spec = {};
  }
  const FormatSpec& spec = request->params.format_spec;
  if (spec.kind == FormatSpec::Kind::kJsonSchema || spec.kind == FormatSpec::Kind::kStructuralTag) {
    const absl::Status status = grammar::ParseSchemaDocument(spec.text).status();
    if (!status.ok()) {
      return fields->Fail(
          "invalid_value", request->format_field,
          absl::StrCat("is refused: ", status.message().substr(0, kMostReasonBytes)));
    }
  }
  request->asked_format = std::move(request->params.format_spec);
  request->asked_field = request->format_field;
  absl::StatusOr<std::string> text = Structure(*context.tokenizer, *request);
  if (!text.ok()) {
    return fields->Fail("invalid_value", syntax.tools.empty() ? request->asked_field : "tools",
                        absl::StrCat("is refused: ", text.status().message()));
  }
  request->params.format_spec = {FormatSpec::Kind::kStructuralTag, *std::move(text)};
  if (!syntax.tools.empty()) request->format_field = "tools";
}

ApiError BoundFormatError(const ApiContext& context, const GenerateRequest& request,
                          absl::string_view error) {
  const auto refused = [](const std::string& field, const std::string& what,
                          absl::string_view reason) {
    return ApiError{400, "invalid_value",
                    absl::StrCat(what, " is refused: ", reason.substr(0, kMostReasonBytes)), field};
  };
  for (const Tool& tool : request.syntax->tools) {
    const auto alone =
        grammar::CompileFormat({FormatSpec::Kind::kJsonSchema, tool.parameters}, context.own_bytes);
    if (!alone.ok())
      return refused("tools", absl::StrCat("tools: the schema of the arguments of ", tool.name),
                     alone.status().message());
  }
  if (request.asked_format.kind != FormatSpec::Kind::kNone) {
    const auto alone = grammar::CompileFormat(request.asked_format, context.own_bytes);
    if (!alone.ok())
      return refused(request.asked_field, request.asked_field, alone.status().message());
  }
  return refused(request.format_field, request.format_field, error);
}

std::string PlaceInRequest(const GenerateRequest& request, absl::string_view pointer) {
  const size_t schema =
      request.syntax == nullptr ? absl::string_view::npos : pointer.find(kSchemaMember);
  if (schema == absl::string_view::npos)
    return absl::StrCat(request.format_field, pointer.substr(1));
  const bool of_tool = !request.syntax->tools.empty();
  return absl::StrCat(of_tool ? "tools[].function.parameters" : request.format_field,
                      pointer.substr(schema + kSchemaMember.size()));
}

}  // namespace coppice::coordinator
