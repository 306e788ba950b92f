# To be sourced by a provision.sh.

# with_apt PACKAGE.. installs packages as root on Debian and keeps it from starting their services, now by a policy and at the
# next boot by disabling them ($services). A policy that is there already is the machine's own affair.
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
		apt-get update && apt-get install -y --no-install-recommends "$@" || return 1
		if [ -n "$services" ] && command -v systemctl >/dev/null 2>&1; then systemctl disable $services || true; fi
	} >&2
}

# docker_image NAME sees to it that the image is here, if there is a Docker.
docker_image() {
	command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1 || return 1
	docker image inspect "$1" >/dev/null 2>&1 || docker pull --quiet "$1" >/dev/null 2>&1
}
