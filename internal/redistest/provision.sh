#!/bin/sh
# Sees to it that the tests find a Redis, and prints one line on what they will
# use. What it looks for, and in which order, is what doc.go says. As root on
# Debian it installs what is missing; elsewhere it says what to install.
#
# REDIS_ADDR serves the tests that share a server. Those that kill servers or
# build a Cluster need the programs, or Docker, as well: the script tries to get
# them, and is content with REDIS_ADDR if it cannot.
set -u

image=${LEASELIMIT_REDIS_IMAGE:-redis:7.4}
shared=${REDIS_ADDR:+; REDIS_ADDR=$REDIS_ADDR for the tests that share a server}

on_path() { command -v redis-server >/dev/null 2>&1 && command -v redis-cli >/dev/null 2>&1; }

services=redis-server
. "$(dirname "$0")/../childproc/apt.sh"

if on_path; then
	echo "redis: $(command -v redis-server), $(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')$shared"
elif docker_image "$image"; then
	echo "redis: docker image $image$shared"
elif with_apt redis-server && on_path; then
	echo "redis: $(command -v redis-server), installed by apt-get$shared"
elif [ -n "$shared" ]; then
	echo "redis: REDIS_ADDR=$REDIS_ADDR alone: tests that kill a server or need a Cluster will fail"
else
	echo "redis: none. Install redis-server and redis-cli (apt-get install redis-server; brew install redis)," \
		"or start Docker with $image at hand or a registry in reach" >&2
	exit 1
fi
