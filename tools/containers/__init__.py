"""Images and containers of this repository: without a daemon where one is root on Debian, else by Docker."""
