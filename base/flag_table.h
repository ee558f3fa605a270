// The flags of a program as a table of rows: name, the variable that receives the value, range or
// allowed words, help. --help, the checks, the configuration file and docs/flags.md read it. The
// default of a flag is the value that its variable has when the table is made. Used at start, by
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice {

using FlagValue =
    std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*,
                 std::optional<int>*, std::optional<double>*>;

struct FlagRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above = false;  // `low` itself is not allowed
};

struct FlagRow {
  std::string name;                     // with underscores
  FlagValue value;                      // must outlive the table
  FlagRange range = {};                 // allowed values of a number
  std::vector<std::string> words = {};  // not empty: the values that a text may have
  bool required = false;                // a text that must not be empty
  std::string own_default = {};         // what the default means, if its value does not say so
  std::string text = {};                // the line of --help
  std::string more = {};                // sentences that only docs/flags.md has
};

struct FlagGroup {
  std::string title;
  std::vector<FlagRow> rows;
};

struct RenamedFlag {
  std::string old_name, name;
};

class Flags;

// Collects faults. Each line begins with the place of the flag (Flags::Place).
class FlagFaults {
 public:
  explicit FlagFaults(const Flags* flags) : flags_(flags) {}
  void Add(absl::string_view flag, absl::string_view what);
  // The same for what a check of the flag's value returned, which may begin with "--flag: ".
  void Add(absl::string_view flag, const absl::Status& status);
  // Adds lines without a place.
  void Add(const absl::Status& status);
  absl::Status status() const;

 private:
  const Flags* flags_;
  std::string lines_;
};

struct FlagTable {
  std::string program;
  std::string about;  // what the program does: sentences, examples
  std::vector<FlagGroup> groups;
  // --help writes flags with dashes instead of underscores.
  bool dashes = false;
  // The table of a configuration file that sets these flags; "" = the program reads no such file.
  std::string section = {};
  // Old names. They are refused, and the message gives the new one.
  std::vector<RenamedFlag> renamed = {};
  // Rules that concern several flags, or what they name. Called only if each flag alone is valid.
  // May also complete the options that the flags give.
  std::function<void(FlagFaults*)> check = {};
};

// The flags of every program.
struct CommonFlags {
  std::string log_level = "info", log_format = "text";
  std::string config;  // of programs that read a configuration file, as those below
  bool check_config = false, print_config = false;
};

class Flags {
 public:
  explicit Flags(FlagTable table);
  Flags(const Flags&) = delete;

  const FlagTable& table() const { return table_; }
  const CommonFlags& common() const { return common_; }
  // nullptr: the program has no such flag.
  const FlagRow* Find(absl::string_view name) const;
  // ", did you mean --max_queue?", or "" if no name is alike.
  std::string Suggestion(absl::string_view name, absl::string_view dashes) const;
  // The name that the flag has now; "" if it was never renamed.
  std::string NewName(absl::string_view old_name) const;

  // Sets the flag's variable. Returns "", or why the text is wrong. place: how later errors name
  // the flag. origin: for PrintedConfig.
  std::string Set(const FlagRow& row, absl::string_view text, std::string place,
                  std::string origin);
  // Checks ranges, words and required flags. Each fault has its own line.
  absl::Status CheckRows() const;
  // CheckRows, then the table's own rules.
  absl::Status Check() const;

  // "--max_queue", or where the value comes from: "cluster.toml:7:1: coordinator.max_queue",
  // "COPPICE_MAX_QUEUE".
  std::string Place(absl::string_view name) const;
  // The value when the table was made.
  const std::string& DefaultText(const FlagRow& row) const { return defaults_.at(row.name); }
  // Every flag that a configuration file may set, as a table of such a file. A comment on each line
  // says where the value comes from.
  std::string PrintedConfig() const;
  // The flags that a configuration file and the environment may set.
  std::vector<std::string> ConfigurableNames() const;

 private:
  struct Source {
    std::string place, origin;
  };
  FlagTable table_;
  CommonFlags common_;
  std::map<std::string, std::string> defaults_;
  std::map<std::string, Source, std::less<>> sources_;
};

// The value as a flag's text: "7", "true", "cpu", "a,b"; "" for an optional one that is absent.
std::string FlagText(const FlagValue& value);
// "integer", "number", "true or false", "text", "list".
std::string FlagTypeName(const FlagValue& value);
// "between 1 and 1024", "more than 0", "cpu or cuda"; "" if every value of the type is allowed.
std::string FlagValues(const FlagRow& row);
// "a, b or c".
std::string OrList(const std::vector<std::string>& words);

}  // namespace coppice
