"""The pages, one module a subject. Each function turns one request into one answer; app.py gives them their paths."""
