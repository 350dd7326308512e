"""The policy language: strict YAML → values of the core, key by key, and values → text."""
