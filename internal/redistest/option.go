package redistest

import (
	"fmt"
	"strings"
)

// Option changes how a server is started.
type Option func(*spec)

// WithConfig adds the line "k v" to the server's config file, after the
// harness' own: it wins over them. The value is taken as it is, so that several
// words are several arguments; an empty one stands for "". requirepass is
// understood: the harness and its clients then log in.
func WithConfig(k, v string) Option {
	return func(sp *spec) {
		if v == "" {
			v = `""`
		}
		sp.lines = append(sp.lines, k+" "+v)
		if k == "requirepass" {
			sp.password = strings.Trim(v, `"`)
		}
	}
}

// withEngine starts the server by e in place of what is found on the machine.
func withEngine(e engine) Option {
	return func(sp *spec) { sp.engine = e }
}

// spec is what distinguishes one server from another: all but its place.
type spec struct {
	engine   engine   // nil: the one found on the machine
	lines    []string // of the config file, after bind and port
	args     []string // of the command line, after the config file
	password string
	tls      bool
}

// newSpec returns the spec of a plain server without persistence.
func newSpec(opts []Option) spec {
	sp := spec{lines: []string{
		`save ""`,
		"appendonly no",
		// Replicas are to be there at once: Redis 7 waits 5 s for more of them.
		"repl-diskless-sync-delay 0",
	}}
	for _, o := range opts {
		o(&sp)
	}
	return sp
}

// config returns the config file for a server on port, and with TLS on tlsPort
// unless that is 0.
func (sp spec) config(port, tlsPort int) string {
	head := fmt.Sprintf("bind %s\nport %d\nprotected-mode no\ndaemonize no\nlogfile \"\"\n", host, port)
	if tlsPort != 0 {
		head += fmt.Sprintf("tls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %[2]s\ntls-auth-clients no\n",
			tlsPort, certFile, keyFile)
	}
	return head + strings.Join(sp.lines, "\n") + "\n"
}
