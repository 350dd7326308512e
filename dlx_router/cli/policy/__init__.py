"""`dlx-router policy`: lint, explain, test and import."""
