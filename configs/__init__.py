"""Complete runs as TOML, shipped in the wheel: `kvstress run NAME` reads NAME.toml of this package."""
