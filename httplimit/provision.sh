#!/bin/sh
# Sees to it that the tests find curl, and prints a line on it. As root on Debian it installs it; elsewhere it says so.
set -u

services=
. "$(dirname "$0")/../internal/childproc/apt.sh"

if command -v curl >/dev/null 2>&1; then
	echo "curl: $(command -v curl)"
elif with_apt curl && command -v curl >/dev/null 2>&1; then
	echo "curl: $(command -v curl), installed by apt-get"
else
	echo "curl: none. Install it (apt-get install curl)" >&2
	exit 1
fi
