#!/bin/sh
# Prints the name of a Docker image with a Redis that is on this machine: the one that LEASELIMIT_REDIS_IMAGE names, or the
# official one, or where no registry is in reach, one made of this machine's own redis-server.
set -eu
cd "$(dirname "$0")"

official=redis:7.4
local=leaselimit-redis:local

here() { docker image inspect "$1" >/dev/null 2>&1; }

if [ -n "${LEASELIMIT_REDIS_IMAGE:-}" ]; then
	echo "$LEASELIMIT_REDIS_IMAGE"
elif here "$official" || timeout 300 docker pull --quiet "$official" >/dev/null 2>&1; then
	echo "$official"
else
	here "$local" || ../internal/redistest/image.sh "$local" >&2
	echo "$local"
fi
