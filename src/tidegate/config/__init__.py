"""Configuration: environment variables, `tidegate.toml` and defaults, merged into one frozen value."""

from tidegate.config.load import DEFAULT_DATABASE_URL, Config, load_config
from tidegate.config.preset import preset_toml

__all__ = ["DEFAULT_DATABASE_URL", "Config", "load_config", "preset_toml"]
