#include "tokenizer/chat_template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/chat_template/builtins.h"
#include "tokenizer/chat_template/expression_parser.h"

namespace coppice::tokenizer::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)), expressions_(&cursor_) {
    for (const char* name : kFunctions) names_.insert(name);
  }

  absl::StatusOr<Block> Run() {
    Block block = ParseBlock({});
    if (cursor_.ok() && cursor_.Peek().kind != TokenKind::kEnd)
      cursor_.Unexpected("the end of the template");
    for (const ExpressionParser::Unknown& unknown : expressions_.unknown()) {
      const bool defined = names_.count(unknown.function) > 0 ||
                           expressions_.argument_names().count(unknown.function) > 0;
      if (!defined) cursor_.Fail(unknown.line, unknown.why);
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
    if (cursor_.IsName("call")) return ParseCallBlock();
    if (cursor_.IsName("filter")) return ParseFilterBlock();
    if (cursor_.IsName("with")) return ParseWith();
    if (cursor_.IsName("generation")) {
      auto block = Make(StatementKind::kBlock);
      cursor_.Next();
      EndTag();
      ParseBody("endgeneration", &block->body);
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

  // The body of a block that a loop outside of it cannot be left from, and its end.
  void ParseBody(absl::string_view end, Block* body) {
    const int outer_loops = std::exchange(loops_, 0);
    *body = ParseBlock({end});
    loops_ = outer_loops;
    EndBlock(end);
  }

  std::unique_ptr<Statement> ParseIf() {
    const size_t known = expressions_.unknown().size();
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
    expressions_.ForgiveUnknown(known);
    return statement;
  }

  void AddNames(const Expression& target) {
    if (target.kind != ExpressionKind::kTuple) names_.insert(target.name);
    for (const auto& part : target.parts) AddNames(*part);
  }
  ExpressionPtr ParseTarget(bool with_attribute) {
    ExpressionPtr target = expressions_.ParseTarget(with_attribute);
    AddNames(*target);
    return target;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = Make(StatementKind::kFor);
    cursor_.Next();
    statement->target = ParseTarget(/*with_attribute=*/false);
    if (!cursor_.SkipName("in")) cursor_.Unexpected("in");
    statement->expression = expressions_.ParseTuple(/*with_conditional=*/false);
    if (cursor_.SkipName("if")) statement->condition = expressions_.Parse();
    statement->recursive = cursor_.SkipName("recursive");
    if (statement->recursive) names_.insert("loop");
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
    statement->target = ParseTarget(/*with_attribute=*/true);
    if (cursor_.SkipOperator("=")) {
      statement->expression = expressions_.ParseTuple(/*with_conditional=*/true);
      EndTag();
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    if (statement->target->kind == ExpressionKind::kTuple)
      cursor_.Fail(statement->line, "a set block has one name");
    statement->expression = expressions_.ParseFilters(BodyText());
    EndTag();
    statement->body = ParseBlock({"endset"});
    EndBlock("endset");
    return statement;
  }

  // The renderer puts the text of a body into the variable with the empty name.
  ExpressionPtr BodyText() {
    auto text = std::make_unique<Expression>();
    text->kind = ExpressionKind::kName;
    text->line = cursor_.line();
    return text;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto statement = Make(StatementKind::kFilterBlock);
    cursor_.Next();
    statement->expression = expressions_.ParseFirstFilter(BodyText());
    EndTag();
    statement->body = ParseBlock({"endfilter"});
    EndBlock("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto statement = Make(StatementKind::kWith);
    cursor_.Next();
    while (cursor_.ok() && cursor_.Peek().kind != TokenKind::kBlockEnd) {
      if (!statement->assignments.empty()) cursor_.ExpectOperator(",");
      Assignment assignment;
      assignment.target = ParseTarget(/*with_attribute=*/false);
      cursor_.ExpectOperator("=");
      assignment.value = expressions_.Parse();
      statement->assignments.push_back(std::move(assignment));
    }
    EndTag();
    statement->body = ParseBlock({"endwith"});
    EndBlock("endwith");
    return statement;
  }

  // The parameters of a macro, in their brackets.
  void ParseParameters(Statement* macro) {
    cursor_.ExpectOperator("(");
    while (cursor_.ok() && !cursor_.IsOperator(")")) {
      macro->names.push_back(cursor_.ExpectName("a parameter"));
      names_.insert(macro->names.back());
      if (cursor_.SkipOperator("=")) {
        macro->defaults.push_back(expressions_.Parse());
      } else if (!macro->defaults.empty()) {
        cursor_.Fail(cursor_.line(), "a parameter without default follows one with a default");
      }
      if (!cursor_.SkipOperator(",")) break;
    }
    cursor_.ExpectOperator(")");
  }

  // The body of a macro, and which of the variables that every macro has it reads.
  void ParseMacroBody(absl::string_view end, Statement* macro) {
    const size_t known = expressions_.unknown().size();
    std::set<std::string> outer = std::exchange(expressions_.read(), {});
    ParseBody(end, &macro->body);
    macro->uses_caller = expressions_.Reads("caller");
    macro->uses_varargs = expressions_.Reads("varargs");
    macro->uses_kwargs = expressions_.Reads("kwargs");
    expressions_.read().merge(outer);
    expressions_.ForgiveUnknownCalls(known);
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = Make(StatementKind::kMacro);
    cursor_.Next();
    statement->text = cursor_.ExpectName("the name of the macro");
    names_.insert(statement->text);
    ParseParameters(statement.get());
    EndTag();
    ParseMacroBody("endmacro", statement.get());
    return statement;
  }

  std::unique_ptr<Statement> ParseCallBlock() {
    auto statement = Make(StatementKind::kCallBlock);
    statement->text = "caller";
    cursor_.Next();
    if (cursor_.IsOperator("(")) ParseParameters(statement.get());
    statement->expression = expressions_.Parse();
    if (cursor_.ok() && statement->expression->kind != ExpressionKind::kCall)
      cursor_.Fail(statement->line, "{% call %} needs a call");
    EndTag();
    ParseMacroBody("endcall", statement.get());
    return statement;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_;
  // Names of functions, and those to which the template assigns a value, so that they can be called.
  std::set<std::string> names_ = {"caller"};
  int depth_ = 0, loops_ = 0;
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
