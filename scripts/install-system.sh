#!/bin/sh
# What the tests need beside Python: Chromium, in which they open the built pages; bubblewrap, in which submissions are graded; and
# PostgreSQL, of which they start a server of their own.
# Does nothing where it is there. Elsewhere it installs Debian's packages; without apt, or without root, it says what to install.
set -eu

missing=""
command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
    || missing="$missing chromium"
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "Please install:$missing  (on Debian or Ubuntu: sudo apt install$missing)" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # one word for each package
apt-get install -y -qq --no-install-recommends $missing
