#include "grammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/ebnf.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"
#include "grammar/python_arguments.h"
#include "grammar/regex.h"

namespace coppice::grammar {
namespace {

class StructureReader {
 public:
  StructureReader(JsonRules::Notation notation, JsonRules::Blanks blanks,
                  std::vector<std::string>* annotations)
      : annotations_(annotations), notation_(notation), rules_(notation, blanks) {}

  absl::StatusOr<Grammar> Read(const OrderedJson& document) {
    const int whole = rules_.Add("structural tag");
    const DocumentPlace root{&document, "#"};
    COPPICE_RETURN_IF_ERROR(CheckMembers(root, {"type", "format", "whitespace"}));
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace format, Member(root, "format"));
    COPPICE_ASSIGN_OR_RETURN(Part part, Format(format));
    rules_.Set(whole, std::move(part));
    return std::move(rules_).Take();
  }

 private:
  using Names = std::initializer_list<absl::string_view>;
  struct Tag {
    std::string begin;  // as a text that an automaton reads
    Part part;
  };

  static absl::StatusOr<DocumentPlace> Member(const DocumentPlace& place, absl::string_view name) {
    if (!place.value->is_object()) return SchemaError(place.pointer, "it must be an object");
    if (Has(place, name)) return At(place, name);
    return SchemaError(place.pointer, absl::StrCat("\"", name, "\" is missing"));
  }

  static absl::Status CheckMembers(const DocumentPlace& place, Names names) {
    if (!place.value->is_object()) return SchemaError(place.pointer, "it must be an object");
    for (const auto& item : place.value->items()) {
      if (std::find(names.begin(), names.end(), item.key()) != names.end()) continue;
      return SchemaError(PointerTo(place.pointer, item.key()),
                         "no such member is known in this place");
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<std::string> Text(const DocumentPlace& place) {
    if (place.value->is_string()) return place.value->get<std::string>();
    return SchemaError(place.pointer, "it must be a string");
  }

  static absl::StatusOr<std::string> TextOf(const DocumentPlace& place, absl::string_view name) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace member, Member(place, name));
    return Text(member);
  }

  static absl::StatusOr<bool> Flag(const DocumentPlace& place, absl::string_view name) {
    if (!Has(place, name)) return false;
    const DocumentPlace member = At(place, name);
    if (member.value->is_boolean()) return member.value->get<bool>();
    return SchemaError(member.pointer, "it must be true or false");
  }

  // The places of a list that is not empty.
  static absl::StatusOr<std::vector<DocumentPlace>> List(const DocumentPlace& place) {
    if (!place.value->is_array() || place.value->empty())
      return SchemaError(place.pointer, "it must be a list that is not empty");
    std::vector<DocumentPlace> list;
    for (size_t i = 0; i < place.value->size(); ++i) list.push_back(At(place, i));
    return list;
  }

  // "": it has no type, or one that is no text.
  static std::string TypeOf(const OrderedJson& object) {
    const auto type = object.find("type");
    return type != object.end() && type->is_string() ? type->get<std::string>() : "";
  }

  // A mark as a text that an automaton reads.
  static absl::StatusOr<std::string> Mark(const DocumentPlace& place) {
    if (place.value->is_string()) return place.value->get<std::string>();
    COPPICE_RETURN_IF_ERROR(CheckMembers(place, {"type", "token"}));
    if (TypeOf(*place.value) != "token")
      return SchemaError(place.pointer, "it must be a string, or an object of type \"token\"");
    COPPICE_ASSIGN_OR_RETURN(const std::string name, TextOf(place, "token"));
    if (name.empty()) return SchemaError(place.pointer, "the token has no name");
    return absl::StrCat(absl::string_view(&kSpecialMark, 1), name);
  }

  static Part MarkPart(absl::string_view mark) {
    const bool special = absl::StartsWith(mark, absl::string_view(&kSpecialMark, 1));
    return special ? SpecialToken(mark.substr(1)) : Literal(mark);
  }

  static absl::StatusOr<std::vector<std::string>> Marks(const DocumentPlace& place,
                                                        absl::string_view name) {
    std::vector<std::string> marks;
    COPPICE_ASSIGN_OR_RETURN(const std::vector<DocumentPlace> places, List(At(place, name)));
    for (const DocumentPlace& one : places) {
      COPPICE_ASSIGN_OR_RETURN(std::string mark, Mark(one));
      if (mark.empty()) return SchemaError(one.pointer, "it must not be empty");
      marks.push_back(std::move(mark));
    }
    return marks;
  }

  absl::StatusOr<Part> Format(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const std::string type, TextOf(place, "type"));
    using Reader = absl::StatusOr<Part> (StructureReader::*)(const DocumentPlace&);
    struct Row {
      absl::string_view type;
      Names members;
      Reader read;
    };
    static const Row kRows[] = {
        {"const_string", {"type", "value"}, &StructureReader::ConstString},
        {"token", {"type", "token"}, &StructureReader::Token},
        {"json_schema", {"type", "json_schema"}, &StructureReader::Schema},
        {"regex", {"type", "pattern"}, &StructureReader::Regex},
        {"grammar", {"type", "grammar"}, &StructureReader::OfGrammar},
        {"any_text", {"type", "excludes", "not_begins"}, &StructureReader::AnyText},
        {"sequence", {"type", "elements"}, &StructureReader::InOrder},
        {"or", {"type", "elements"}, &StructureReader::OneOf},
        {"optional", {"type", "content"}, &StructureReader::AtMostOnce},
        {"star", {"type", "content"}, &StructureReader::AnyTimes},
        {"plus", {"type", "content"}, &StructureReader::AtLeastOnce},
        {"tag", {"type", "begin", "content", "end"}, &StructureReader::WholeTag},
        {"triggered_tags",
         {"type", "triggers", "tags", "at_least_one", "stop_after_first"},
         &StructureReader::TriggeredTags},
        {"tags_with_separator",
         {"type", "tags", "separator", "at_least_one", "stop_after_first"},
         &StructureReader::SeparatedTags},
        {"python_arguments", {"type", "json_schema"}, &StructureReader::PythonCall},
    };
    for (const Row& row : kRows) {
      if (row.type != type) continue;
      COPPICE_RETURN_IF_ERROR(CheckMembers(place, row.members));
      return (this->*row.read)(place);
    }
    return SchemaError(PointerTo(place.pointer, "type"),
                       absl::StrCat(CompactJson(type), " is no type of a format"));
  }

  absl::StatusOr<Part> ConstString(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(place, "value"));
    return Literal(text);
  }

  absl::StatusOr<Part> Token(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const std::string mark, Mark(place));
    return MarkPart(mark);
  }

  // Schemas with the same text share their rules.
  absl::StatusOr<Part> Schema(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace schema, Member(place, "json_schema"));
    if (notation_ == JsonRules::Notation::kPython)
      return SchemaError(place.pointer, "it cannot stand beside \"python_arguments\"");
    Part& known = schemas_[CompactJson(*schema.value)];
    if (known != nullptr) return known;
    COPPICE_ASSIGN_OR_RETURN(known,
                             AddJsonSchema(*schema.value, schema.pointer, &rules_, annotations_));
    return known;
  }

  absl::StatusOr<Part> PythonCall(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace schema, Member(place, "json_schema"));
    return AddPythonArguments(schema, &rules_, annotations_);
  }

  absl::StatusOr<Part> Regex(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const std::string pattern, TextOf(place, "pattern"));
    return Adopted(ReadRegex(pattern), place);
  }

  absl::StatusOr<Part> OfGrammar(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const std::string text, TextOf(place, "grammar"));
    return Adopted(IsLark(text) ? ReadLark(text) : ReadEbnf(text), place);
  }

  absl::StatusOr<Part> Adopted(absl::StatusOr<Grammar> grammar, const DocumentPlace& place) {
    if (!grammar.ok()) return SchemaError(place.pointer, grammar.status().message());
    return rules_.Adopt(*std::move(grammar));
  }

  absl::StatusOr<Part> AnyText(const DocumentPlace& place) {
    std::vector<std::string> excluded, starts;
    if (Has(place, "excludes")) {
      COPPICE_ASSIGN_OR_RETURN(excluded, Marks(place, "excludes"));
    }
    if (Has(place, "not_begins")) {
      COPPICE_ASSIGN_OR_RETURN(starts, Marks(place, "not_begins"));
    }
    return grammar::AnyText(std::move(excluded), std::move(starts));
  }

  absl::StatusOr<std::vector<Part>> Elements(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace elements, Member(place, "elements"));
    COPPICE_ASSIGN_OR_RETURN(const std::vector<DocumentPlace> places, List(elements));
    std::vector<Part> parts;
    for (const DocumentPlace& one : places) {
      COPPICE_ASSIGN_OR_RETURN(Part part, Format(one));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  absl::StatusOr<Part> InOrder(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<Part> parts, Elements(place));
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Part> OneOf(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<Part> parts, Elements(place));
    return Choice(std::move(parts));
  }

  absl::StatusOr<Part> Repeated(const DocumentPlace& place, int least, int most) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace content, Member(place, "content"));
    COPPICE_ASSIGN_OR_RETURN(Part part, Format(content));
    return Repeat(std::move(part), least, most);
  }
  absl::StatusOr<Part> AtMostOnce(const DocumentPlace& place) { return Repeated(place, 0, 1); }
  absl::StatusOr<Part> AnyTimes(const DocumentPlace& place) {
    return Repeated(place, 0, Expression::kNoMost);
  }
  absl::StatusOr<Part> AtLeastOnce(const DocumentPlace& place) {
    return Repeated(place, 1, Expression::kNoMost);
  }

  absl::StatusOr<Tag> ReadTag(const DocumentPlace& place) {
    COPPICE_RETURN_IF_ERROR(CheckMembers(place, {"type", "begin", "content", "end"}));
    if (Has(place, "type") && TypeOf(*place.value) != "tag")
      return SchemaError(PointerTo(place.pointer, "type"), "it must be \"tag\"");
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace begin, Member(place, "begin"));
    COPPICE_ASSIGN_OR_RETURN(const std::string begin_mark, Mark(begin));
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace content, Member(place, "content"));
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace end, Member(place, "end"));
    std::vector<std::string> ends;
    if (end.value->is_array()) {
      COPPICE_ASSIGN_OR_RETURN(ends, Marks(place, "end"));
    } else {
      COPPICE_ASSIGN_OR_RETURN(std::string mark, Mark(end));
      ends.push_back(std::move(mark));
    }
    // The end of a free text is where the first mark of the end is.
    const bool free = content.value->is_object() && TypeOf(*content.value) == "any_text" &&
                      !Has(content, "excludes") && !Has(content, "not_begins") &&
                      std::find(ends.begin(), ends.end(), "") == ends.end();
    COPPICE_ASSIGN_OR_RETURN(Part part, free ? grammar::AnyText(ends) : Format(content));
    std::vector<Part> end_parts;
    for (const std::string& mark : ends) end_parts.push_back(MarkPart(mark));
    return Tag{begin_mark,
               Sequence({MarkPart(begin_mark), std::move(part), Choice(std::move(end_parts))})};
  }

  absl::StatusOr<Part> WholeTag(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const Tag tag, ReadTag(place));
    return tag.part;
  }

  absl::StatusOr<std::vector<std::pair<DocumentPlace, Tag>>> Tags(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace list, Member(place, "tags"));
    COPPICE_ASSIGN_OR_RETURN(const std::vector<DocumentPlace> places, List(list));
    std::vector<std::pair<DocumentPlace, Tag>> tags;
    for (const DocumentPlace& one : places) {
      COPPICE_ASSIGN_OR_RETURN(Tag tag, ReadTag(one));
      tags.emplace_back(one, std::move(tag));
    }
    return tags;
  }

  static Part AnyOf(const std::vector<std::pair<DocumentPlace, Tag>>& tags) {
    std::vector<Part> parts;
    for (const auto& tag : tags) parts.push_back(tag.second.part);
    return Choice(std::move(parts));
  }

  absl::StatusOr<Part> TriggeredTags(const DocumentPlace& place) {
    COPPICE_RETURN_IF_ERROR(Member(place, "triggers").status());
    COPPICE_ASSIGN_OR_RETURN(const std::vector<std::string> triggers, Marks(place, "triggers"));
    COPPICE_ASSIGN_OR_RETURN(const auto tags, Tags(place));
    for (const auto& [where, tag] : tags) {
      const bool triggered =
          std::any_of(triggers.begin(), triggers.end(), [&tag = tag](const std::string& trigger) {
            return absl::StartsWith(tag.begin, trigger);
          });
      if (!triggered)
        return SchemaError(PointerTo(where.pointer, "begin"), "it begins with no trigger");
    }
    COPPICE_ASSIGN_OR_RETURN(const bool at_least_one, Flag(place, "at_least_one"));
    COPPICE_ASSIGN_OR_RETURN(const bool only_one, Flag(place, "stop_after_first"));
    const Part text = grammar::AnyText(triggers);
    if (only_one) {
      const Part tag = AnyOf(tags);
      return Sequence({text, at_least_one ? tag : Optional(tag)});
    }
    const Part tag_and_text = Sequence({AnyOf(tags), text});
    return Sequence({text, Repeat(tag_and_text, at_least_one ? 1 : 0, Expression::kNoMost)});
  }

  absl::StatusOr<Part> SeparatedTags(const DocumentPlace& place) {
    COPPICE_ASSIGN_OR_RETURN(const auto tags, Tags(place));
    COPPICE_ASSIGN_OR_RETURN(const DocumentPlace separator, Member(place, "separator"));
    COPPICE_ASSIGN_OR_RETURN(const std::string mark, Mark(separator));
    COPPICE_ASSIGN_OR_RETURN(const bool at_least_one, Flag(place, "at_least_one"));
    COPPICE_ASSIGN_OR_RETURN(const bool only_one, Flag(place, "stop_after_first"));
    const Part tag = AnyOf(tags);
    const Part more = Repeat(Sequence({MarkPart(mark), tag}), 0, Expression::kNoMost);
    Part list = only_one ? tag : Sequence({tag, more});
    return at_least_one ? list : Optional(std::move(list));
  }

  std::vector<std::string>* const annotations_;
  const JsonRules::Notation notation_;
  JsonRules rules_;
  std::map<std::string, Part> schemas_;  // by their texts
};

}  // namespace

absl::StatusOr<Grammar> ReadStructuralTag(absl::string_view text,
                                          std::vector<std::string>* annotations) {
  COPPICE_ASSIGN_OR_RETURN(const OrderedJson document, ParseSchemaDocument(text));
  using Notation = JsonRules::Notation;
  const bool python = absl::StrContains(text, "\"python_arguments\"");
  const std::string blanks = document.is_object() && document.contains("whitespace")
                                 ? document["whitespace"].dump()
                                 : "\"any\"";
  if (blanks != "\"any\"" && blanks != "\"single\"")
    return SchemaError("#/whitespace", "it must be \"any\" or \"single\"");
  return StructureReader(
             python ? Notation::kPython : Notation::kJson,
             blanks == "\"single\"" ? JsonRules::Blanks::kSingle : JsonRules::Blanks::kAny,
             annotations)
      .Read(document);
}

}  // namespace coppice::grammar
