#include "tokenizer/chat_template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/expression_parser.h"

namespace coppice::tokenizer::jinja {
namespace {

constexpr absl::string_view kFunctions[] = {"dict", "namespace", "raise_exception", "range",
                                            "strftime_now"};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)), expressions_(&cursor_) {}

  absl::StatusOr<Block> Run() {
    Block block = ParseBlock({});
    if (cursor_.ok() && cursor_.Peek().kind != TokenKind::kEnd)
      cursor_.Unexpected("the end of the template");
    for (const auto& call : expressions_.called()) {
      const bool known = names_.count(call.first) > 0 ||
                         std::find(std::begin(kFunctions), std::end(kFunctions), call.first) !=
                             std::end(kFunctions);
      if (!known)
        cursor_.Fail(call.second, absl::StrCat("the function ", call.first, "() is not supported"));
    }
    if (!cursor_.ok()) return cursor_.status();
    return block;
  }

 private:
  // Statements up to a tag of one of these names, whose "{%" and name are then still ahead.
  Block ParseBlock(std::initializer_list<absl::string_view> ends) {
    Block block;
    if (++depth_ > kMaxBlockDepth) {
      cursor_.Fail(cursor_.line(),
                   absl::StrCat("blocks are nested deeper than ", kMaxBlockDepth, " levels"));
    }
    while (cursor_.ok() && cursor_.Peek().kind != TokenKind::kEnd) {
      if (cursor_.Peek().kind == TokenKind::kBlockBegin &&
          std::any_of(ends.begin(), ends.end(),
                      [this](absl::string_view end) { return cursor_.IsName(end, 1); })) {
        break;
      }
      if (auto statement = ParseStatement()) block.push_back(std::move(statement));
    }
    --depth_;
    return block;
  }

  std::unique_ptr<Statement> Make(StatementKind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = cursor_.line();
    return statement;
  }

  std::unique_ptr<Statement> ParseStatement() {
    if (cursor_.Peek().kind == TokenKind::kText) {
      auto text = Make(StatementKind::kText);
      text->text = cursor_.Next().text;
      return text;
    }
    if (cursor_.Peek().kind == TokenKind::kOutputBegin) {
      auto output = Make(StatementKind::kOutput);
      cursor_.Next();
      output->expression = expressions_.ParseTuple(/*with_conditional=*/true);
      cursor_.Expect(TokenKind::kOutputEnd, "'}}'");
      return output;
    }
    cursor_.Next();  // {%
    return ParseTag();
  }

  std::unique_ptr<Statement> ParseTag() {
    if (cursor_.IsName("if")) return ParseIf();
    if (cursor_.IsName("for")) return ParseFor();
    if (cursor_.IsName("set")) return ParseSet();
    if (cursor_.IsName("macro")) return ParseMacro();
    if (cursor_.IsName("generation")) {
      auto block = Make(StatementKind::kBlock);
      cursor_.Next();
      EndTag();
      block->body = ParseBlock({"endgeneration"});
      EndBlock("endgeneration");
      return block;
    }
    if (cursor_.IsName("break") || cursor_.IsName("continue")) {
      auto jump = Make(cursor_.IsName("break") ? StatementKind::kBreak : StatementKind::kContinue);
      if (loops_ == 0) cursor_.Fail(cursor_.line(), "break and continue need a loop");
      cursor_.Next();
      EndTag();
      return jump;
    }
    const Token& name = cursor_.Peek();
    if (name.kind != TokenKind::kName) {
      cursor_.Unexpected("the name of a tag");
    } else {
      cursor_.Fail(name.line,
                   absl::StrCat("the tag {% ", name.text.substr(0, 40), " %} is not supported"));
    }
    return nullptr;
  }

  void EndTag() { cursor_.Expect(TokenKind::kBlockEnd, "'%}'"); }
  void EndBlock(absl::string_view name) {
    cursor_.Expect(TokenKind::kBlockBegin, absl::StrCat("{% ", name, " %}"));
    if (!cursor_.SkipName(name)) cursor_.Unexpected(name);
    EndTag();
  }

  std::unique_ptr<Statement> ParseIf() {
    auto statement = Make(StatementKind::kIf);
    cursor_.Next();
    while (cursor_.ok()) {
      statement->branches.emplace_back();
      statement->branches.back().condition = expressions_.ParseTuple(/*with_conditional=*/false);
      EndTag();
      Block body = ParseBlock({"elif", "else", "endif"});
      statement->branches.back().body = std::move(body);
      if (!cursor_.IsName("elif", 1)) break;
      cursor_.Next();
      cursor_.Next();
    }
    if (cursor_.IsName("else", 1)) {
      cursor_.Next();
      cursor_.Next();
      EndTag();
      statement->branches.emplace_back();
      statement->branches.back().body = ParseBlock({"endif"});
    }
    EndBlock("endif");
    return statement;
  }

  std::vector<std::string> ParseNames() {
    const bool brackets = cursor_.SkipOperator("(");
    std::vector<std::string> names;
    do {
      if (!names.empty() && cursor_.IsName("in")) break;  // trailing comma
      names.push_back(cursor_.ExpectName("a name"));
    } while (cursor_.SkipOperator(","));
    if (brackets) cursor_.ExpectOperator(")");
    names_.insert(names.begin(), names.end());
    return names;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = Make(StatementKind::kFor);
    cursor_.Next();
    statement->names = ParseNames();
    if (!cursor_.SkipName("in")) cursor_.Unexpected("in");
    statement->expression = expressions_.ParseTuple(/*with_conditional=*/false);
    if (cursor_.SkipName("if")) statement->condition = expressions_.Parse();
    if (cursor_.IsName("recursive"))
      cursor_.Fail(cursor_.line(), "a recursive loop is not supported");
    EndTag();
    ++loops_;
    statement->body = ParseBlock({"else", "endfor"});
    --loops_;
    if (cursor_.IsName("else", 1)) {
      cursor_.Next();
      cursor_.Next();
      EndTag();
      statement->other = ParseBlock({"endfor"});
    }
    EndBlock("endfor");
    return statement;
  }

  std::unique_ptr<Statement> ParseSet() {
    auto statement = Make(StatementKind::kSet);
    cursor_.Next();
    statement->names = ParseNames();
    if (statement->names.size() == 1 && cursor_.SkipOperator("."))
      statement->attribute = cursor_.ExpectName("a name after '.'");
    if (cursor_.SkipOperator("=")) {
      statement->expression = expressions_.ParseTuple(/*with_conditional=*/true);
      EndTag();
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    if (statement->names.size() != 1) cursor_.Fail(statement->line, "a set block has one name");
    auto text = std::make_unique<Expression>();  // the renderer puts the text of the body here
    text->kind = ExpressionKind::kName;
    text->line = statement->line;
    statement->expression = expressions_.ParseFilters(std::move(text));
    EndTag();
    statement->body = ParseBlock({"endset"});
    EndBlock("endset");
    return statement;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = Make(StatementKind::kMacro);
    if (loops_ > 0 || in_macro_)
      cursor_.Fail(cursor_.line(), "a macro inside of a loop or a macro is not supported");
    cursor_.Next();
    statement->text = cursor_.ExpectName("the name of the macro");
    names_.insert(statement->text);
    cursor_.ExpectOperator("(");
    while (cursor_.ok() && !cursor_.IsOperator(")")) {
      statement->names.push_back(cursor_.ExpectName("a parameter"));
      if (cursor_.SkipOperator("=")) {
        statement->defaults.push_back(expressions_.Parse());
      } else if (!statement->defaults.empty()) {
        cursor_.Fail(cursor_.line(), "a parameter without default follows one with a default");
      }
      if (!cursor_.SkipOperator(",")) break;
    }
    cursor_.ExpectOperator(")");
    EndTag();
    in_macro_ = true;
    statement->body = ParseBlock({"endmacro"});
    in_macro_ = false;
    EndBlock("endmacro");
    return statement;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_;
  // Names to which the template assigns a value, so that they can be called.
  std::set<std::string> names_;
  int depth_ = 0, loops_ = 0;
  bool in_macro_ = false;
};

}  // namespace

absl::StatusOr<Block> ParseTemplate(absl::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the template has ", source.size(), " bytes, at most ", kMaxTemplateBytes, " are read"));
  }
  COPPICE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace coppice::tokenizer::jinja
