#include "common/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/build_info.h"
#include "common/check.h"
#include "common/config_yaml.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

// What one source says about one option. A list splits text at commas, but not what YAML already
// gave as a list.
struct Given {
  std::vector<std::string> texts;
  YamlSetting::Shape shape = YamlSetting::Shape::kScalar;
};

// Checks what was given; the closure it returns writes the target.
using Commit = std::function<void()>;
using Reader = std::function<absl::StatusOr<Commit>(const Given&)>;

enum class Kind { kValue, kFlag, kList };

struct Option {
  std::string name;
  std::string type_name;
  std::string help;
  Kind kind = Kind::kValue;
  Reader read;
  std::function<std::string()> format;  // the target's value as YAML
  std::string source = "default";
};

struct Positional {
  std::string name;
  std::vector<std::string>* target;
  std::string help;
  OptionTable::Presence presence;
};

// Requests on the command line that are no options of the configuration.
struct Actions {
  bool version = false;
  bool print_config = false;
  bool check_config = false;
};

bool IsKebabCase(const std::string& name) {
  return !name.empty() && name.front() != '-' && name.back() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

std::string EnvironmentName(const std::string& name) {
  std::string out = "TOKURA_";
  for (const char c : name) {
    out.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return out;
}

// Levenshtein distance.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// "; did you mean 'x'?", or nothing when no name is near.
std::string Suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const std::string& prefix) {
  constexpr size_t kComparedMax = 64;
  if (unknown.size() > kComparedMax) {
    return "";
  }
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, unknown.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(unknown, name);
    if (distance < best_distance) {
      best = &name;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : absl::StrCat("; did you mean '", prefix, *best, "'?");
}

// The reader of an option that takes one text.
template <typename T>
Reader ReadOne(T* target, std::function<absl::StatusOr<T>(const std::string&)> parse) {
  return [target, parse = std::move(parse)](const Given& given) -> absl::StatusOr<Commit> {
    if (given.shape == YamlSetting::Shape::kList) {
      return absl::InvalidArgumentError("takes one value, not a list");
    }
    if (given.texts.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes one value, but is given ", given.texts.size(), " times"));
    }
    TOKURA_ASSIGN_OR_RETURN(T value, parse(given.texts[0]));
    return Commit([target, value = std::move(value)] { *target = value; });
  };
}

absl::StatusOr<int64_t> ParseInt(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is out of range"));
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a whole number"));
  }
  return value;
}

absl::StatusOr<double> ParseDouble(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a finite number"));
  }
  return value;
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  if (text != "true" && text != "false") {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is neither true nor false"));
  }
  return text == "true";
}

std::string FormatDouble(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  TOKURA_CHECK(error == std::errc());
  return std::string(buffer, end);
}

std::string FormatList(const std::vector<std::string>& values) {
  std::vector<std::string> quoted(values.size());
  std::transform(values.begin(), values.end(), quoted.begin(),
                 [](const std::string& value) { return QuoteYaml(value); });
  return absl::StrCat("[", absl::StrJoin(quoted, ", "), "]");
}

std::vector<std::string> SplitAtCommas(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) {
    for (std::string_view rest = text; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (comma > 0) {
        items.emplace_back(rest.substr(0, comma));
      }
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return items;
}

// CLI11 takes the next argument as the value of "--name="; here that means the empty value.
std::vector<std::string> SpellOutEmptyValues(const std::vector<std::string>& args) {
  std::vector<std::string> out;
  bool options_ended = false;
  for (const std::string& arg : args) {
    options_ended = options_ended || arg == "--";
    if (!options_ended && arg.size() > 3 && arg.substr(0, 2) == "--" &&
        arg.find('=') == arg.size() - 1) {
      out.push_back(arg.substr(0, arg.size() - 1));
      out.emplace_back();
    } else {
      out.push_back(arg);
    }
  }
  return out;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kYamlBytesMax + 1, '\0');  // One byte more shows that the file is too long.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat("--config: cannot read '", path, "'"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

void Print(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

struct OptionTable::Impl {
  std::string program;
  std::string description;
  std::vector<std::unique_ptr<Option>> options;
  std::vector<Positional> positionals;
  std::vector<std::pair<std::string, std::string>> examples;
  std::vector<std::function<absl::Status()>> checks;

  std::string config_path;
  std::string log_level = "info";
  std::string log_format = "text";

  void Add(Option option);
  Option* Find(const std::string& name);
  std::vector<std::string> Names() const;

  // What every source says, by option name; a source read earlier wins.
  using Settings = std::map<std::string, std::pair<Given, std::string>>;  // name → given, source
  // Errors are collected, so that one run shows all of them.
  using Errors = std::vector<std::string>;

  std::unique_ptr<CLI::App> MakeApp(Actions* actions);
  Errors UnknownArguments(const CLI::App& app) const;
  void ReadFlags(const CLI::App& app, Settings* settings) const;
  void ReadEnvironment(const Environment& environment, Settings* settings) const;
  Errors ReadConfigFile(Settings* settings);
  Errors Apply(const Settings& settings);
  Errors RunChecks() const;
  Errors Configure(const CLI::App& app, const Environment& environment);
  Errors MissingPositionals() const;
  std::string Footer() const;
  std::string ConfigText() const;
  Outcome Fail(const Errors& errors, int exit_code) const;
};

void OptionTable::Impl::Add(Option option) {
  TOKURA_CHECK(IsKebabCase(option.name));
  TOKURA_CHECK(Find(option.name) == nullptr);
  options.push_back(std::make_unique<Option>(std::move(option)));
}

Option* OptionTable::Impl::Find(const std::string& name) {
  for (const auto& option : options) {
    if (option->name == name) {
      return option.get();
    }
  }
  return nullptr;
}

std::vector<std::string> OptionTable::Impl::Names() const {
  std::vector<std::string> names;
  for (const auto& option : options) {
    names.push_back(option->name);
  }
  return names;
}

std::string OptionTable::Impl::Footer() const {
  std::string text;
  if (!examples.empty()) {
    text = "Examples:\n";
    for (const auto& [command_line, what] : examples) {
      absl::StrAppend(&text, "  ", command_line, "\n      ", what, "\n");
    }
    text += "\n";
  }
  return text +
         "Every option can also come from the environment (TOKURA_NAME, dashes as underscores) or\n"
         "the YAML file (name: value); first of flag, environment, file, default wins.\n"
         "Sizes take KiB MiB GiB TiB, durations us ms s m h.";
}

std::unique_ptr<CLI::App> OptionTable::Impl::MakeApp(Actions* actions) {
  auto app = std::make_unique<CLI::App>(description, program);
  app->allow_extras();
  app->get_formatter()->column_width(36);
  app->footer(Footer());
  const CLI::callback_t keep = [](const CLI::results_t&) { return true; };
  for (const auto& option : options) {
    const std::string flag = "--" + option->name;
    // The const selects CLI11's overload that takes a description, not a variable to write.
    const std::string help =
        option->help +
        (option->kind == Kind::kFlag ? absl::StrCat(" [", option->format(), "]") : std::string());
    CLI::Option* made =
        option->kind == Kind::kFlag ? app->add_flag(flag, help) : app->add_option(flag, keep, help);
    made->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (option->kind != Kind::kFlag) {
      made->expected(1)->allow_extra_args(false)->type_name(option->type_name);
      if (const std::string value = option->format(); value != "\"\"" && value != "[]") {
        made->default_str(value);
      }
    }
  }
  for (Positional& positional : positionals) {
    CLI::Option* made = app->add_option(positional.name, *positional.target, positional.help);
    const bool last = &positional == &positionals.back();
    made->expected(1, last ? CLI::detail::expected_max_vector_size : 1);
    made->allow_extra_args(last)->type_name("");
  }
  app->add_flag("--print-config", actions->print_config,
                "Print every option's value and where it comes from, as YAML, and exit");
  app->add_flag("--check-config", actions->check_config,
                "Check the configuration and exit: 0 when it is right, 1 when not");
  app->add_flag("--version", actions->version, "Print the version and exit");
  return app;
}

OptionTable::Impl::Errors OptionTable::Impl::UnknownArguments(const CLI::App& app) const {
  Errors errors;
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra.front() == '-') {
      const std::string name = extra.substr(0, extra.find('='));
      const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
      errors.push_back(
          absl::StrCat("unknown option '", name, "'", Suggestion(bare, Names(), "--")));
    } else {
      errors.push_back(absl::StrCat("unexpected argument '", extra, "'"));
    }
  }
  return errors;
}

void OptionTable::Impl::ReadFlags(const CLI::App& app, Settings* settings) const {
  for (const auto& option : options) {
    const std::string flag = "--" + option->name;
    if (const CLI::Option* found = app.get_option(flag); found->count() > 0) {
      settings->emplace(option->name, std::pair(Given{found->results()}, "flag " + flag));
    }
  }
}

void OptionTable::Impl::ReadEnvironment(const Environment& environment, Settings* settings) const {
  for (const auto& option : options) {
    const std::string name = EnvironmentName(option->name);
    const char* value = environment(name.c_str());
    if (value != nullptr && *value != '\0') {
      settings->emplace(option->name, std::pair(Given{{value}}, "environment " + name));
    }
  }
}

OptionTable::Impl::Errors OptionTable::Impl::ReadConfigFile(Settings* settings) {
  const auto given = settings->find("config");
  if (given == settings->end()) {
    return {};
  }
  const absl::StatusOr<Commit> commit = Find("config")->read(given->second.first);
  if (!commit.ok()) {
    return {};  // Apply reports it.
  }
  (*commit)();
  const absl::StatusOr<std::string> text = ReadFile(config_path);
  if (!text.ok()) {
    return {std::string(text.status().message())};
  }
  const auto file = ReadYamlSettings(*text, config_path);
  if (!file.ok()) {
    return {std::string(file.status().message())};
  }
  Errors errors;
  for (const YamlSetting& setting : *file) {
    const std::string place = absl::StrCat(config_path, ":", setting.line);
    if (Find(setting.key) == nullptr || setting.key == "config") {
      errors.push_back(absl::StrCat(place, ": unknown key '", setting.key, "'",
                                    Suggestion(setting.key, Names(), "")));
    } else {
      settings->emplace(setting.key, std::pair(Given{setting.values, setting.shape}, place));
    }
  }
  return errors;
}

// Reads everything before it writes any target.
OptionTable::Impl::Errors OptionTable::Impl::Apply(const Settings& settings) {
  Errors errors;
  std::vector<Commit> commits;
  for (const auto& [name, setting] : settings) {
    Option* option = Find(name);
    absl::StatusOr<Commit> commit = option->read(setting.first);
    if (commit.ok()) {
      commits.push_back([option, source = setting.second, write = *std::move(commit)] {
        write();
        option->source = source;
      });
    } else {
      errors.push_back(
          absl::StrCat(name, " (", setting.second, "): ", std::string(commit.status().message())));
    }
  }
  if (errors.empty()) {
    for (const Commit& commit : commits) {
      commit();
    }
  }
  return errors;
}

OptionTable::Impl::Errors OptionTable::Impl::RunChecks() const {
  Errors errors;
  for (const auto& check : checks) {
    if (const absl::Status status = check(); !status.ok()) {
      errors.emplace_back(status.message());
    }
  }
  return errors;
}

OptionTable::Impl::Errors OptionTable::Impl::Configure(const CLI::App& app,
                                                       const Environment& environment) {
  Settings settings;
  ReadFlags(app, &settings);
  ReadEnvironment(environment, &settings);
  Errors errors = ReadConfigFile(&settings);
  const Errors unreadable = Apply(settings);
  errors.insert(errors.end(), unreadable.begin(), unreadable.end());
  return errors.empty() ? RunChecks() : errors;
}

OptionTable::Impl::Errors OptionTable::Impl::MissingPositionals() const {
  Errors errors;
  for (const Positional& positional : positionals) {
    if (positional.presence == Presence::kRequired && positional.target->empty()) {
      errors.push_back(absl::StrCat("'", positional.name, "' is missing"));
    }
  }
  return errors;
}

std::string OptionTable::Impl::ConfigText() const {
  std::string text = absl::StrCat("# Configuration of ", program, "\n");
  for (const auto& option : options) {
    if (option->name == "config") {
      continue;  // No key of a file.
    }
    std::string source = option->source;
    std::replace_if(
        source.begin(), source.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    absl::StrAppend(&text, option->name, ": ", option->format(), "  # ", source, "\n");
  }
  return text;
}

OptionTable::Outcome OptionTable::Impl::Fail(const Errors& errors, int exit_code) const {
  std::string text;
  for (const std::string& error : errors) {
    absl::StrAppend(&text, program, ": ", error, "\n");
  }
  absl::StrAppend(&text, "Try '", program, " --help'.\n");
  Print(stderr, text);
  return {false, exit_code};
}

OptionTable::OptionTable(std::string program, std::string description)
    : impl_(std::make_unique<Impl>()) {
  impl_->program = std::move(program);
  impl_->description = std::move(description);
  AddString("config", &impl_->config_path, "YAML file with further options");
  AddChoice("log-level", &impl_->log_level, {"trace", "debug", "info", "warn", "error"},
            "Least severe level that is logged");
  AddChoice("log-format", &impl_->log_format, {"text", "json"}, "Form of log lines on stderr");
}

OptionTable::~OptionTable() = default;

void OptionTable::SetDefaultLogLevel(std::string_view level) {
  LogLevel known;
  TOKURA_CHECK(ParseLogLevel(level, &known));
  impl_->log_level = std::string(level);
}

void OptionTable::AddString(std::string name, std::string* target, std::string help) {
  impl_->Add({std::move(name), "TEXT", std::move(help), Kind::kValue,
              ReadOne<std::string>(target, [](const std::string& text) { return text; }),
              [target] { return QuoteYaml(*target); }});
}

void OptionTable::AddStrings(std::string name, std::vector<std::string>* target, std::string help) {
  Reader read = [target](const Given& given) -> absl::StatusOr<Commit> {
    std::vector<std::string> items =
        given.shape == YamlSetting::Shape::kList ? given.texts : SplitAtCommas(given.texts);
    return Commit([target, items = std::move(items)] { *target = items; });
  };
  impl_->Add({std::move(name), "TEXT[,TEXT...]", std::move(help), Kind::kList, std::move(read),
              [target] { return FormatList(*target); }});
}

void OptionTable::AddInt(std::string name, int64_t* target, std::string help) {
  impl_->Add({std::move(name), "N", std::move(help), Kind::kValue,
              ReadOne<int64_t>(target, ParseInt), [target] { return absl::StrCat(*target); }});
}

void OptionTable::AddDouble(std::string name, double* target, std::string help) {
  impl_->Add({std::move(name), "X", std::move(help), Kind::kValue,
              ReadOne<double>(target, ParseDouble), [target] { return FormatDouble(*target); }});
}

void OptionTable::AddBool(std::string name, bool* target, std::string help) {
  impl_->Add({std::move(name), "", std::move(help), Kind::kFlag, ReadOne<bool>(target, ParseBool),
              [target] { return std::string(*target ? "true" : "false"); }});
}

void OptionTable::AddBytes(std::string name, uint64_t* target, std::string help) {
  impl_->Add({std::move(name), "SIZE", std::move(help), Kind::kValue,
              ReadOne<uint64_t>(target, [](const std::string& text) { return ParseBytes(text); }),
              [target] { return FormatBytes(*target); }});
}

void OptionTable::AddDuration(std::string name, Duration* target, std::string help) {
  impl_->Add(
      {std::move(name), "TIME", std::move(help), Kind::kValue,
       ReadOne<Duration>(target, [](const std::string& text) { return ParseDuration(text); }),
       [target] { return FormatDuration(*target); }});
}

void OptionTable::AddChoice(std::string name, std::string* target, std::vector<std::string> choices,
                            std::string help) {
  std::string type_name = absl::StrJoin(choices, "|");
  auto parse = [choices =
                    std::move(choices)](const std::string& text) -> absl::StatusOr<std::string> {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is none of ", absl::StrJoin(choices, ", ")));
    }
    return text;
  };
  impl_->Add({std::move(name), std::move(type_name), std::move(help), Kind::kValue,
              ReadOne<std::string>(target, std::move(parse)),
              [target] { return QuoteYaml(*target); }});
}

void OptionTable::AddPositional(std::string name, std::vector<std::string>* target,
                                Presence presence, std::string help) {
  impl_->positionals.push_back({std::move(name), target, std::move(help), presence});
}

void OptionTable::AddExample(std::string command_line, std::string what_it_does) {
  impl_->examples.emplace_back(std::move(command_line), std::move(what_it_does));
}

void OptionTable::AddCheck(std::function<absl::Status()> check) {
  impl_->checks.push_back(std::move(check));
}

OptionTable::Outcome OptionTable::Parse(const std::vector<std::string>& args,
                                        const Environment& environment) {
  constexpr int kUsage = 2;
  Actions actions;
  const std::unique_ptr<CLI::App> app = impl_->MakeApp(&actions);
  std::vector<std::string> reversed = SpellOutEmptyValues(args);
  std::reverse(reversed.begin(), reversed.end());
  try {
    app->parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    Print(stdout, app->help());
    return {false, 0};
  } catch (const CLI::ParseError& error) {
    return impl_->Fail({error.what()}, kUsage);
  }
  if (actions.version) {
    const BuildInfo& build = GetBuildInfo();
    Print(stdout, absl::StrCat(impl_->program, " ", build.version, " (", build.commit, ")\n"));
    return {false, 0};
  }
  if (const Impl::Errors unknown = impl_->UnknownArguments(*app); !unknown.empty()) {
    return impl_->Fail(unknown, kUsage);
  }
  if (const Impl::Errors errors = impl_->Configure(*app, environment); !errors.empty()) {
    return impl_->Fail(errors, actions.check_config ? 1 : kUsage);
  }
  if (actions.print_config || actions.check_config) {
    Print(stdout, actions.print_config ? impl_->ConfigText() : "configuration is right\n");
    return {false, 0};
  }
  if (const Impl::Errors missing = impl_->MissingPositionals(); !missing.empty()) {
    return impl_->Fail(missing, kUsage);
  }
  LogLevel level = LogLevel::kInfo;
  TOKURA_CHECK(ParseLogLevel(impl_->log_level, &level));
  SetLogLevel(level);
  SetLogFormat(impl_->log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  return {true, 0};
}

OptionTable::Outcome OptionTable::Parse(const std::vector<std::string>& args) {
  return Parse(args, [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace tokura
