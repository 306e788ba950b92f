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

in_docker() {
	command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1 || return 1
	docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image" >/dev/null 2>&1
}

# with_apt installs redis-server and keeps Debian from starting it as a service,
# now by a policy and at the next boot by disabling it. A policy that is there
# already is the machine's own affair.
with_apt() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		trap 'exit 1' HUP INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" || return 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	{
		apt-get update && apt-get install -y --no-install-recommends redis-server || return 1
		if command -v systemctl >/dev/null 2>&1; then systemctl disable redis-server || true; fi
	} >&2
	on_path
}

if on_path; then
	echo "redis: $(command -v redis-server), $(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')$shared"
elif in_docker; then
	echo "redis: docker image $image$shared"
elif with_apt; then
	echo "redis: $(command -v redis-server), installed by apt-get$shared"
elif [ -n "$shared" ]; then
	echo "redis: REDIS_ADDR=$REDIS_ADDR alone: tests that kill a server or need a Cluster will fail"
else
	echo "redis: none. Install redis-server and redis-cli (apt-get install redis-server; brew install redis)," \
		"or start Docker with $image at hand or a registry in reach" >&2
	exit 1
fi
