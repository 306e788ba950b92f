#!/bin/sh
# Sees to it that the tests find Chromium and Prometheus, and prints a line on it. As root on Debian it installs them; elsewhere it
# says so.
set -u

services=prometheus
. "$(dirname "$0")/../../internal/childproc/apt.sh"

there() { command -v chromium >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1; }

if there; then
	echo "chromium, prometheus: there"
elif with_apt chromium prometheus && there; then
	echo "chromium, prometheus: installed by apt-get"
else
	echo "chromium or prometheus: none. Install them (apt-get install chromium prometheus)" >&2
	exit 1
fi
