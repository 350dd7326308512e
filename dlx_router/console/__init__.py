"""The web console: pages over the HTTP API of routers, and nothing but that: what a page can do, a script can do."""
