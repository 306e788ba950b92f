#!/bin/sh
# Builds a Docker image out of this machine's own redis-server, redis-cli and the
# libraries they load, and nothing else: for machines with Docker and no registry
# in reach. Needs a Linux with redis-server installed.
#
#   internal/redistest/image.sh leaselimit-redis:local
#   LEASELIMIT_REDIS_IMAGE=leaselimit-redis:local go test ./...
set -eu

tag=${1:?usage: image.sh TAG}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/usr/bin" "$root/data" "$root/tmp"
chmod 1777 "$root/data" "$root/tmp"

for program in redis-server redis-cli; do
	path=$(command -v "$program") || {
		echo "image.sh: $program is not installed" >&2
		exit 1
	}
	cp -L "$path" "$root/usr/bin/$program"
	# "name => /path (address)", and "/path (address)" for the loader.
	ldd "$path" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
		while read -r library; do
			mkdir -p "$root/$(dirname "$library")"
			cp -L "$library" "$root/$library"
		done
done

tar -C "$root" -c . | docker import \
	--change 'ENV PATH=/usr/bin' --change 'WORKDIR /data' --change 'CMD ["redis-server"]' \
	- "$tag" >/dev/null
echo "$tag: $(docker run --rm --network host "$tag" redis-server --version)"
