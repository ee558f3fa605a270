"""The table of settings (settings.toml), and the variants of each that are measured: without drafts, with drafts of a fixed shape,
and with drafts as the server chooses."""
import dataclasses
import pathlib
import tomllib

TABLE = pathlib.Path(__file__).resolve().parent / "settings.toml"
KINDS = ("plain", "drafted", "auto")
FIELDS = {"label": str, "request": dict, "drafts": dict, "choose": str, "reference": str, "named": bool, "format": str}
# The tool gives these fields itself.
OWN_FIELDS = {"prompt", "messages", "seed", "stream", "speculative", "max_tokens", "logprobs", "top_logprobs", "return_token_ids", "echo",
              "structured_outputs"}


class SettingsError(Exception):
    """Names the file and the setting."""


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    label: str
    request: dict
    drafts: dict = dataclasses.field(default_factory=dict)
    choose: str = "first"
    reference: str = ""
    named: bool = False
    format: str = ""


@dataclasses.dataclass(frozen=True)
class Variant:
    setting: Setting
    kind: str  # of KINDS

    @property
    def name(self):
        return self.setting.name + {"plain": "", "drafted": "+drafts", "auto": "+auto"}[self.kind]

    def body(self):
        """The fields of a request that make this variant."""
        method = {key: self.setting.drafts[key] for key in ("method", "width_threshold", "mjsd_threshold", "draft_beams", "allow_lossy")
                  if key in self.setting.drafts}
        speculative = {"plain": False, "drafted": self.setting.drafts, "auto": method or "auto"}[self.kind]
        return dict(self.setting.request, speculative=speculative)


def read_settings(path=TABLE, only=()):
    """The settings of a file in its order; `only` names some. SettingsError says what is wrong."""
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error
    settings = {name: _setting(path, name, table) for name, table in tables.items()}
    for setting in settings.values():
        if setting.reference and setting.reference not in settings:
            raise SettingsError(f"{path}: {setting.name}: there is no setting {setting.reference}, which `reference` names")
    unknown = [name for name in only if name not in settings]
    if unknown:
        raise SettingsError(f"no setting is called {unknown[0]}; there are {', '.join(settings)}")
    if not settings:
        raise SettingsError(f"{path}: no settings")
    return [setting for name, setting in settings.items() if not only or name in only]


def _setting(path, name, table):
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: {name}: expected a table")
    for key, value in table.items():
        if key not in FIELDS:
            raise SettingsError(f"{path}: {name}: unknown field {key}; there are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[key]):
            raise SettingsError(f"{path}: {name}: {key} has the wrong type")
    for key in ("label", "request"):
        if key not in table:
            raise SettingsError(f"{path}: {name}: {key} is missing")
    if table.get("reference") and not table.get("drafts"):
        raise SettingsError(f"{path}: {name}: a setting with a reference is measured with drafts; drafts is missing")
    if table.get("choose", "first") not in ("first", "vote", "any"):
        raise SettingsError(f"{path}: {name}: choose must be first, vote or any")
    if table.get("format", "") not in ("", "sql"):
        raise SettingsError(f"{path}: {name}: format must be sql")
    taken = OWN_FIELDS & set(table["request"])
    if taken:
        raise SettingsError(f"{path}: {name}: request.{sorted(taken)[0]} is given by the tool")
    return Setting(name=name, **table)


def variants(settings, kinds):
    """What is measured. A setting that has a reference has no plain variant: it would be that of the reference."""
    exists = {"plain": lambda setting: not setting.reference, "drafted": lambda setting: setting.drafts, "auto": lambda _: True}
    return [Variant(setting, kind) for setting in settings for kind in KINDS if kind in kinds and exists[kind](setting)]
