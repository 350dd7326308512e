#!/bin/sh
# Installs what `python3 -m venv` lacks on a plain Debian, or says what to install.
set -eu
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "$1 cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends python3-venv
