"""Policy files: documents, attachments and delayed exchanges → one revision, and the language as JSON Schema."""
