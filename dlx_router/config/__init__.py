"""Text → core values, or all the errors with file and line: policies and settings."""
