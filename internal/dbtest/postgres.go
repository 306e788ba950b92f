package dbtest

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

var postgres = &server{
	name:   "PostgreSQL",
	driver: "pgx",
	env:    "LEASELIMIT_POSTGRES_URL",
	drop:   " WITH (FORCE)",
	quit:   syscall.SIGQUIT, // at once, without a checkpoint

	native: func(dir string, port int) (create, serve *exec.Cmd, err error) {
		const debian = "/usr/lib/postgresql/*/bin/NAME"
		initdb, err1 := look("initdb", debian)
		program, err2 := look("postgres", debian)
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		data := filepath.Join(dir, "data")
		return command(initdb, "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"),
			command(program, append([]string{"-D", data, "-c", "unix_socket_directories="}, postgresArgs(port)...)...), nil
	},
	container: func(docker, name string, port int) *exec.Cmd {
		image := cmp.Or(os.Getenv("LEASELIMIT_POSTGRES_IMAGE"), "postgres:17")
		return command(docker, append([]string{
			"run", "--rm", "--network", "host", "--name", name, "--env", "POSTGRES_HOST_AUTH_METHOD=trust", image,
		}, postgresArgs(port)...)...)
	},
	dsn: func(port int) string {
		return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	},
	inDatabase: func(dsn, database string) (string, error) {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		u.Path = "/" + database
		return u.String(), nil
	},
}

func postgresArgs(port int) []string {
	return []string{
		"-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off",
	}
}
