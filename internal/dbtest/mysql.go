package dbtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	driver "github.com/go-sql-driver/mysql"
)

var mysql = &server{
	name:   "MariaDB or MySQL",
	driver: "mysql",
	env:    "LEASELIMIT_MYSQL_DSN",
	quit:   syscall.SIGKILL, // what it would write is thrown away

	native: func(dir string, port int) (create, serve *exec.Cmd, err error) {
		const sbin = "/usr/sbin/NAME"
		data := "--datadir=" + filepath.Join(dir, "data")
		args := append([]string{
			"--no-defaults", data, "--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"),
		}, mysqlArgs(port)...)
		install, err1 := look("mariadb-install-db")
		mariadbd, err2 := look("mariadbd", sbin)
		if err1 == nil && err2 == nil {
			return command(install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"),
				command(mariadbd, args...), nil
		}
		mysqld, err3 := look("mysqld", sbin)
		if err3 == nil {
			return command(mysqld, "--no-defaults", "--initialize-insecure", data), command(mysqld, args...), nil
		}
		return nil, nil, errors.Join(err1, err2, err3)
	},
	container: func(docker, name string, port int) *exec.Cmd {
		image := cmp.Or(os.Getenv("LEASELIMIT_MYSQL_IMAGE"), "mariadb:11")
		return command(docker, append([]string{
			"run", "--rm", "--network", "host", "--name", name,
			"--env", "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "--env", "MYSQL_ALLOW_EMPTY_PASSWORD=1", image,
		}, mysqlArgs(port)...)...)
	},
	dsn: func(port int) string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port) },
	inDatabase: func(dsn, database string) (string, error) {
		cfg, err := driver.ParseDSN(dsn)
		if err != nil {
			return "", err
		}
		cfg.DBName = database
		return cfg.FormatDSN(), nil
	},
}

func mysqlArgs(port int) []string {
	return []string{
		"--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1", "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
	}
}
