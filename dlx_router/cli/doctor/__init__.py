"""`dlx-router doctor`: checks of everything that a router depends on."""
