#!/bin/sh
# Sees to it that the tests find a PostgreSQL and a MariaDB or MySQL, and prints a line on what they will use of each. What it
# looks for, and in which order, is what dbtest.go says. As root on Debian it installs what is missing; elsewhere it says what to
# install.
set -u

services=
. "$(dirname "$0")/../childproc/apt.sh"

# find NAME PATTERN.. prints where a program is.
find() {
	command -v "$1" && return
	for path in "$@"; do [ -x "$path" ] && echo "$path" && return; done
	return 1
}

find_postgres() { find postgres /usr/lib/postgresql/*/bin/postgres; }
find_mysql() { find mariadbd /usr/sbin/mariadbd || find mysqld /usr/sbin/mysqld; }

# provision NAME FIND ADDRESS IMAGE PACKAGE SERVICE: ADDRESS is what the variable holds that names a running server.
provision() {
	if [ -n "$3" ]; then
		echo "$1: as the environment says"
	elif path=$($2); then
		echo "$1: $path"
	elif docker_image "$4"; then
		echo "$1: docker image $4"
	elif services=$6 && with_apt "$5" && path=$($2); then
		echo "$1: $path, installed by apt-get"
	else
		echo "$1: none. Install it (apt-get install $5), or start Docker with $4 at hand or a registry in reach" >&2
		return 1
	fi
}

provision PostgreSQL find_postgres "${LEASELIMIT_POSTGRES_URL:-}" "${LEASELIMIT_POSTGRES_IMAGE:-postgres:17}" postgresql postgresql &&
	provision MariaDB find_mysql "${LEASELIMIT_MYSQL_DSN:-}" "${LEASELIMIT_MYSQL_IMAGE:-mariadb:11}" mariadb-server mariadb
